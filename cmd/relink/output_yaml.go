package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

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
	_, err = io.WriteString(w, spelt(text.String()))
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
		if printable.Line(t) != t {
			n.Style = yaml.DoubleQuotedStyle // YAML spells out characters only between double quotes.
		}
		return n, nil
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: t.String()}, nil
	case bool:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(t)}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: "null"}, nil
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

// spelt spells out the characters that printable.Writer would spell out for JSON. JSON uses two escapes for one
// character beyond the first 65,536, and YAML does not read those.
func spelt(text string) string {
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
