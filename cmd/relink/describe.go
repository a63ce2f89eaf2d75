package main

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/relink-cni/relink/pkg/printable"
)

// description is a list of names and values, laid out as kubectl describe does.
type description struct {
	rows [][2]string
}

// row adds a name and its value. It adds nothing if the value is empty.
func (d *description) row(name, value string) {
	if value = printable.Line(value); value != "" {
		d.rows = append(d.rows, [2]string{name, value})
	}
}

// rowf adds a name and a formatted value.
func (d *description) rowf(name, format string, args ...any) {
	d.row(name, fmt.Sprintf(format, args...))
}

// timeRow adds a point in time, unless it is zero.
func (d *description) timeRow(name string, instant time.Time) {
	if !instant.IsZero() {
		d.row(name, instant.Local().Format("2006-01-02 15:04:05 MST"))
	}
}

// list adds a list. Its name stands before the first value.
func (d *description) list(name string, values []string) {
	for _, value := range values {
		d.row(name, value)
		name = ""
	}
}

// write writes the rows, and an empty line.
func (d *description) write(s *screen) {
	width := 0
	for _, r := range d.rows {
		width = max(width, utf8.RuneCountInString(r[0]))
	}
	for _, r := range d.rows {
		s.printf("%s%s%s%s", r[0], strings.Repeat(" ", width-utf8.RuneCountInString(r[0])), gap, r[1])
	}
	s.printf("")
}
