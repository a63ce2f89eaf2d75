package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/relink-cni/relink/pkg/printable"
)

// Description is a list of names and values, laid out as kubectl describe does.
type Description struct {
	rows [][2]string
}

// Add adds names, each before its value. It leaves out those whose value is empty.
func (d *Description) Add(pairs ...string) {
	for pair := range slices.Chunk(pairs, 2) {
		if value := printable.Line(pair[1]); value != "" {
			d.rows = append(d.rows, [2]string{pair[0], value})
		}
	}
}

// Addf adds a name and a formatted value.
func (d *Description) Addf(name, format string, args ...any) {
	d.Add(name, fmt.Sprintf(format, args...))
}

// AddTime adds a point in time, unless it is zero.
func (d *Description) AddTime(name string, instant time.Time) {
	if !instant.IsZero() {
		d.Add(name, instant.Local().Format("2006-01-02 15:04:05 MST"))
	}
}

// AddList adds a list. Its name stands before the first value.
func (d *Description) AddList(name string, values []string) {
	for _, value := range values {
		d.Add(name, value)
		name = ""
	}
}

// Write writes the rows, and an empty line.
func (d *Description) Write(s *Screen) {
	width := 0
	for _, r := range d.rows {
		width = max(width, utf8.RuneCountInString(r[0]))
	}
	for _, r := range d.rows {
		s.Printf("%s%s%s%s", r[0], strings.Repeat(" ", width-utf8.RuneCountInString(r[0])), gap, r[1])
	}
	s.Printf("")
}
