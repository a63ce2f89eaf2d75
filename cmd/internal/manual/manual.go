//go:build man

package manual

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/relink-cni/relink/pkg/cniplugin"
)

// Write writes the pages of a command and its verbs to the directory on the command line, and ends the process.
func Write(root *cobra.Command) {
	root.DisableAutoGenTag = true
	// The pages of one version are always the same, whenever they are written.
	date := time.Unix(0, 0)
	header := &doc.GenManHeader{Section: "8", Source: "relink " + cniplugin.Version, Manual: "relink", Date: &date}
	dir := os.Args[1]
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		err = doc.GenManTree(root, header, dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "relink: write the manual pages:", err)
		os.Exit(1)
	}
	os.Exit(0)
}
