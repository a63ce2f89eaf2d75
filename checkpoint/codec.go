package checkpoint

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// Errors of Decode, matched with errors.Is.
var (
	// ErrTorn: the bytes are no whole record.
	ErrTorn = errors.New("torn or no checkpoint")
	// ErrVersion: this relink cannot read the record's version.
	ErrVersion = errors.New("unknown checkpoint version")
)

// Encode returns the record as it is stored. It fails if Decode would not accept the result.
func Encode(r Record) ([]byte, error) {
	r.Version = Version
	if err := r.Validate(); err != nil {
		return nil, fmt.Errorf("encode checkpoint: %w", err)
	}
	b, err := jsonv2.Marshal(r, storedFormat)
	if err != nil {
		return nil, fmt.Errorf("encode checkpoint: %w", err)
	}
	return append(b, '\n'), nil
}

// Decode returns the whole record in b, or an error. It refuses a field that this version does not
// know: what the field asks for would be lost.
func Decode(b []byte) (Record, error) {
	var r Record
	if err := jsonv2.Unmarshal(b, &r, strictFormat); err != nil || r.Version != Version {
		return Record{}, explain(b, err)
	}
	if err := r.Validate(); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrTorn, err)
	}
	return r, nil
}

// storedFormat are the rules of encoding/json. This package takes half its time for them.
var storedFormat = jsonv2.JoinOptions(jsonv1.DefaultOptionsV1(), jsontext.WithIndent("  "))

// strictFormat refuses unknown fields. The package is encoding/json/v2 from Go 1.27 on. It reads a record in half the time, and a
// restore reads all records first.
var strictFormat = jsonv2.JoinOptions(partialFormat, jsonv2.RejectUnknownMembers(true))

// explain says why b is not a record of this version. err is the error of decoding b.
func explain(b []byte, err error) error {
	var head struct {
		Version *int `json:"version"`
	}
	headErr := json.Unmarshal(b, &head)
	if headErr == nil && head.Version != nil && *head.Version != Version {
		return fmt.Errorf("%w: %d, this relink reads %d: another relink wrote it", ErrVersion, *head.Version, Version)
	}
	return fmt.Errorf("%w: %w", ErrTorn, cmp.Or(headErr, err, errors.New("it has no version")))
}
