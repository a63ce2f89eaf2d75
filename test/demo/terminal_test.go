package main

import (
	"encoding/xml"
	"strings"
	"testing"
)

// TestTerminal says that the picture has all of the text and its colours, and is XML.
func TestTerminal(t *testing.T) {
	long := strings.Repeat("x", columns+1)
	picture := terminal("\n\x1b[1m== A & B\x1b[0m\r\n   $ relink <check>\n\n" + long + "\n")
	var svg struct {
		Rows []struct {
			Text   string  `xml:",chardata"`
			Fill   string  `xml:"fill,attr"`
			Length float64 `xml:"textLength,attr"`
		} `xml:"g>text"`
	}
	if err := xml.Unmarshal([]byte(picture), &svg); err != nil {
		t.Fatalf("%v in %s", err, picture)
	}
	want := []struct{ text, fill string }{{"== A & B", title}, {"   $ relink <check>", prompt}, {"", ""}, {long[1:], normal}, {"x", normal}}
	if len(svg.Rows) != len(want) {
		t.Fatalf("%d rows, not %d: %+v", len(svg.Rows), len(want), svg.Rows)
	}
	for i, w := range want {
		if got := svg.Rows[i]; got.Text != w.text || got.Fill != w.fill {
			t.Errorf("row %d: %q in %s, not %q in %s", i, got.Text, got.Fill, w.text, w.fill)
		}
	}
	if got := svg.Rows[3].Length; got != columns*cell {
		t.Errorf("a full row is %g pixels long, not %g", got, columns*cell)
	}
}
