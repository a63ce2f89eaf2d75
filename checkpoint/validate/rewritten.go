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

// rewritten returns the configuration as libcni writes it anew for the plugins (libcni.NetworkConfFromBytes,
// ConfListFromConf, InjectConf). Keys are in order, and of a key that is there twice the last one is left. A number
// such as 1.4e3 becomes 1400. What is not UTF-8 is replaced.
func rewritten(config []byte) ([]byte, error) {
	var keys map[string]any
	if err := cniplugin.DecodePart("", config, &keys); err != nil {
		return nil, err
	}
	return encoded(keys)
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
	return encoded(keys)
}

// encoded is json.Marshal that leaves <, > and & as they are: messages have them as they are in the file. For a
// reader of JSON it is the same.
func encoded(keys map[string]any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(keys)
	return bytes.TrimSpace(b.Bytes()), err
}

// odd warns of what libcni mends when it writes the configuration anew.
func (r *reading) odd(config []byte) {
	if !utf8.Valid(config) {
		r.say(Warning, "", "has bytes that are not UTF-8: the runtime replaces them: save the file as UTF-8")
	}
	for _, key := range twice(config) {
		r.say(Warning, "", "configuration key %q is there twice: the last one counts: keep one", key)
	}
}

// twice returns the places of the keys that are twice in their object.
func twice(config []byte) []string {
	p := pass{decoder: jsontext.NewDecoder(bytes.NewReader(config), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))}
	_ = p.value("") // It was decoded before.
	return p.twice
}

// pass is one pass through a configuration.
type pass struct {
	decoder *jsontext.Decoder
	twice   []string
}

func (p *pass) value(at string) error {
	switch p.decoder.PeekKind() {
	case '{':
		return p.object(at)
	case '[':
		if _, err := p.decoder.ReadToken(); err != nil {
			return err
		}
		for i := 0; p.decoder.PeekKind() != ']'; i++ {
			if err := p.value(fmt.Sprintf("%s[%d]", at, i)); err != nil {
				return err
			}
		}
		_, err := p.decoder.ReadToken()
		return err
	}
	return p.decoder.SkipValue()
}

func (p *pass) object(at string) error {
	if _, err := p.decoder.ReadToken(); err != nil {
		return err
	}
	seen := map[string]bool{}
	for p.decoder.PeekKind() != '}' {
		name, err := p.decoder.ReadToken()
		if err != nil {
			return err
		}
		key := name.String()
		place := key
		if at != "" {
			place = at + "." + key
		}
		if seen[key] && !slices.Contains(p.twice, place) {
			p.twice = append(p.twice, place)
		}
		seen[key] = true
		if err := p.value(place); err != nil {
			return err
		}
	}
	_, err := p.decoder.ReadToken()
	return err
}
