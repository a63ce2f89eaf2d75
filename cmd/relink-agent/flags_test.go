package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// The manual page and the help have the same source.
func TestManualPage(t *testing.T) {
	dir := t.TempDir()
	if out, err := exec.Command("go", "run", "-tags", "man", ".", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	page, err := os.ReadFile(filepath.Join(dir, "relink-agent.8"))
	if err != nil {
		t.Fatal(err)
	}
	parts := []string{".SH NAME", ".SH SYNOPSIS", "One agent runs on each node", "Exit status", "77"}
	var line commandLine
	line.flags().VisitAll(func(f *pflag.Flag) { parts = append(parts, "--"+f.Name) })
	text := strings.ReplaceAll(string(page), `\-`, "-")
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("it lacks %q", part)
		}
	}
}
