package main

import "maps"

// limit is what a value may be, in addition to its type.
type limit struct {
	// About describes what has no comment of its own in Go.
	About                string
	Default              any
	Min, Max             int64
	MinLength, MaxLength int
	Pattern              string
	MinItems, MaxItems   int
	// Key makes the list a map by this key.
	Key   string
	Rules []rule
}

// rule is one that the API checks. One with oldSelf is checked only when an object changes.
type rule struct {
	Rule    string `yaml:"rule"`
	Message string `yaml:"message"`
	// MessageExpression replaces the message by one that has values in it.
	MessageExpression string `yaml:"messageExpression,omitempty"`
	// Path is the field that the message is about, if it is not this one.
	Path string `yaml:"fieldPath,omitempty"`
}

const (
	maxAddress = 39
	maxPrefix  = maxAddress + len("/128")
	maxSpan    = 2*maxAddress + 1
	maxName    = 253 // of an object
	maxUID     = 128
	smallLimit = 64
)

// The patterns of names, as Kubernetes and CNI have them.
const (
	objectName  = `^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	networkName = `^[A-Za-z0-9][A-Za-z0-9_.-]*$`
)

// durationPattern is the pattern of a duration, as Go and CEL read it.
const durationPattern = `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`

var addressRule = rule{
	Rule:    `isIP(self) && ip.isCanonical(self)`,
	Message: "must be an IP address in its short form, such as 10.3.0.5 or fd00::5",
}

// immutable is the rule of a value that does not change. instead says what to do.
func immutable(name, instead string) []rule {
	return []rule{{Rule: `self == oldSelf`, Message: name + " never changes: " + instead}}
}

// limits returns the limits of all fields, by TYPE.FIELD, with the field's name in YAML. [] are the items of a list.
func limits() map[string]limit {
	merged := map[string]limit{}
	for _, table := range []map[string]limit{poolLimits, blockLimits, claimLimits, partyLimits} {
		maps.Copy(merged, table)
	}
	return merged
}

// apply adds the limits to the schema.
func (l limit) apply(s *schema) {
	if l.About != "" {
		s.Description = l.About
	}
	s.Default, s.Pattern, s.Rules = l.Default, l.Pattern, append(s.Rules, l.Rules...)
	if l.Min != 0 {
		s.Minimum = &l.Min
	}
	s.Maximum = max(s.Maximum, l.Max)
	s.MinLength, s.MaxLength = max(s.MinLength, l.MinLength), max(s.MaxLength, l.MaxLength)
	s.MinItems, s.MaxItems = l.MinItems, l.MaxItems
	if l.Key != "" {
		s.ListType, s.ListMapKeys = "map", []string{l.Key}
	}
}
