package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/netstate"
)

// outputFlag is the name of the flag with the format of the output.
const outputFlag = "output"

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

// addOutput adds --output to the command. The verb's formats are table, json, yaml and those in additional.
func addOutput(cmd *cobra.Command, additional ...string) {
	words := slices.Concat([]string{formatTable}, additional, []string{formatJSON, formatYAML})
	addChoice(cmd, &choiceFlag{name: formatTable}, outputFlag, "o", "format", "output `format`: "+choiceText(words), words...)
}

// addCacheDir adds --cni-cache to the command. Before the command runs, it refuses a directory that the user named and that does not
// exist: without it, every sandbox would go without its name. The first ADD makes the default directory.
func addCacheDir(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "cni-cache", cnicache.DefaultDir, "`directory` of the CNI caches (of libcni and Multus), which name the pods")
	must(cmd.MarkFlagDirname("cni-cache"))
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if !cmd.Flags().Changed("cni-cache") {
			return nil
		}
		if err := checkDirectory(*dir); err != nil {
			return fmt.Errorf("invalid --cni-cache: %w", err)
		}
		return nil
	}
}

// wide reports whether a table has all its columns.
func (s *screen) wide() bool { return s.format == formatWide }

// isData says that the output is for programs.
func (s *screen) isData() bool { return s.format == formatJSON || s.format == formatYAML }

// writeData writes v for programs.
func (s *screen) writeData(v any) error {
	if s.format == formatYAML {
		return writeYAML(s.out, v)
	}
	encoder := json.NewEncoder(s.out)
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

// unique returns the list with each text once.
func unique(list []string) []string {
	listed := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(list), func(text string) bool {
		repeated := listed[text]
		listed[text] = true
		return repeated
	})
}

func addressList(addresses []netstate.Address) string {
	return strings.Join(texts(addresses, netstate.Address.String), ",")
}

// someAddresses is the text for a column of a narrow table: the first address, and the number of the others.
func someAddresses(addresses []netstate.Address) string {
	if len(addresses) < 2 {
		return addressList(addresses)
	}
	return fmt.Sprintf("%s +%d", addresses[0], len(addresses)-1)
}

func parentNames(parents []netstate.Device) string {
	return strings.Join(texts(parents, func(d netstate.Device) string { return d.Name }), " < ")
}

// firstParent is the device directly below the interface.
func firstParent(parents []netstate.Device) string {
	if len(parents) == 0 {
		return ""
	}
	return parents[0].Name
}
