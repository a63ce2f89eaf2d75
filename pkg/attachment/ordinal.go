package attachment

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// Ordinal is the number of a pod in a StatefulSet. The zero Ordinal is none, so that two owners can be compared
// with ==. Kubernetes counts from 0: use OrdinalOf and Number.
type Ordinal uint32

// OrdinalOf returns the ordinal of that number, and none for a number that no pod has.
func OrdinalOf(number int) Ordinal {
	if number < 0 || number >= math.MaxInt32 {
		return 0
	}
	return Ordinal(number) + 1
}

// Number returns the number. ok is false for none.
func (o Ordinal) Number() (number int, ok bool) { return int(o) - 1, o != 0 }

// MarshalJSON writes the number, and null for none.
func (o Ordinal) MarshalJSON() ([]byte, error) {
	number, ok := o.Number()
	if !ok {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, int64(number), 10), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (o *Ordinal) UnmarshalJSON(b []byte) error {
	var number *int
	if err := json.Unmarshal(b, &number); err != nil {
		return err
	}
	*o = 0
	if number == nil {
		return nil
	}
	if *o = OrdinalOf(*number); *o == 0 {
		return fmt.Errorf("no pod has the ordinal %d", *number)
	}
	return nil
}
