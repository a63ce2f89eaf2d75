package main

import (
	"embed"
	"strings"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/cmd/internal/cli"
)

// helpTexts has a file for each verb: its usage, what it does in one line, what it does in full, and examples. @naming and @lease-naming stand
// for files, too: what can be named is the same for all verbs that select.
//
//go:embed help
var helpTexts embed.FS

func helpText(name string) string {
	text, err := helpTexts.ReadFile("help/" + name + ".txt")
	cli.Must(err)
	return strings.TrimSpace(string(text))
}

// newVerb returns the verb that has the help text of that name. It takes no arguments unless somebody changes that.
func newVerb(name string, run func(*cobra.Command, []string) error) *cobra.Command {
	usage, text, _ := strings.Cut(helpText(name), "\n")
	short, text, _ := strings.Cut(text, "\n\n")
	long, examples, _ := strings.Cut(text, "\n\nExamples:\n")
	long = strings.NewReplacer("@naming", helpText("naming"), "@lease-naming", helpText("lease-naming")).Replace(long)
	return &cobra.Command{Use: usage, Short: short, Long: long, Example: examples, Args: cli.Takes(0, 0), RunE: run}
}
