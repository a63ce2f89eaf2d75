package validate

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/relink-cni/relink/pkg/cniplugin"
)

// rewritten returns the configuration as libcni writes it anew for the plugins (libcni.NetworkConfFromBytes, InjectConf), with these values
// over those that are there. Keys are in order, and of a key that is there twice the last one is left. A number such as 1.4e3 becomes 1400.
// What is not UTF-8 is replaced.
//
// It leaves <, > and & as they are: messages have them as they are in the file. For a reader of JSON it is the same.
func rewritten(config []byte, values map[string]any) ([]byte, error) {
	var keys map[string]any
	if err := cniplugin.DecodePart("", config, &keys); err != nil {
		return nil, err
	}
	if keys == nil {
		return nil, errors.New("null is no object")
	}
	maps.Copy(keys, values)
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(keys)
	return bytes.TrimSpace(b.Bytes()), err
}

// checkEncoding warns of what libcni mends when it writes the configuration anew.
func (r *chainReader) checkEncoding(config []byte) {
	if !utf8.Valid(config) {
		r.addFinding(Warning, "", "has bytes that are not UTF-8: the runtime replaces them: save the file as UTF-8")
	}
	// The first one is named.
	decoder := jsontext.NewDecoder(bytes.NewReader(config), jsontext.AllowInvalidUTF8(true))
	var duplicate *jsontext.SyntacticError
	if err := decoder.SkipValue(); errors.As(err, &duplicate) && errors.Is(err, jsontext.ErrDuplicateName) {
		r.addFinding(Warning, "", "configuration key %q is there twice: the last one counts: keep one", cniplugin.KeyPath("", duplicate.JSONPointer))
	}
}
