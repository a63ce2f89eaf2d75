package lease

import (
	"bytes"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
	bolt "go.etcd.io/bbolt"
)

// What is stored as JSON is written and read here by the tags of its types. The JSON packages examine a type for long before they first
// use it, and a plugin is a process for one call: with the faster of them, an ADD took 7% longer.

// Unknown are the fields of a JSON object that a newer relink has written. A struct with such a field keeps them as they are, so that
// nothing is lost when the object is written again.
type Unknown map[string]jsontext.Value

// storedField is a field of a struct.
type storedField struct {
	key   string
	index []int
	// unknown says that the field is of type Unknown.
	unknown bool
}

var storedFields sync.Map

// fieldsOf returns the fields of a struct, with those of the structs that it embeds.
func fieldsOf(t reflect.Type) []storedField {
	if fields, found := storedFields.Load(t); found {
		return fields.([]storedField)
	}
	var fields []storedField
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			for _, inner := range fieldsOf(f.Type) {
				inner.index = slices.Concat(f.Index, inner.index)
				fields = append(fields, inner)
			}
			continue
		}
		key, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		fields = append(fields, storedField{key, f.Index, f.Type == reflect.TypeFor[Unknown]()})
	}
	storedFields.Store(t, fields)
	return fields
}

// encodeLease returns the lease as it is stored. Its network is not stored: the file is the network's.
func encodeLease(l Lease) []byte {
	l.Network = ""
	return encode(&l)
}

func decodeLease(b []byte) (l Lease, err error) {
	err = decode(b, "lease", &l)
	return l, err
}

// hasState says whether the stored lease can be in the state. It does not decode the lease: no text in JSON has a quotation mark in it.
func hasState(b []byte, s State) bool { return bytes.Contains(b, []byte(`"state":"`+s+`"`)) }

// encode returns what v points to in JSON. Fields that are zero are left out.
func encode(v any) []byte { return appendValue(nil, reflect.ValueOf(v).Elem()) }

func appendValue(b []byte, v reflect.Value) []byte {
	if v, ok := v.Addr().Interface().(encoding.TextMarshaler); ok { // The address, so that nothing is copied.
		text, _ := v.MarshalText() // Only a time beyond the year 9999 has none.
		return appendText(b, string(text))
	}
	switch v.Kind() {
	case reflect.Struct:
		b = append(b, '{')
		for _, f := range fieldsOf(v.Type()) {
			b = f.append(b, v.FieldByIndex(f.index))
		}
		return append(bytes.TrimSuffix(b, []byte(",")), '}')
	case reflect.Slice:
		b = append(b, '[')
		for i := range v.Len() {
			b = append(appendValue(b, v.Index(i)), ',')
		}
		return append(bytes.TrimSuffix(b, []byte(",")), ']')
	case reflect.String:
		return appendText(b, v.String())
	}
	text, _ := json.Marshal(v.Interface()) // Every number and boolean has one.
	return append(b, text...)
}

// appendText appends a text. One from a runtime may not be UTF-8: that is no reason to lose an address.
func appendText(b []byte, text string) []byte {
	b, _ = jsontext.AppendQuote(b, text)
	return b
}

// append appends the field with a comma after it, or nothing for a zero value.
func (f storedField) append(b []byte, v reflect.Value) []byte {
	switch {
	case f.unknown:
		values := v.Interface().(Unknown)
		for _, key := range slices.Sorted(maps.Keys(values)) {
			b = append(append(append(appendText(b, key), ':'), values[key]...), ',')
		}
	case !v.IsZero() && (v.Kind() != reflect.Slice || v.Len() > 0):
		b = append(appendValue(append(appendText(b, f.key), ':'), v), ',')
	}
	return b
}

// decode reads what encode has written into what v points to. name is for the error, which matches ErrDamaged.
func decode(b []byte, name string, v any) error {
	r := newReader(b)
	r.value(reflect.ValueOf(v).Elem())
	if _, err := r.decoder.ReadToken(); r.err == nil && !errors.Is(err, io.EOF) {
		r.err = errors.New("more follows")
	}
	return r.damage(name)
}

// decodeFrom is decode for the value of the key, if the bucket has it.
func decodeFrom(bucket *bolt.Bucket, key, name string, v any) error {
	if b := bucket.Get([]byte(key)); b != nil {
		return decode(b, name, v)
	}
	return nil
}

// reader reads JSON, and keeps the first error.
type reader struct {
	decoder *jsontext.Decoder
	err     error
}

func newReader(b []byte) *reader {
	return &reader{decoder: jsontext.NewDecoder(bytes.NewBuffer(b), jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))}
}

// damage returns the error as ErrDamaged.
func (r *reader) damage(name string) error {
	if r.err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w: %w", name, ErrDamaged, r.err)
}

// token reads one token, which must be of the kind, and returns its text.
func (r *reader) token(kind jsontext.Kind) string {
	var t jsontext.Token
	if r.err == nil {
		t, r.err = r.decoder.ReadToken()
	}
	if r.err == nil && t.Kind() != kind {
		r.err = fmt.Errorf("%s at %q, where %s belongs", t.Kind(), r.decoder.StackPointer(), kind)
	}
	if r.err != nil {
		return ""
	}
	return t.String()
}

// next says whether another key or item comes before the end.
func (r *reader) next(end jsontext.Kind) bool { return r.err == nil && r.decoder.PeekKind() != end }

// raw reads a value as it is written.
func (r *reader) raw() (v jsontext.Value) {
	if r.err == nil {
		v, r.err = r.decoder.ReadValue()
	}
	return v
}

// value reads a value. null stands for a zero one.
func (r *reader) value(v reflect.Value) {
	if r.err != nil || r.decoder.PeekKind() == 'n' {
		r.raw()
		return
	}
	if target, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if text := r.token('"'); r.err == nil {
			r.err = target.UnmarshalText([]byte(text))
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		r.token('{')
		for fields := fieldsOf(v.Type()); r.next('}'); {
			r.field(v, fields, r.token('"'))
		}
		r.token('}')
	case reflect.Slice:
		r.token('[')
		for r.next(']') {
			v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
			r.value(v.Index(v.Len() - 1))
		}
		r.token(']')
	case reflect.String:
		v.SetString(r.token('"'))
	default:
		if text := r.raw(); r.err == nil {
			r.err = json.Unmarshal(text, v.Addr().Interface())
		}
	}
}

// field reads the value of the key, and drops one of a key that the struct does not have.
func (r *reader) field(v reflect.Value, fields []storedField, key string) {
	i := slices.IndexFunc(fields, func(f storedField) bool { return f.key == key || f.unknown })
	switch {
	case i < 0:
		r.raw()
	case fields[i].unknown:
		target := v.FieldByIndex(fields[i].index).Addr().Interface().(*Unknown)
		if *target == nil {
			*target = Unknown{}
		}
		(*target)[key] = r.raw().Clone()
	default:
		r.value(v.FieldByIndex(fields[i].index))
	}
}
