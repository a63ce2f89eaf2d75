package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

func newIPAMResetClock(dir *leaseDir, v *verbosity) *cobra.Command {
	var network string
	cmd := &cobra.Command{
		Use:   "reset-clock --network NETWORK",
		Short: "Set the time of a network's leases to the time of day",
		Long: `Set the time of a network's leases to the time of day. Between boots that time only goes
forward, and within a boot it ignores changes of the clock. So a clock that was years ahead
at a boot leaves it ahead: reservations that have an end would end years too late. A clock
that was behind leaves it behind: at the next boot they would end too early. What is
reserved or in quarantine keeps the time that it has left. Make sure that the clock is right
first.

Exit status 0: it is set; 2: usage or environment.`,
		Example:           `  relink ipam reset-clock --network lan`,
		Args:              takes(),
		ValidArgsFunction: eachCompletes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := screenOf(cmd, v)
			store, err := dir.openThere(network)
			if err != nil {
				return err
			}
			ahead, err := store.ResetClock(cmd.Context())
			if err != nil {
				return err
			}
			if ahead.Abs() < time.Second {
				s.inform(fmt.Sprintf("the time of network %s is the clock's already", network))
				return nil
			}
			which := "ahead of"
			if ahead < 0 {
				ahead, which = -ahead, "behind"
			}
			s.inform(fmt.Sprintf("the time of network %s was %s %s the clock, and is the clock's now", network, ahead.Round(time.Second), which))
			return nil
		},
	}
	addNetwork(cmd, dir, &network, "the `network` whose time to set")
	return cmd
}
