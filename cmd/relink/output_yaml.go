package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/relink-cni/relink/pkg/printable"
)

// writeYAML writes as YAML what JSON would contain, in the same order.
func writeYAML(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(b))
	decoder.UseNumber()
	document, err := nodeOf(decoder)
	if err != nil {
		return err
	}
	var text strings.Builder
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := errors.Join(encoder.Encode(document), encoder.Close()); err != nil {
		return err
	}
	_, err = io.WriteString(w, escapeYAML(text.String()))
	return err
}

// nodeOf reads the next value.
func nodeOf(decoder *json.Decoder) (*yaml.Node, error) {
	token, err := decoder.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		return collectionOf(decoder, t)
	case string:
		n := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: t}
		if printable.Line(t) != t || oldYAML().MatchString(t) {
			n.Style = yaml.DoubleQuotedStyle // YAML spells out characters only between double quotes.
		}
		return n, nil
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: decimalPoint(t.String())}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(t)}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: "null"}, nil
}

// oldYAML matches the text that a reader of YAML 1.1 (PyYAML, Ansible) takes for something else than a string, if it
// has no quotes: a boolean, a special key, a number (also in base 60, as a MAC of digits alone) or a time. It is
// wider than the types on yaml.org/type, because quotes do no harm. go-yaml adds the quotes that YAML 1.2 needs.
// Only a run that prints YAML pays for the expression.
var oldYAML = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(?:` + strings.Join([]string{
		`(?i:y|yes|on|true|n|no|off|false)`,
		`=|<<`,
		`[-+]?[0-9_]*\.?[0-9_]*(?:[eE][-+]?[0-9]+)?`,
		`[-+]?0[box][0-9a-fA-F_]+`,
		`[-+]?[0-9_]+(?::[0-9]+)+(?:\.[0-9_]*)?`,
		`[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?`,
	}, "|") + `)$`)
})

// decimalPoint returns the number with a decimal point if it has an exponent. YAML 1.1 takes 1e-7 for a string.
func decimalPoint(number string) string {
	if before, exponent, ok := strings.Cut(number, "e"); ok && !strings.Contains(before, ".") {
		return before + ".0e" + exponent
	}
	return number
}

// collectionOf reads a list or an object. The names of an object are nodes like their values.
func collectionOf(decoder *json.Decoder, begin json.Delim) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.SequenceNode}
	if begin == '{' {
		n.Kind = yaml.MappingNode
	}
	for decoder.More() {
		child, err := nodeOf(decoder)
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, child)
	}
	_, err := decoder.Token() // The closing bracket.
	return n, err
}

// escapeYAML spells out the characters that printable.Writer would spell out for JSON. JSON uses two escapes for one
// character beyond the first 65,536, and YAML does not read those.
func escapeYAML(text string) string {
	var b strings.Builder
	for _, r := range text {
		if c := string(r); r > 0xffff && printable.Line(c) != c {
			fmt.Fprintf(&b, `\U%08x`, r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
