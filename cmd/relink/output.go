package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
)

// format is the value of --output.
type format string

const (
	formatTable format = "table"
	formatJSON  format = "json"
)

// addOutput adds --output to the command.
func addOutput(cmd *cobra.Command, f *format) {
	*f = formatTable
	cmd.Flags().VarP(f, "output", "o", "output `format`: table or json")
}

// addCacheDir adds --cni-cache to the command.
func addCacheDir(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "cni-cache", cnicache.DefaultDir, "`directory` of the caches of libcni and Multus, which name the pods")
}

func (f *format) String() string { return string(*f) }
func (f *format) Type() string   { return "format" }

// Set takes the flag's value.
func (f *format) Set(s string) error {
	switch format(s) {
	case formatTable, formatJSON:
		*f = format(s)
		return nil
	}
	return fmt.Errorf("must be %s or %s", formatTable, formatJSON)
}

// say writes one line, whatever is in it: much of what relink says has names in it that
// a pod has chosen. All that is not JSON or a table goes through here.
func say(w io.Writer, format string, args ...any) {
	fmt.Fprintln(w, printable.Line(fmt.Sprintf(format, args...)))
}

// sayError says all of an error on one line.
func sayError(w io.Writer, err error) {
	say(w, "relink: %s", strings.ReplaceAll(err.Error(), "\n", "; "))
}

func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// table writes rows in columns. An empty cell is a dash.
type table struct {
	w *tabwriter.Writer
}

func newTable(w io.Writer, header ...string) *table {
	t := &table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.row(header...)
	return t
}

func (t *table) row(cells ...string) {
	for i, cell := range cells {
		cells[i] = cmp.Or(printable.Line(cell), "-")
	}
	fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

func (t *table) flush() error { return t.w.Flush() }

// shortID is how much of a container ID a table shows, as crictl does.
func shortID(id string) string {
	const shown = 13
	if len(id) > shown {
		return id[:shown]
	}
	return id
}

func addressList(addresses []netstate.Address) string {
	var all []string
	for _, a := range addresses {
		all = append(all, a.String())
	}
	return strings.Join(all, ",")
}

func parentNames(parents []netstate.Device) string {
	var all []string
	for _, p := range parents {
		all = append(all, p.Name)
	}
	return strings.Join(all, " < ")
}
