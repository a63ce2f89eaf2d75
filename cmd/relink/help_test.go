package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// verbs calls f for each verb of relink's own.
func verbs(cmd *cobra.Command, f func(*cobra.Command)) {
	for _, c := range cmd.Commands() {
		if c.Name() == "completion" || c.Name() == "help" {
			continue
		}
		f(c)
		verbs(c, f)
	}
}

// The help of each verb says how to use it and what its exit status means.
func TestHelpOfEachVerb(t *testing.T) {
	root := newRoot()
	seen := 0
	verbs(root, func(c *cobra.Command) {
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
	if seen < 15 {
		t.Errorf("only %d verbs", seen)
	}
}

// The program accepts each example in a help text as a command line.
func TestExamplesAreTaken(t *testing.T) {
	check := func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			line, _, _ = strings.Cut(line, " #")
			for part := range strings.SplitSeq(line, "|") {
				words := strings.Fields(part)
				if len(words) == 0 || words[0] != "relink" {
					continue
				}
				found, rest, err := newRoot().Find(words[1:])
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
	verbs(root, check)
}

// The manual pages have the same source as the help.
func TestManualPages(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("go", "run", "-tags", "man", ".", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	verbs(newRoot(), func(c *cobra.Command) {
		page, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".8"))
		if err != nil {
			t.Error(err)
			return
		}
		for _, part := range []string{".SH NAME", ".SH SYNOPSIS", "Exit status", ".SH EXAMPLE", c.Short} {
			if !strings.Contains(string(page), part) {
				t.Errorf("the page of %s lacks %q", c.CommandPath(), part)
			}
		}
	})
}
