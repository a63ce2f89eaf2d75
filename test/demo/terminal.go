package main

import (
	"fmt"
	"html"
	"regexp"
	"strings"
)

const (
	// columns is where a line goes on in the next one, as in a terminal.
	columns = 150
	// cell and row are the size of a character, margin and bar what is around all of them, in pixels.
	cell, row, margin, bar = 7.2, 17, 16, 30
)

// The colours of the picture: its ground, its text, a title and a command.
const (
	ground = "#0d1117"
	normal = "#c9d1d9"
	title  = "#79c0ff"
	prompt = "#7ee787"
)

var escape = regexp.MustCompile("\x1b\\[([0-9]*)m")

// terminal draws what a program printed to a terminal as an SVG: bold text as a title, lines that begin with "$ " after spaces
// as commands. Other escape sequences than those of bold are left out.
func terminal(output string) string {
	var rows []string
	for line := range strings.SplitSeq(strings.Trim(output, "\n"), "\n") {
		line = strings.TrimRight(line, " \r")
		colour := normal
		switch {
		case strings.Contains(line, "\x1b[1m"):
			colour = title
		case strings.HasPrefix(strings.TrimLeft(line, " "), "$ "):
			colour = prompt
		}
		for _, part := range wrap([]rune(escape.ReplaceAllString(line, ""))) {
			rows = append(rows, text(len(rows), part, colour))
		}
	}
	width, height := 2*margin+columns*cell, bar+2*margin+row*len(rows)
	return fmt.Sprintf(`<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" viewBox="0 0 %[1]g %[2]d">
<rect width="100%%" height="100%%" rx="8" fill="%s"/>
<circle cx="18" cy="16" r="6" fill="#ff5f56"/><circle cx="38" cy="16" r="6" fill="#ffbd2e"/><circle cx="58" cy="16" r="6" fill="#27c93f"/>
<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="12" style="white-space: pre">
%s
</g>
</svg>
`, width, height, ground, strings.Join(rows, "\n"))
}

// wrap cuts a line where the terminal would.
func wrap(line []rune) []string {
	var parts []string
	for len(line) > columns {
		parts = append(parts, string(line[:columns]))
		line = line[columns:]
	}
	return append(parts, string(line))
}

// text is one line of the picture. Its length is given, so that columns are below each other in any font.
func text(n int, line, colour string) string {
	if line == "" {
		return `<text/>`
	}
	return fmt.Sprintf(`<text x="%d" y="%d" fill="%s" xml:space="preserve" textLength="%.1f" lengthAdjust="spacingAndGlyphs">%s</text>`,
		margin, bar+margin+row*n, colour, cell*float64(len([]rune(line))), html.EscapeString(line))
}
