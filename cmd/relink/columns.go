package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/netstate"
)

// addCacheDir adds --cni-cache to the command. Before the command runs, it refuses a directory that the user named and that does not
// exist: without it, every sandbox would go without its name. The first ADD makes the default directory.
func addCacheDir(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "cni-cache", cnicache.DefaultDir, "`directory` of the CNI caches (of libcni and Multus), which name the pods")
	cli.Must(cmd.MarkFlagDirname("cni-cache"))
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if !cmd.Flags().Changed("cni-cache") {
			return nil
		}
		if err := checkDirectory(*dir); err != nil {
			return fmt.Errorf("invalid --cni-cache: %w", err)
		}
		return nil
	}
}

func addressList(addresses []netstate.Address) string {
	return strings.Join(cli.Strings(addresses), ",")
}

// someAddresses is the text for a column of a narrow table: the first address, and the number of the others.
func someAddresses(addresses []netstate.Address) string {
	if len(addresses) < 2 {
		return addressList(addresses)
	}
	return fmt.Sprintf("%s +%d", addresses[0], len(addresses)-1)
}

func parentNames(parents []netstate.Device) string {
	return strings.Join(cli.Texts(parents, func(d netstate.Device) string { return d.Name }), " < ")
}

// firstParent is the device directly below the interface.
func firstParent(parents []netstate.Device) string {
	if len(parents) == 0 {
		return ""
	}
	return parents[0].Name
}
