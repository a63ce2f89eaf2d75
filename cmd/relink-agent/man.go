//go:build man

package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/relink-cni/relink/pkg/cniplugin"
)

// init writes the manual page to the directory on the command line, and ends the process. make man runs it. No release
// contains it.
func init() {
	if err := writeMan(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "relink-agent: write the manual page:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func writeMan(dir string) error {
	var line commandLine
	page := &cobra.Command{
		Use: "relink-agent [flags]", Short: "Restore the interfaces of pods when their NIC is back", Long: about + "\n\n" + statuses,
		DisableFlagsInUseLine: true, DisableAutoGenTag: true, Run: func(*cobra.Command, []string) {},
	}
	page.Flags().AddFlagSet(line.flags())
	// The page of one version is always the same, whenever it is written.
	date := time.Unix(0, 0)
	header := &doc.GenManHeader{Section: "8", Source: "relink " + cniplugin.Version, Manual: "relink", Date: &date}
	return doc.GenManTree(page, header, dir)
}
