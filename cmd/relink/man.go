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

// init adds the verb that writes the manual pages. It is in no release: the pages are written by make man.
func init() { extra = append(extra, newMan) }

func newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIR",
		Short:  "Write the manual pages of all verbs to a directory",
		Hidden: true, // The pages are of the verbs that a release has.
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			root := cmd.Root()
			root.DisableAutoGenTag = true
			// The pages of one version are the same, whenever they are written.
			date := time.Unix(0, 0)
			header := &doc.GenManHeader{Section: "8", Source: "relink " + cniplugin.Version, Manual: "relink", Date: &date}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return fmt.Errorf("write the manual pages: %w", err)
			}
			return nil
		},
	}
}
