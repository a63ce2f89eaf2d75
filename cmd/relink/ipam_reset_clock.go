package main

import (
	"time"

	"github.com/spf13/cobra"
)

func newIPAMResetClock(dir *leaseDir, v *verbosity) *cobra.Command {
	var network string
	cmd := &cobra.Command{
		Use:   "reset-clock --network NETWORK",
		Short: "Set the time of a network's leases to the time of day",
		Long: `Set the time of a network's leases to the time of day. Their time goes on with the time since
the boot, whatever the clock is set to meanwhile, and from one boot to the next it never goes
back. So a clock that was years ahead at a boot leaves it ahead, and reservations that are
bounded would end years too late. A clock that was behind leaves it behind, and they would end too
early at the next boot. What is reserved or in quarantine lasts from now on as long as it still had
to. See that the clock is right first.
Exit status 0: it is set; 2: usage or environment.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, err := dir.open(network)
			if err != nil {
				return err
			}
			if _, err := dir.networks(network); err != nil {
				return err
			}
			ahead, err := store.ResetClock(cmd.Context())
			if err != nil {
				return err
			}
			if ahead.Abs() < time.Second {
				screenOf(cmd, v).say("the time of network %s is the clock's already", network)
				return nil
			}
			which := "ahead of"
			if ahead < 0 {
				ahead, which = -ahead, "behind"
			}
			screenOf(cmd, v).say("the time of network %s was %s %s the clock, and is the clock's now", network, ahead.Round(time.Second), which)
			return nil
		},
	}
	addNetwork(cmd, &network, "the `network` whose time to set")
	return cmd
}
