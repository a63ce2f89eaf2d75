package cniplugin

import (
	"bytes"
	v1 "encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Decode reads the configuration in b into config, a pointer to a struct. Keys that the struct does not have are left
// out. A value of a wrong type is an error with code 7 that names the key. Text that is no JSON is an error with
// code 6. It is not strict: case does not count in keys, of a key that is there twice the last one counts, and bytes
// that are not UTF-8 are replaced. A DEL and a GC have to work with such a configuration. Keys.Examine reports all of
// this to the others.
func Decode(b []byte, config any) error { return DecodePart("", b, config) }

// DecodePart is Decode for a part of the configuration: the value at the key. "" stands for all of it.
func DecodePart(key string, b []byte, part any) error {
	return FirstError(DecodeAll(key, b, part))
}

// unmarshal decodes with a JSON package whose errors name the place in the text and the type that is wanted. It runs
// after encoding/json has refused the text: its first call in a process costs 0.1 ms more, and an ADD takes 2 ms.
func unmarshal(b []byte, part any) error {
	return json.Unmarshal(b, part, json.MatchCaseInsensitiveNames(true),
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// DecodeAll is DecodePart that does not stop at the first value of a wrong type. It returns all errors. A wrong
// value counts as null.
func DecodeAll(key string, b []byte, part any) []error {
	if v1.Unmarshal(b, part) == nil {
		return nil
	}
	var errs []error
	for {
		err := unmarshal(b, part)
		if err == nil {
			return errs
		}
		errs = append(errs, decodeError(key, b, err))
		// Each round turns one more value into null, so the rounds end.
		var wrong *json.SemanticError
		if !errors.As(err, &wrong) || wrong.JSONPointer == "" {
			return errs
		}
		start, end := valueAt(b, wrong.ByteOffset)
		if end == 0 || string(b[start:end]) == "null" {
			return errs
		}
		b = slices.Concat(b[:start], []byte("null"), b[end:])
	}
}

func decodeError(key string, b []byte, err error) error {
	var coded *types.Error
	var wrong *json.SemanticError
	switch {
	case errors.As(err, &coded):
		return coded
	case errors.As(err, &wrong):
		path := KeyPath(key, wrong.JSONPointer)
		if path == "" {
			return Error(types.ErrDecodingFailure, "network configuration: must be an object")
		}
		start, end := valueAt(b, wrong.ByteOffset)
		return ConfigError(path, RawValue(b[start:end]), "must be "+expectedType(wrong.GoType, b[start:end]))
	}
	return syntaxError(key, b, err)
}

// syntaxError returns the error for text that is no JSON. It names the place where the text goes wrong.
func syntaxError(key string, b []byte, err error) error {
	subject := "network configuration"
	if key != "" {
		subject += ", " + key
	}
	var syntax *jsontext.SyntacticError
	errors.As(err, &syntax)
	switch {
	case len(bytes.TrimSpace(b)) == 0:
		return Error(types.ErrDecodingFailure, "%s: is empty: must be an object in JSON", subject)
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return Error(types.ErrDecodingFailure, "%s: is no JSON: it ends too early: a quotation mark or a bracket is missing", subject)
	case !utf8.Valid(b):
		return Error(types.ErrDecodingFailure, "%s: is no JSON: line %d has bytes that are not UTF-8", subject, lineAt(b, bytes.IndexRune(b, utf8.RuneError)))
	case syntax != nil:
		offset := int(min(max(syntax.ByteOffset, 0), int64(len(b))))
		// The decoder can point into the middle of a word. A reader looks for the whole word.
		for offset > 0 && offset < len(b) && isLetter(b[offset]) && isLetter(b[offset-1]) {
			offset--
		}
		return Error(types.ErrDecodingFailure, "%s: is no JSON from %q in line %d on: a comma, a quotation mark or a bracket is missing or too many",
			subject, clipTo(string(b[offset:]), 20), lineAt(b, offset))
	}
	return Error(types.ErrDecodingFailure, "%s: is no JSON, or has text behind its end", subject)
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// lineAt returns the number of the line that has the byte. The first line is 1.
func lineAt(b []byte, offset int) int { return 1 + bytes.Count(b[:min(offset, len(b))], []byte("\n")) }

// KeyPath returns a place in the value at the key as people write it: "ipam.ranges[0][0].subnet".
func KeyPath(key string, pointer jsontext.Pointer) string {
	for token := range pointer.Tokens() {
		if _, err := strconv.ParseUint(token, 10, 32); err == nil {
			key += "[" + token + "]"
		} else {
			key = joinPath(key, token)
		}
	}
	return key
}

// valueAt returns where the value that comes next after the offset begins and ends in b. Both are 0 if there is none.
func valueAt(b []byte, offset int64) (start, end int) {
	decoder := jsontext.NewDecoder(bytes.NewBuffer(b[offset:]), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	value, err := decoder.ReadValue()
	if err != nil {
		return 0, 0
	}
	end = int(offset + decoder.InputOffset())
	return end - len(value), end
}

// expectedType says in words of JSON which value a Go type takes, and what to do about the value that is there.
func expectedType(t reflect.Type, value []byte) string {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || len(value) == 0 {
		return "of another type"
	}
	quoted, listed, object := value[0] == '"', value[0] == '[', value[0] == '{'
	switch t.Kind() {
	case reflect.String:
		if listed || object {
			return "a string"
		}
		return "a string: put it in quotation marks"
	case reflect.Slice, reflect.Array:
		return "a list: put it in [ ]"
	case reflect.Bool:
		return "true or false" + quotesHint(quoted)
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "a whole number" + quotesHint(quoted)
	case reflect.Uint, reflect.Uint32, reflect.Uint64:
		return fmt.Sprintf("a whole number from 0 to %d", uint64(1)<<t.Bits()-1) + quotesHint(quoted)
	case reflect.Float64:
		return "a number between -1.7e308 and 1.7e308" + quotesHint(quoted)
	}
	return "an object: put its keys in { }"
}

func quotesHint(quotationMarks bool) string {
	if quotationMarks {
		return ", without quotation marks"
	}
	return ""
}
