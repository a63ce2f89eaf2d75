package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/pkg/ipam/lease"
)

func newIPAMResetClock(dir *leaseDir) *cobra.Command {
	cmd := newIPAMReset(dir, "the `network` whose time to set", func(ctx context.Context, store *lease.Store) (string, error) {
		ahead, err := store.ResetClock(ctx)
		if ahead.Abs() < time.Second {
			return fmt.Sprintf("the time of network %s is the clock's already", store.Network()), err
		}
		direction := "ahead of"
		if ahead < 0 {
			ahead, direction = -ahead, "behind"
		}
		return fmt.Sprintf("the time of network %s was %s %s the clock, and is the clock's now", store.Network(), ahead.Round(time.Second), direction), err
	})
	cmd.Use, cmd.Short = "reset-clock --network NETWORK", "Set the time of a network's leases to the clock's"
	cmd.Example = `  relink ipam reset-clock --network lan`
	cmd.Long = `Set the time of a network's leases to the clock's. You need it only if the clock was far off at
a boot: relink ipam list reports that. Within a boot this time ignores changes of the clock, and
from one boot to the next it only goes forward. So a clock that was years ahead at a boot leaves
it ahead, and reservations end too late. A clock that was behind leaves it behind, and at the
next boot reservations end too early. Reservations and quarantines keep the time that they have
left. First make sure that the clock is right.

Exit status 0: it is set; 2: usage or environment.`
	return cmd
}

func newIPAMResetMachine(dir *leaseDir) *cobra.Command {
	cmd := newIPAMReset(dir, "the `network` whose leases are this machine's", func(ctx context.Context, store *lease.Store) (string, error) {
		moment := "now"
		changed, err := store.ResetMachine(ctx)
		if !changed {
			moment = "already"
		}
		return fmt.Sprintf("the leases of network %s are this machine's %s", store.Network(), moment), err
	})
	cmd.Use, cmd.Short = "reset-machine --network NETWORK", "Say that a network's leases are this machine's and this cluster's"
	cmd.Example = `  relink ipam reset-machine --network lan`
	cmd.Long = `Say that a network's leases are this machine's and this cluster's. The leases keep the machine ID
of the machine that wrote them, and the cluster whose API knows their owners. On a machine with
another ID, relink gives nothing from them: they may be a copy, as in an image of a node's disk,
and the machine that it was made from gives the same addresses. You need this verb only if the
node is the same and its machine ID has changed, or if the node has joined another cluster for
good. On a copy, remove the file that the message names instead.

You need it, too, if only the Node object was deleted and made again, and the machine has booted.

Exit status 0: it is so; 2: usage or environment.`
	return cmd
}

// newIPAMReset returns a verb that sets something of one store, and says what.
func newIPAMReset(dir *leaseDir, usage string, reset func(context.Context, *lease.Store) (string, error)) *cobra.Command {
	var network string
	cmd := &cobra.Command{
		Args:              takes(0, 0),
		ValidArgsFunction: completeArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, err := dir.open(network)
			if err == nil {
				_, err = dir.stores(network) // The network must have leases.
			}
			if err != nil {
				return err
			}
			text, err := reset(cmd.Context(), store)
			if err == nil {
				screenOf(cmd).info(text)
			}
			return err
		},
	}
	addNetwork(cmd, dir, &network, usage)
	return cmd
}
