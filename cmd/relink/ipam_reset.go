package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

func newIPAMResetClock(dir *leaseDir) *cobra.Command {
	return newIPAMReset("ipam-reset-clock", dir, "the `network` whose time to set", func(ctx context.Context, store *lease.Store) (string, error) {
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
}

func newIPAMResetMachine(dir *leaseDir) *cobra.Command {
	return newIPAMReset("ipam-reset-machine", dir, "the `network` whose leases are this machine's", func(ctx context.Context, store *lease.Store) (string, error) {
		moment := "now"
		changed, err := store.ResetMachine(ctx)
		if !changed {
			moment = "already"
		}
		return fmt.Sprintf("the leases of network %s are this machine's %s", store.Network(), moment), err
	})
}

// newIPAMReset returns a verb that sets something of one store, and says what.
func newIPAMReset(name string, dir *leaseDir, usage string, reset func(context.Context, *lease.Store) (string, error)) *cobra.Command {
	var network string
	cmd := newVerb(name, func(cmd *cobra.Command, _ []string) error {
		store, err := dir.open(network)
		if err == nil {
			_, err = dir.stores(network) // The network must have leases.
		}
		if err != nil {
			return err
		}
		text, err := reset(cmd.Context(), store)
		if err == nil {
			screenOf(cmd).Info(text)
		}
		return err
	})
	cmd.ValidArgsFunction = cli.CompleteArgs()
	addNetwork(cmd, dir, &network, usage)
	return cmd
}
