package main

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/pool"
)

// orderedMap is a mapping with an order.
type orderedMap []pair

type pair struct {
	key   string
	value any
}

// MarshalYAML implements yaml.Marshaler.
func (mapping orderedMap) MarshalYAML() (any, error) {
	node := &yaml.Node{Kind: yaml.MappingNode}
	for _, p := range mapping {
		var key, value yaml.Node
		if err := key.Encode(p.key); err != nil {
			return nil, err
		}
		if err := value.Encode(p.value); err != nil {
			return nil, err
		}
		node.Content = append(node.Content, &key, &value)
	}
	return node, nil
}

// schema is a structural schema, with the keys that are used here.
type schema struct {
	Description string     `yaml:"description,omitempty"`
	Type        string     `yaml:"type"`
	Default     any        `yaml:"default,omitempty"`
	Minimum     *int64     `yaml:"minimum,omitempty"`
	Maximum     int64      `yaml:"maximum,omitempty"`
	MinLength   int        `yaml:"minLength,omitempty"`
	MaxLength   int        `yaml:"maxLength,omitempty"`
	Pattern     string     `yaml:"pattern,omitempty"`
	MinItems    int        `yaml:"minItems,omitempty"`
	MaxItems    int        `yaml:"maxItems,omitempty"`
	ListType    string     `yaml:"x-kubernetes-list-type,omitempty"`
	ListMapKeys []string   `yaml:"x-kubernetes-list-map-keys,omitempty"`
	Required    []string   `yaml:"required,omitempty"`
	Properties  orderedMap `yaml:"properties,omitempty"`
	Items       *schema    `yaml:"items,omitempty"`
	Rules       []rule     `yaml:"x-kubernetes-validations,omitempty"`
}

// builder makes schemas of Go types.
type builder struct {
	docs   comments
	limits map[string]limit
	used   []string
}

// schema returns the schema of a type. key names it in the table of limits.
func (b *builder) schema(t reflect.Type, key string) (*schema, error) {
	s := &schema{}
	switch {
	case t == reflect.TypeFor[netip.Addr]():
		s.Type, s.MinLength, s.MaxLength, s.Rules = "string", 2, maxAddress, []rule{addressRule}
	case t == reflect.TypeFor[attachment.Ordinal]():
		s.Type, s.Minimum, s.Maximum = "integer", new(int64), 1<<31-2
	case t == reflect.TypeFor[pool.Meta]():
		s.Type = "object"
	case t.Kind() == reflect.Pointer:
		return b.schema(t.Elem(), key)
	case t.Kind() == reflect.String:
		s.Type = "string"
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		s.Type, s.Minimum = "integer", new(int64)
	case t.Kind() == reflect.Bool:
		s.Type = "boolean"
	case t.Kind() == reflect.Slice:
		items, err := b.schema(t.Elem(), key+"[]")
		if err != nil {
			return nil, err
		}
		s.Type, s.Items, s.ListType = "array", items, "atomic"
	case t.Kind() == reflect.Struct:
		s.Type = "object"
		if err := b.fields(s, t); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("%s: there is no schema for the Go type %s", key, t)
	}
	b.docs.describe(s, t)
	return s, b.applyLimit(s, key)
}

// fields adds the fields of a struct, and those of the structs that it embeds.
func (b *builder) fields(s *schema, t reflect.Type) error {
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			if err := b.fields(s, f.Type); err != nil {
				return err
			}
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		key := t.Name() + "." + name
		field, err := b.schema(f.Type, key)
		if err != nil {
			return err
		}
		if text := b.docs.fieldText(t, f.Name); text != "" && b.limits[key].About == "" {
			field.Description = text
		}
		s.Properties = append(s.Properties, pair{name, field})
		if !strings.HasPrefix(options, "omit") && f.Type != reflect.TypeFor[pool.Meta]() {
			s.Required = append(s.Required, name)
		}
	}
	return nil
}

// applyLimit adds what the table has for the key. Without limits, the API refuses the rules: it could not say what they cost.
func (b *builder) applyLimit(s *schema, key string) error {
	if l, ok := b.limits[key]; ok {
		l.apply(s)
		b.used = append(b.used, key)
	}
	switch {
	case s.Type == "string" && s.MaxLength == 0:
		return fmt.Errorf("%s has no MaxLength: add it to the table of limits", key)
	case s.Type == "array" && s.MaxItems == 0:
		return fmt.Errorf("%s has no MaxItems: add it to the table of limits", key)
	}
	return nil
}

// checkUnused returns an error if the table has limits of what does not exist.
func (b *builder) checkUnused() error {
	for key := range b.limits {
		if !slices.Contains(b.used, key) {
			return fmt.Errorf("the table of limits has %s, and pkg/pool has no such field", key)
		}
	}
	return nil
}
