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
	// Says replaces the message by one that has values in it.
	Says string `yaml:"messageExpression,omitempty"`
	// Path is the field that the message is about, if it is not this one.
	Path string `yaml:"fieldPath,omitempty"`
}

const (
	longestAddress = 39
	longestPrefix  = longestAddress + len("/128")
	longestSpan    = 2*longestAddress + 1
	longestName    = 253 // of an object
	longestUID     = 128
	most           = 64
)

// The patterns of names, as Kubernetes and CNI have them.
const (
	objectName  = `^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	networkName = `^[A-Za-z0-9][A-Za-z0-9_.-]*$`
)

// isDuration is the pattern of a duration, as Go and CEL read it.
const isDuration = `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`

var isAddress = rule{
	Rule:    `isIP(self) && ip.isCanonical(self)`,
	Message: "must be an IP address in its short form, such as 10.3.0.5 or fd00::5",
}

// never is the rule of a value that does not change. instead says what to do.
func never(name, instead string) []rule {
	return []rule{{Rule: `self == oldSelf`, Message: name + " never changes: " + instead}}
}

// limits returns the limits of all fields, by TYPE.FIELD, with the field's name in YAML. [] are the items of a list.
func limits() map[string]limit {
	all := map[string]limit{}
	for _, some := range []map[string]limit{poolLimits, blockLimits, claimLimits, party} {
		maps.Copy(all, some)
	}
	return all
}

// to adds the limits to the schema.
func (l limit) to(s *schema) {
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
