package cli

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

// Table is a list of rows. The first one has the names of the columns. An empty cell is shown as a dash.
type Table struct {
	Columns []column
	rows    [][]string
}

// NewTable returns a table with the columns of the header, which has | between them. NAME:wide is shown only with -o wide. NAME:1 and
// NAME:2 are left out on a narrow terminal, the one with the greatest number first.
func NewTable(header string) *Table {
	t := &Table{}
	for text := range strings.SplitSeq(header, " | ") {
		name, mark, _ := strings.Cut(text, ":")
		spare, _ := strconv.Atoi(mark)
		t.Columns = append(t.Columns, column{name: name, wide: mark == "wide", spare: spare})
	}
	t.Row(Texts(t.Columns, func(c column) string { return c.name })...)
	return t
}

// Row adds a row with a cell for each column.
func (t *Table) Row(cells ...string) {
	t.rows = append(t.rows, Texts(cells, func(text string) string { return cmp.Or(printable.Line(text), "-") }))
}

// Values is row for values of any type.
func (t *Table) Values(list ...any) {
	t.Row(Texts(list, func(v any) string { return fmt.Sprint(v) })...)
}

// stateColumn is the name of the column that has colours.
const stateColumn = "STATE"

// gap is the space between two columns.
const gap = "  "

// maxPadded is the width of a column above which it is not aligned: a pod can have thousands of addresses, and all rows would be as long.
const maxPadded = 200

// isEmpty says that the table has only the names of its columns.
func (t *Table) isEmpty() bool { return len(t.rows) == 1 }

// Write writes the table, unless it is empty. A terminal that is too narrow gets fewer columns, and less of the last one.
// A wide table is never cut, nor is a table on a verbose screen.
func (t *Table) Write(s *Screen) {
	if t.isEmpty() {
		return
	}
	width := s.Width
	if s.Wide() || s.Verbose {
		width = 0
	}
	shown, widths := t.fit(width, s.Wide())
	var b strings.Builder
	for _, cells := range t.rows {
		line, offset := "", 0
		for n, i := range shown {
			text := cells[i]
			if n == len(shown)-1 {
				text = cut(text, width-offset)
			}
			padding := min(widths[i], maxPadded) - utf8.RuneCountInString(text)
			line += s.cellColour(t.Columns[i].name, cells[i]).apply(s, text) + strings.Repeat(" ", max(padding, 0)) + gap
			offset += widths[i] + len(gap)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	fmt.Fprint(s.Raw(), b.String())
}

// WriteOr writes the table, or that it has no row. A quiet screen shows neither.
func (t *Table) WriteOr(s *Screen, empty string) {
	switch {
	case s.Quiet:
	case t.isEmpty():
		s.Warnf("%s", empty)
	default:
		t.Write(s)
	}
}

// fit returns the columns to show, all of them if wide, and the width of each column. The last one may be cut down to minLastWidth.
func (t *Table) fit(width int, wide bool) (shown []int, widths []int) {
	widths = make([]int, len(t.Columns))
	for i, c := range t.Columns {
		for _, r := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(r[i]))
		}
		if wide || !c.wide {
			shown = append(shown, i)
		}
	}
	for width > 0 && t.minWidth(shown, widths) > width {
		dropped := slices.MaxFunc(shown, func(a, b int) int { return cmp.Compare(t.Columns[a].spare, t.Columns[b].spare) })
		if t.Columns[dropped].spare == 0 {
			break
		}
		shown = slices.DeleteFunc(shown, func(i int) bool { return i == dropped })
	}
	return shown, widths
}

// minLastWidth is the number of characters of the last column that are always shown.
const minLastWidth = 24

// minWidth is the width of the columns if the last one is cut.
func (t *Table) minWidth(shown, widths []int) int {
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
