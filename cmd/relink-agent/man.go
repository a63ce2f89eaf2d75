//go:build man

package main

import (
	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/cmd/internal/manual"
)

// make man runs it.
func init() {
	var line commandLine
	page := &cobra.Command{
		Use: "relink-agent [flags]", Short: "Restore the interfaces of pods when their NIC is back", Long: about + "\n\n" + statuses,
		DisableFlagsInUseLine: true, Run: func(*cobra.Command, []string) {},
	}
	page.Flags().AddFlagSet(line.flags())
	manual.Write(page)
}
