package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newIPAMResetMachine(dir *leaseDir) *cobra.Command {
	var network string
	cmd := &cobra.Command{
		Use:   "reset-machine --network NETWORK",
		Short: "Say that a network's leases are this machine's and this cluster's",
		Long: `Say that a network's leases are this machine's and this cluster's. The leases keep the machine ID
of the machine that wrote them, and the cluster whose API knows their owners. On a machine with
another ID, relink gives nothing from them: they may be a copy, as in an image of a node's disk,
and the machine that it was made from gives the same addresses. You need this verb only if the
node is the same and its machine ID has changed, or if the node has joined another cluster for
good. On a copy, remove the file that the message names instead.

You need it, too, if only the Node object was deleted and made again, and the machine has booted.

Exit status 0: it is so; 2: usage or environment.`,
		Example:           `  relink ipam reset-machine --network lan`,
		Args:              exactArgs(),
		ValidArgsFunction: completeArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := screenOf(cmd)
			store, err := dir.openExisting(network)
			if err != nil {
				return err
			}
			changed, err := store.ResetMachine(cmd.Context())
			if err != nil {
				return err
			}
			if !changed {
				s.info(fmt.Sprintf("the leases of network %s are this machine's already", network))
				return nil
			}
			s.info(fmt.Sprintf("the leases of network %s are this machine's now", network))
			return nil
		},
	}
	addNetwork(cmd, dir, &network, "the `network` whose leases are this machine's")
	return cmd
}
