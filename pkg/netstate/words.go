package netstate

import (
	"fmt"
	"reflect"
	"strings"
)

// words describe something in the words of ip(8), phrase by phrase.
type words []string

func (w words) String() string { return strings.Join(w, " ") }

// put adds the value behind its label.
func (w *words) put(label string, value any) { *w = append(*w, fmt.Sprintf("%s %v", label, value)) }

// add is put for a value that is not zero. Of a flag it adds the label alone.
func (w *words) add(label string, value any) {
	switch {
	case value == true:
		*w = append(*w, label)
	case !reflect.ValueOf(value).IsZero():
		w.put(label, value)
	}
}
