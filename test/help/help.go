// Package help looks whether the verbs of a command say how to use them.
package help

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Verbs calls f for each verb of relink's own.
func Verbs(cmd *cobra.Command, f func(*cobra.Command)) {
	for _, c := range cmd.Commands() {
		if c.Name() == "completion" || c.Name() == "help" {
			continue
		}
		f(c)
		Verbs(c, f)
	}
}

// Check says of which verbs the help does not say how to use it or what its exit status means. There are so many verbs at least.
func Check(t *testing.T, newRoot func() *cobra.Command, atLeast int) {
	t.Helper()
	seen := 0
	Verbs(newRoot(), func(c *cobra.Command) {
		seen++
		name := c.CommandPath()
		if c.Short == "" || strings.HasSuffix(c.Short, ".") || len(c.Short) > 90 {
			t.Errorf("%s: its short help is %q", name, c.Short)
		}
		if !strings.Contains(c.Long, "Exit status") {
			t.Errorf("%s: its help does not say what its exit status means", name)
		}
		if !strings.Contains(c.Example, "  "+name) {
			t.Errorf("%s: its help has no example", name)
		}
		for line := range strings.Lines(c.Long + "\n" + c.Example) {
			if len(line) > 100 {
				t.Errorf("%s: a line of its help is wider than a terminal: %s", name, line)
			}
		}
	})
	if seen < atLeast {
		t.Errorf("only %d verbs", seen)
	}
}

// CheckExamples says which example in a help text the program does not accept as a command line.
func CheckExamples(t *testing.T, newRoot func() *cobra.Command) {
	t.Helper()
	program := strings.Fields(newRoot().CommandPath())
	check := func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			line, _, _ = strings.Cut(line, " #")
			for part := range strings.SplitSeq(line, "|") {
				words := strings.Fields(part)
				if len(words) < len(program) || strings.Join(words[:len(program)], " ") != strings.Join(program, " ") {
					continue
				}
				found, rest, err := newRoot().Find(words[len(program):])
				if err == nil {
					err = found.ParseFlags(rest)
				}
				if err == nil {
					err = found.ValidateArgs(found.Flags().Args())
				}
				if err != nil || found.HasSubCommands() {
					t.Errorf("%s: %v", strings.TrimSpace(part), err)
				}
			}
		}
	}
	root := newRoot()
	check(root)
	Verbs(root, check)
}
