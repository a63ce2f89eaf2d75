package main

import (
	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/cmd/internal/cli"
)

func newImport() *cobra.Command {
	var opts capture.Options
	var parent capture.ParentSpec
	cmd := newVerb("import", func(cmd *cobra.Command, args []string) (err error) {
		if opts.Store, err = openStore(cmd); err != nil {
			return err
		}
		report, err := capture.Import(cmd.Context(), opts, args[0], parent)
		return capturedOutcomes(report).present(screenOf(cmd), err)
	})
	cmd.Args = cli.Takes(1, 1)
	flags := cmd.Flags()
	flags.StringSliceVar(&parent.Devices, "parent", nil, "`device` of the host that the lost interfaces were on; of several, the first that exists")
	flags.IntVar(&parent.VLAN, "vlan", 0, "802.1q `VLAN` of that device; 0: the device itself")
	flags.IntVar(&parent.MTU, "mtu", 0, "MTU of the lost interfaces in `bytes`; 0: that of the device they are on")
	flags.BoolVar(&opts.DryRun, "dry-run", false, "print what would be written and why, and write nothing")
	cli.AddOutput(cmd, cli.FormatWide)
	return cmd
}
