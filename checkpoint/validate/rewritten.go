package validate

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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
	for _, key := range duplicateKeys(config) {
		r.addFinding(Warning, "", "configuration key %q is there twice: the last one counts: keep one", key)
	}
}

// duplicateKeys returns the places of the keys that are twice in their object.
func duplicateKeys(config []byte) []string {
	p := keyScanner{decoder: jsontext.NewDecoder(bytes.NewReader(config), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))}
	_ = p.scanValue("") // It was decoded before.
	return p.duplicates
}

// keyScanner is one pass through a configuration.
type keyScanner struct {
	decoder    *jsontext.Decoder
	duplicates []string
}

func (p *keyScanner) scanValue(path string) error {
	switch p.decoder.PeekKind() {
	case '{':
		return p.scanObject(path)
	case '[':
		if _, err := p.decoder.ReadToken(); err != nil {
			return err
		}
		for i := 0; p.decoder.PeekKind() != ']'; i++ {
			if err := p.scanValue(fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
		_, err := p.decoder.ReadToken()
		return err
	}
	return p.decoder.SkipValue()
}

func (p *keyScanner) scanObject(path string) error {
	if _, err := p.decoder.ReadToken(); err != nil {
		return err
	}
	keys := map[string]bool{}
	for p.decoder.PeekKind() != '}' {
		name, err := p.decoder.ReadToken()
		if err != nil {
			return err
		}
		key := name.String()
		place := key
		if path != "" {
			place = path + "." + key
		}
		if keys[key] && !slices.Contains(p.duplicates, place) {
			p.duplicates = append(p.duplicates, place)
		}
		keys[key] = true
		if err := p.scanValue(place); err != nil {
			return err
		}
	}
	_, err := p.decoder.ReadToken()
	return err
}
