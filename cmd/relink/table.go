package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/relink-cni/relink/pkg/printable"
)

// column is one column of a table.
type column struct {
	name string
	// wide columns are shown only with -o wide.
	wide bool
	// spare columns are left out on a narrow terminal. A column with 0 always stays.
	spare int
}

// table is a list of rows. The first one has the names of the columns. An empty cell is shown as a dash.
type table struct {
	columns []column
	rows    [][]cell
}

// cell is printable text in a colour.
type cell struct {
	text   string
	colour paint
}

// newTable returns a table with the columns of the header, which has | between them. NAME:wide is shown only with -o wide. NAME:1 and
// NAME:2 are left out on a narrow terminal, the one with the greatest number first.
func newTable(header string) *table {
	t := &table{}
	for text := range strings.SplitSeq(header, " | ") {
		name, mark, _ := strings.Cut(text, ":")
		spare, _ := strconv.Atoi(mark)
		t.columns = append(t.columns, column{name: name, wide: mark == "wide", spare: spare})
	}
	t.row(texts(t.columns, func(c column) string { return c.name })...)
	return t
}

// row adds a row with a cell for each column.
func (t *table) row(cells ...string) {
	row := make([]cell, len(cells))
	for i, text := range cells {
		row[i].text = cmp.Or(printable.Line(text), "-")
		if t.columns[i].name == stateColumn {
			row[i].colour = stateColour(text)
		}
	}
	t.rows = append(t.rows, row)
}

// values is row for values of any type.
func (t *table) values(list ...any) {
	t.row(texts(list, func(v any) string { return fmt.Sprint(v) })...)
}

// stateColumn is the name of the column that has colours.
const stateColumn = "STATE"

// gap is the space between two columns.
const gap = "  "

// maxPadded is the width of a column above which it is not aligned: a pod can have thousands of addresses, and all rows would be as long.
const maxPadded = 200

// isEmpty says that the table has only the names of its columns.
func (t *table) isEmpty() bool { return len(t.rows) == 1 }

// write writes the table, unless it is empty. A terminal that is too narrow gets fewer columns, and less of the last one.
// A wide table is never cut, nor is a table on a verbose screen.
func (t *table) write(s *screen) {
	if t.isEmpty() {
		return
	}
	width := s.width
	if s.wide() || s.verbose {
		width = 0
	}
	shown, widths := t.fit(width, s.wide())
	var b strings.Builder
	for _, cells := range t.rows {
		line, offset := "", 0
		for n, i := range shown {
			text := cells[i].text
			if n == len(shown)-1 {
				text = cut(text, width-offset)
			}
			padding := min(widths[i], maxPadded) - utf8.RuneCountInString(text)
			line += cells[i].colour.apply(s, text) + strings.Repeat(" ", max(padding, 0)) + gap
			offset += widths[i] + len(gap)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	fmt.Fprint(s.raw(), b.String())
}

// writeOr writes the table, or that it has no row. A quiet screen shows neither.
func (t *table) writeOr(s *screen, empty string) {
	switch {
	case s.quiet:
	case t.isEmpty():
		s.warnf("%s", empty)
	default:
		t.write(s)
	}
}

// fit returns the columns to show, all of them if wide, and the width of each column. The last one may be cut down to minLastWidth.
func (t *table) fit(width int, wide bool) (shown []int, widths []int) {
	widths = make([]int, len(t.columns))
	for i, c := range t.columns {
		for _, r := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(r[i].text))
		}
		if wide || !c.wide {
			shown = append(shown, i)
		}
	}
	for width > 0 && t.minWidth(shown, widths) > width {
		dropped := slices.MaxFunc(shown, func(a, b int) int { return cmp.Compare(t.columns[a].spare, t.columns[b].spare) })
		if t.columns[dropped].spare == 0 {
			break
		}
		shown = slices.DeleteFunc(shown, func(i int) bool { return i == dropped })
	}
	return shown, widths
}

// minLastWidth is the number of characters of the last column that are always shown.
const minLastWidth = 24

// minWidth is the width of the columns if the last one is cut.
func (t *table) minWidth(shown, widths []int) int {
	total := 0
	for _, i := range shown[:len(shown)-1] {
		total += widths[i] + len(gap)
	}
	return total + min(minLastWidth, widths[shown[len(shown)-1]])
}

// cut shortens the text to width characters, if there is a limit.
func cut(text string, width int) string {
	const dots = "..."
	if width <= len(dots) || utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-len(dots)]) + dots
}
