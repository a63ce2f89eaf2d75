package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/relink-cni/relink/pkg/printable"
)

// column is one column of a table.
type column struct {
	name string
	// wide columns are shown by -o wide alone.
	wide bool
	// spare columns are left out of a narrow terminal, those of the greatest number first. 0: never.
	spare int
}

// table is rows in columns. An empty cell is a dash.
type table struct {
	columns []column
	rows    [][]cell
	wide    bool
}

// cell is printable text in a colour.
type cell struct {
	text string
	in   paint
}

// newTable returns a table with all its columns if wide is set.
func newTable(wide bool, columns ...column) *table { return &table{columns: columns, wide: wide} }

// row adds a row with a cell for each column.
func (t *table) row(cells ...string) {
	all := make([]cell, len(cells))
	for i, text := range cells {
		all[i].text = cmp.Or(printable.Line(text), "-")
		if t.columns[i].name == stateColumn {
			all[i].in = stateColour(text)
		}
	}
	t.rows = append(t.rows, all)
}

// stateColumn is the name of the column whose words have colours.
const stateColumn = "STATE"

// gap is between two columns.
const gap = "  "

// write writes the table, if it has a row, as far as it fits on the screen: a terminal that is too narrow gets fewer columns,
// and less of the last one. Of a wide table, or on a verbose screen, nothing is cut.
func (t *table) write(s *screen) {
	if len(t.rows) == 0 {
		return
	}
	width := s.width
	if t.wide || s.verbose {
		width = 0
	}
	shown, widths := t.fit(width)
	var b strings.Builder
	line := func(cells []cell) {
		var l strings.Builder
		left := 0
		for n, i := range shown {
			c := cells[i]
			if last := n == len(shown)-1; last {
				c.text = cut(c.text, width-left)
				l.WriteString(c.in.on(s, c.text))
				continue
			}
			l.WriteString(c.in.on(s, c.text))
			l.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text)) + gap)
			left += widths[i] + len(gap)
		}
		b.WriteString(strings.TrimRight(l.String(), " ") + "\n")
	}
	header := make([]cell, len(t.columns))
	for i, c := range t.columns {
		header[i].text = c.name
	}
	line(header)
	for _, r := range t.rows {
		line(r)
	}
	fmt.Fprint(s.raw(), b.String())
}

// fit returns the columns to show, and the width of each column. The last one may be cut, but not below
// leastLast.
func (t *table) fit(width int) (shown []int, widths []int) {
	widths = make([]int, len(t.columns))
	for i, c := range t.columns {
		widths[i] = len(c.name)
		for _, r := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(r[i].text))
		}
		if t.wide || !c.wide {
			shown = append(shown, i)
		}
	}
	for width > 0 && t.least(shown, widths) > width {
		most := slices.MaxFunc(shown, func(a, b int) int { return cmp.Compare(t.columns[a].spare, t.columns[b].spare) })
		if t.columns[most].spare == 0 {
			break
		}
		shown = slices.DeleteFunc(shown, func(i int) bool { return i == most })
	}
	return shown, widths
}

// leastLast is how much of the last column is shown at least.
const leastLast = 24

// least is how wide the columns are if the last one is cut.
func (t *table) least(shown, widths []int) int {
	total := 0
	for _, i := range shown[:len(shown)-1] {
		total += widths[i] + len(gap)
	}
	return total + min(leastLast, widths[shown[len(shown)-1]])
}

// cut shortens the text to so many columns, if there is a limit.
func cut(text string, width int) string {
	const dots = "..."
	if width <= len(dots) || utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-len(dots)]) + dots
}

// columns returns columns that are all shown everywhere.
func columns(names ...string) []column {
	all := make([]column, len(names))
	for i, name := range names {
		all[i].name = name
	}
	return all
}

// notDone is the line below a table about what was not done. place is where the interface is. What is not known is
// a dash.
func notDone(pod, place, ifName, state, reason string) checkLine {
	return checkLine{
		pod: cmp.Or(pod, "-"), place: cmp.Or(place, "-"), ifName: cmp.Or(ifName, "-"),
		says: strings.ToUpper(state) + ": " + reason,
	}
}
