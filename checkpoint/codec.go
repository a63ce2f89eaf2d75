package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Errors of Decode, matched with errors.Is.
var (
	// ErrTorn: the bytes are no whole record.
	ErrTorn = errors.New("torn or no checkpoint")
	// ErrVersion: the record is of a version that this relink can't read.
	ErrVersion = errors.New("unknown checkpoint version")
)

// Encode returns the record as it is stored, or an error if Decode would not
// take it back.
func Encode(r Record) ([]byte, error) {
	r.Version = Version
	if err := r.Validate(); err != nil {
		return nil, fmt.Errorf("encode checkpoint: %w", err)
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode checkpoint: %w", err)
	}
	return append(b, '\n'), nil
}

// Decode returns the record in b, all of it or an error: a field that this
// version does not know is refused, as what it asks for would be lost. A record of an
// older version is one of this version then.
func Decode(b []byte) (Record, error) {
	var r Record
	decoder := json.NewDecoder(bytes.NewReader(b))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&r); err != nil || r.Version < Oldest || r.Version > Version {
		return Record{}, explain(b, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Record{}, fmt.Errorf("%w: more follows after its end", ErrTorn)
	}
	if err := r.Validate(); err != nil {
		return Record{}, fmt.Errorf("%w: %w", ErrTorn, err)
	}
	if r.Version < routesApart {
		r.upgradeRoutes()
	}
	r.Version = Version
	return r, nil
}

// explain says why b is no record of this version; err is that of decoding it as
// one.
func explain(b []byte, err error) error {
	var head struct {
		Version *int `json:"version"`
	}
	headErr := json.Unmarshal(b, &head)
	switch {
	case headErr != nil:
		return fmt.Errorf("%w: %w", ErrTorn, headErr)
	case head.Version == nil:
		return fmt.Errorf("%w: it has no version", ErrTorn)
	case *head.Version < Oldest || *head.Version > Version:
		return fmt.Errorf("%w: %d, this relink reads %d to %d", ErrVersion, *head.Version, Oldest, Version)
	}
	return fmt.Errorf("%w: %w", ErrTorn, err)
}
