package main

import (
	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/capture"
)

func newImport() *cobra.Command {
	var opts capture.Options
	var parent capture.ParentSpec
	cmd := &cobra.Command{
		Use:   "import DIR --parent DEVICE[,DEVICE...] [--vlan ID]",
		Short: "Write checkpoints of the pods that i40e_net_fix remembers",
		Long: `Write checkpoints of the pods that the tool i40e_net_fix remembers, so that relink restore can
bring them back. DIR has that tool's files. An interface that is there with the file's MAC and
addresses is recorded as it is. An interface that is gone is recorded from the file, as a
macvlan on --parent or on its VLAN. A file is refused if its sandbox may be another pod's now.

A checkpoint that is there stays as it is, so you can run import again. If you named the wrong
--parent or --vlan, drop the checkpoints with relink forget, and run it again.

Exit status 0: every pod has its checkpoint; 1: one has none, and the output names it; 2: usage
or environment.`,
		Example: `  relink import /var/lib/i40e_net_fix --parent bond4 --vlan 3 --dry-run
  relink import /var/lib/i40e_net_fix --parent bond4,eth0 --vlan 3`,
		Args: takes(1, 1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if opts.Store, err = openStore(cmd); err != nil {
				return err
			}
			report, err := capture.Import(cmd.Context(), opts, args[0], parent)
			return capturedOutcomes(report).present(screenOf(cmd), err)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&parent.Devices, "parent", nil, "`device` of the host that the lost interfaces were on; of several, the first that exists")
	flags.IntVar(&parent.VLAN, "vlan", 0, "802.1q `VLAN` of that device; 0: the device itself")
	flags.IntVar(&parent.MTU, "mtu", 0, "MTU of the lost interfaces in `bytes`; 0: that of the device they are on")
	flags.BoolVar(&opts.DryRun, "dry-run", false, "print what would be written and why, and write nothing")
	addOutput(cmd, formatWide)
	return cmd
}
