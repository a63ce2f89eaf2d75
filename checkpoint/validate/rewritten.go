package validate

import (
	"bytes"
	"encoding/json"
	"errors"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/relink-cni/relink/pkg/cniplugin"
)

// normalized returns the configuration as libcni writes it anew for the plugins (libcni.NetworkConfFromBytes,
// ConfListFromConf, InjectConf). Keys are in order, and of a key that is there twice the last one is left. A number
// such as 1.4e3 becomes 1400. What is not UTF-8 is replaced.
func normalized(config []byte) ([]byte, error) {
	var keys map[string]any
	if err := cniplugin.DecodePart("", config, &keys); err != nil {
		return nil, err
	}
	return encodeJSON(keys)
}

// withHead returns a plugin's object as libcni gives it to the plugin: it writes the object anew, and sets both keys
// over those that are there.
func withHead(written []byte, name, cniVersion string) ([]byte, error) {
	var keys map[string]any
	if err := cniplugin.DecodePart("", written, &keys); err != nil {
		return nil, err
	}
	if keys == nil {
		return nil, errors.New("null is no object")
	}
	keys["name"], keys["cniVersion"] = name, cniVersion
	return encodeJSON(keys)
}

// encodeJSON is json.Marshal that leaves <, > and & as they are: messages have them as they are in the file. For a
// reader of JSON it is the same.
func encodeJSON(keys map[string]any) ([]byte, error) {
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
