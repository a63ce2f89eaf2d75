package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/relink-cni/relink/pkg/printable"
)

// written returns the table as a screen shows it.
func written(t *Table, colour bool, width int) string {
	var b bytes.Buffer
	t.Write(&Screen{Out: &printable.Writer{Output: &b}, Err: &b, Colour: colour, Width: width, StateColour: func(state string) Paint { return map[string]Paint{"as recorded": Green, "failed": Red}[state] }})
	return b.String()
}

func pods() *Table {
	t := NewTable("POD | SANDBOX:wide | MAC:2 | ADDRESS:1 | STATE | WHY")
	t.Row("shop/web-0", "4f1c2ab0d6e91aa", "0a:00:00:00:00:01", "10.3.0.2/24", "as recorded", "")
	t.Row("lab/db", "77d0", "0a:00:00:00:00:02", "10.3.0.3/24", "failed", "the parent eth1 is gone from the host, and nothing was done")
	return t
}

func TestATableFitsTheTerminal(t *testing.T) {
	for name, test := range map[string]struct {
		wide, verbose bool
		width         int
		want          string
	}{
		"no terminal": {width: 0, want: `
POD         MAC                ADDRESS      STATE        WHY
shop/web-0  0a:00:00:00:00:01  10.3.0.2/24  as recorded  -
lab/db      0a:00:00:00:00:02  10.3.0.3/24  failed       the parent eth1 is gone from the host, and nothing was done
`},
		"the last column is cut": {width: 90, want: `
POD         MAC                ADDRESS      STATE        WHY
shop/web-0  0a:00:00:00:00:01  10.3.0.2/24  as recorded  -
lab/db      0a:00:00:00:00:02  10.3.0.3/24  failed       the parent eth1 is gone from t...
`},
		"a column is left out": {width: 80, want: `
POD         ADDRESS      STATE        WHY
shop/web-0  10.3.0.2/24  as recorded  -
lab/db      10.3.0.3/24  failed       the parent eth1 is gone from the host, ...
`},
		"all that can be left out": {width: 50, want: `
POD         STATE        WHY
shop/web-0  as recorded  -
lab/db      failed       the parent eth1 is gon...
`},
		"a wide table has all": {wide: true, width: 90, want: `
POD         SANDBOX          MAC                ADDRESS      STATE        WHY
shop/web-0  4f1c2ab0d6e91aa  0a:00:00:00:00:01  10.3.0.2/24  as recorded  -
lab/db      77d0             0a:00:00:00:00:02  10.3.0.3/24  failed       the parent eth1 is gone from the host, and nothing was done
`},
		"a verbose screen cuts nothing": {verbose: true, width: 50, want: `
POD         MAC                ADDRESS      STATE        WHY
shop/web-0  0a:00:00:00:00:01  10.3.0.2/24  as recorded  -
lab/db      0a:00:00:00:00:02  10.3.0.3/24  failed       the parent eth1 is gone from the host, and nothing was done
`},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			format := FormatTable
			if test.wide {
				format = FormatWide
			}
			pods().Write(&Screen{Verbosity: Verbosity{Verbose: test.verbose}, Out: &b, Err: &b, Format: format, Width: test.width})
			got := b.String()
			if diff := cmp.Diff(strings.TrimPrefix(test.want, "\n"), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestALongCellMakesNoOtherRowLong(t *testing.T) {
	table := NewTable("POD | ADDRESS | STATE")
	table.Row("shop/web-0", strings.Repeat("10.3.0.2/24,", 4096), "as recorded")
	table.Row("lab/db", "10.3.0.3/24", "failed")
	for _, line := range strings.SplitAfter(written(table, false, 0), "\n") {
		if !strings.HasPrefix(line, "shop/web-0") && len(line) > 300 {
			t.Errorf("%d bytes: %s", len(line), strings.Join(strings.Fields(line), " "))
		}
	}
}

// No line is wider than the terminal if the terminal has room for the columns that always stay.
func TestNoLineIsWiderThanTheTerminal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.IntRange(50, 200).Draw(t, "width")
		table := NewTable("POD | MAC:1 | WHY")
		for range rapid.IntRange(1, 5).Draw(t, "rows") {
			table.Row(rapid.StringMatching(`[a-z]{0,20}`).Draw(t, "pod"), rapid.StringMatching(`[a-z]{0,40}`).Draw(t, "mac"), rapid.String().Draw(t, "why"))
		}
		for line := range strings.Lines(written(table, false, width)) {
			if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > width {
				t.Fatalf("%d columns on %d: %s", n, width, line)
			}
		}
	})
}

// All colours are relink's own. A name that a pod has chosen cannot add any.
func TestColours(t *testing.T) {
	table := NewTable("POD | STATE")
	table.Row("shop/\x1b[31mweb", "as recorded")
	table.Row("lab/db", "failed")
	want := "POD                STATE\nshop/\\u001b[31mweb  \x1b[32mas recorded\x1b[0m\nlab/db             \x1b[31mfailed\x1b[0m\n"
	if got := written(table, true, 0); strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
		t.Errorf("%q", got)
	}
	if got := written(table, false, 0); strings.Contains(got, "\x1b") {
		t.Errorf("%q", got)
	}
}
