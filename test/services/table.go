package services

import (
	"fmt"
	"slices"
	"strings"
)

// Table is Rows in Markdown. Rows that differ only in who answers are one, and then those that differ only in what is asked.
func Table() string {
	var b strings.Builder
	b.WriteString("| From | To | Answers |")
	for _, k := range Settings {
		fmt.Fprintf(&b, " %s |", k)
	}
	b.WriteString(" Why |\n|---|---|---|---|---|---|---|---|\n")
	var rows [][]string
	for _, r := range Rows {
		rows = append(rows, slices.Concat([]string{r.From, r.To, r.Backend}, r.Seen[:], []string{r.Why}))
	}
	for _, cells := range merge(merge(rows, 2), 1) {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	return b.String()
}

// merge joins the rows that differ only in that column.
func merge(rows [][]string, column int) (merged [][]string) {
	others := func(row []string) []string { return slices.Concat(row[:column], row[column+1:]) }
	for _, row := range rows {
		i := slices.IndexFunc(merged, func(m []string) bool { return slices.Equal(others(m), others(row)) })
		if i < 0 {
			merged = append(merged, row)
		} else {
			merged[i][column] += "; " + row[column]
		}
	}
	return merged
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
