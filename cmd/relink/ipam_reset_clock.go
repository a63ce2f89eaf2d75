package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

func newIPAMResetClock(dir *leaseDir) *cobra.Command {
	var network string
	cmd := &cobra.Command{
		Use:   "reset-clock --network NETWORK",
		Short: "Set the time of a network's leases to the clock's",
		Long: `Set the time of a network's leases to the clock's. You need it only if the clock was far off at
a boot: relink ipam list reports that. Within a boot this time ignores changes of the clock, and
from one boot to the next it only goes forward. So a clock that was years ahead at a boot leaves
it ahead, and reservations end too late. A clock that was behind leaves it behind, and at the
next boot reservations end too early. Reservations and quarantines keep the time that they have
left. First make sure that the clock is right.

Exit status 0: it is set; 2: usage or environment.`,
		Example:           `  relink ipam reset-clock --network lan`,
		Args:              exactArgs(),
		ValidArgsFunction: completeArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := screenOf(cmd)
			store, err := dir.openExisting(network)
			if err != nil {
				return err
			}
			ahead, err := store.ResetClock(cmd.Context())
			if err != nil {
				return err
			}
			if ahead.Abs() < time.Second {
				s.info(fmt.Sprintf("the time of network %s is the clock's already", network))
				return nil
			}
			direction := "ahead of"
			if ahead < 0 {
				ahead, direction = -ahead, "behind"
			}
			s.info(fmt.Sprintf("the time of network %s was %s %s the clock, and is the clock's now", network, ahead.Round(time.Second), direction))
			return nil
		},
	}
	addNetwork(cmd, dir, &network, "the `network` whose time to set")
	return cmd
}
