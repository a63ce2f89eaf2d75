package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/test/help"
)

func TestHelp(t *testing.T) {
	help.Check(t, newRoot, 15)
	help.CheckExamples(t, newRoot)
}

// The manual pages have the same source as the help.
func TestManualPages(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("go", "run", "-tags", "man", ".", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	help.Verbs(newRoot(), func(c *cobra.Command) {
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
