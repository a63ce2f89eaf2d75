package services

import (
	"fmt"
	"slices"
	"strings"
)

// Table is Rows in Markdown.
func Table() string {
	var b strings.Builder
	b.WriteString("| From | To | Answers |")
	for _, k := range Settings {
		fmt.Fprintf(&b, " %s |", k)
	}
	b.WriteString(" Why |\n|---|---|---|---|---|---|---|---|\n")
	for _, r := range Rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", r.From, r.To, r.Backend, strings.Join(r.Seen[:], " | "), r.Why)
	}
	return b.String()
}

// ConditionTable is Conditions in Markdown, but the first.
func ConditionTable() string {
	var b strings.Builder
	b.WriteString("| Condition | Connections |")
	for _, k := range Settings {
		fmt.Fprintf(&b, " %s |", k)
	}
	b.WriteString(" Why |\n|---|---|---|---|---|---|---|\n")
	for _, c := range Conditions[1:] {
		if c.Differs == nil {
			fmt.Fprintf(&b, "| %s | nothing differs | | | | | %s |\n", c.title(), c.Why)
		}
		for _, seen := range c.seen() {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", c.title(), c.Which, strings.Join(seen[:], " | "), c.Why)
		}
	}
	return b.String()
}

// title is the name, and what the condition is only for.
func (c Condition) title() string {
	title := c.Name
	if c.Mode != "" {
		title += " (kube-proxy's mode " + c.Mode + ")"
	}
	if c.IPv4 {
		title += " (IPv4 only)"
	}
	return title
}

// seen is what the server sees in the rows that differ: each once.
func (c Condition) seen() (all []Seen) {
	for _, r := range Rows {
		if c.Differs == nil {
			break
		}
		if seen, differs := c.Differs(r); differs && seen != r.Seen && !slices.Contains(all, seen) {
			all = append(all, seen)
		}
	}
	return all
}
