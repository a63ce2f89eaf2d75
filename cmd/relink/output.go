package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/netstate"
)

// The values of --output.
const (
	formatTable = "table"
	formatWide  = "wide"
	formatJSON  = "json"
	formatYAML  = "yaml"
	formatName  = "name"
)

// choiceFlag is the value of a flag that takes one of several words.
type choiceFlag struct {
	name, kind string
	choices    []string
}

// addChoice adds a flag that takes one of the words.
func addChoice(cmd *cobra.Command, f *choiceFlag, name, shorthand, kind, usage string, words ...string) {
	f.kind, f.choices = kind, words
	cmd.Flags().VarP(f, name, shorthand, usage)
	must(cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
}

func (f *choiceFlag) String() string { return f.name }
func (f *choiceFlag) Type() string   { return f.kind }

// Set takes the flag's value.
func (f *choiceFlag) Set(s string) error {
	if !slices.Contains(f.choices, s) {
		return fmt.Errorf("must be %s", choiceText(f.choices))
	}
	f.name = s
	return nil
}

// choiceText names all words.
func choiceText(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// format is the value of --output, one of those that the verb has.
type format struct{ choiceFlag }

// addOutput adds --output to the command. The verb's formats are table, json, yaml and those in additional.
func addOutput(cmd *cobra.Command, f *format, additional ...string) {
	words := slices.Concat([]string{formatTable}, additional, []string{formatJSON, formatYAML})
	f.name = formatTable
	addChoice(cmd, &f.choiceFlag, "output", "o", "format", "output `format`: "+choiceText(words), words...)
}

// addCacheDir adds --cni-cache to the command, and refuses a wrong one before the command runs.
func addCacheDir(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "cni-cache", cnicache.DefaultDir, "`directory` of the CNI caches (of libcni and Multus), which name the pods")
	must(cmd.MarkFlagDirname("cni-cache"))
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return checkCacheDir(cmd, *dir) }
}

// wide reports whether a table has all its columns.
func (f format) wide() bool { return f.name == formatWide }

// isData says that the output is for programs.
func (f format) isData() bool { return f.name == formatJSON || f.name == formatYAML }

// write writes v for programs.
func (f format) write(w io.Writer, v any) error {
	if f.name == formatYAML {
		return writeYAML(w, v)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// must panics on an error that only a mistake in this program can cause.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// orEmpty turns nil into an empty list, for JSON.
func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

func addressList(addresses []netstate.Address) string {
	var texts []string
	for _, a := range addresses {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, ",")
}

// someAddresses is the text for a column of a narrow table: the first address, and the number of the others.
func someAddresses(addresses []netstate.Address) string {
	if len(addresses) < 2 {
		return addressList(addresses)
	}
	return fmt.Sprintf("%s +%d", addresses[0], len(addresses)-1)
}

func parentNames(parents []netstate.Device) string {
	var names []string
	for _, p := range parents {
		names = append(names, p.Name)
	}
	return strings.Join(names, " < ")
}

// firstParent is the device directly below the interface.
func firstParent(parents []netstate.Device) string {
	if len(parents) == 0 {
		return ""
	}
	return parents[0].Name
}
