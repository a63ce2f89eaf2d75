package cli

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// outputFlag is the name of the flag with the format of the output.
const outputFlag = "output"

// The values of --output.
const (
	FormatTable = "table"
	FormatWide  = "wide"
	formatJSON  = "json"
	formatYAML  = "yaml"
	FormatName  = "name"
)

// ChoiceFlag is the value of a flag that takes one of several words.
type ChoiceFlag struct {
	Name, kind string
	choices    []string
}

// AddChoice adds a flag that takes one of the words.
func AddChoice(cmd *cobra.Command, f *ChoiceFlag, name, shorthand, kind, usage string, words ...string) {
	f.kind, f.choices = kind, words
	cmd.Flags().VarP(f, name, shorthand, usage)
	Must(cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)))
}

func (f *ChoiceFlag) String() string { return f.Name }

// Type implements pflag.Value.
func (f *ChoiceFlag) Type() string { return f.kind }

// Set takes the flag's value.
func (f *ChoiceFlag) Set(s string) error {
	if !slices.Contains(f.choices, s) {
		return fmt.Errorf("must be %s", choiceText(f.choices))
	}
	f.Name = s
	return nil
}

// choiceText names all words.
func choiceText(words []string) string {
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// AddOutput adds --output to the command. The verb's formats are table, json, yaml and those in additional.
func AddOutput(cmd *cobra.Command, additional ...string) {
	words := slices.Concat([]string{FormatTable}, additional, []string{formatJSON, formatYAML})
	AddChoice(cmd, &ChoiceFlag{Name: FormatTable}, outputFlag, "o", "format", "output `format`: "+choiceText(words), words...)
}

// Wide reports whether a table has all its columns.
func (s *Screen) Wide() bool { return s.Format == FormatWide }

// IsData says that the output is for programs.
func (s *Screen) IsData() bool { return s.Format == formatJSON || s.Format == formatYAML }

// writeData writes v for programs.
func (s *Screen) writeData(v any) error {
	if s.Format == formatYAML {
		return writeYAML(s.Out, v)
	}
	encoder := json.NewEncoder(s.Out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// Must panics on an error that only a mistake in this program can cause.
func Must(err error) {
	if err != nil {
		panic(err)
	}
}

// OrEmpty turns nil into an empty list, for JSON.
func OrEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// Unique returns the list with each text once.
func Unique(list []string) []string {
	listed := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(list), func(text string) bool {
		repeated := listed[text]
		listed[text] = true
		return repeated
	})
}

// Texts returns the text of each element.
func Texts[T any](elements []T, text func(T) string) (list []string) {
	for _, element := range elements {
		list = append(list, text(element))
	}
	return list
}

// Strings returns each element as its String method says it.
func Strings[T fmt.Stringer](elements []T) []string { return Texts(elements, T.String) }

// Present prints a report for programs or for people. It returns ErrDiffers unless everything is as it should be.
func (s *Screen) Present(report any, complete bool, print func()) error {
	if !s.IsData() {
		print()
	} else if err := s.writeData(report); err != nil {
		return err
	}
	if !complete {
		return ErrDiffers
	}
	return nil
}

// Show presents a report, by write for people. err says why there is none.
func Show[R any](s *Screen, report R, err error, complete bool, write func(R, *Screen)) error {
	if err != nil {
		return err
	}
	return s.Present(report, complete, func() { write(report, s) })
}

// ParseAddress parses an argument as an address.
func ParseAddress(s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return a, fmt.Errorf("invalid address %q: give an IP address such as 10.3.0.5 or fd00:3::5", s)
	}
	return a.Unmap(), nil
}

// ReportDifference reports an error about the node, not about the command line. Of nil there is nothing to report.
func ReportDifference(s *Screen, err error) error {
	if err == nil {
		return nil
	}
	PrintError(s.Err, err)
	return ErrDiffers
}

// TimeCell is a time in a table, or empty for the zero time.
func TimeCell(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.RFC3339)
}
