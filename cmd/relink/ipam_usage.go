package main

import (
	"context"
	"fmt"
	"math/big"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/pkg/ipam/lease"
)

func newIPAMUsage(dir *leaseDir, v *verbosity) *cobra.Command {
	var output format
	var network string
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show how full the ranges of each network are",
		Long: `Show how full the ranges are that the last ADDs gave addresses of: for each range set how
many addresses it has, and how many of these are held, reserved, in quarantine and free. USED
is the share that is held or reserved: what is in quarantine is given if nothing else is free.
What is not as it should be is said below the table, with what to do.
Exit status 0: all networks could be read; 1: one could not, which is said; 2: usage or
environment.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			networks, err := dir.networks(network)
			if err != nil {
				return err
			}
			return showUsage(cmd.Context(), *dir, networks, output, screenOf(cmd, v))
		},
	}
	addNetwork(cmd, &network, "only of this `network`")
	addOutput(cmd, &output)
	return cmd
}

func showUsage(ctx context.Context, dir leaseDir, networks []string, output format, s *screen) error {
	var all []lease.Usage
	incomplete := dir.eachStore(networks, s, func(store *lease.Store) error {
		u, err := usageOf(ctx, store)
		if err == nil {
			all = append(all, u)
		}
		return err
	})
	if output.isData() {
		if err := output.write(s.out, orEmpty(all)); err != nil {
			return err
		}
	} else {
		usageTable(all, s)
	}
	return incomplete
}

// usageOf returns how full the network is, with all that there is to remark.
func usageOf(ctx context.Context, store *lease.Store) (lease.Usage, error) {
	u, err := store.Usage(ctx)
	if err != nil {
		return u, err
	}
	remarks, err := storeRemarks(ctx, store)
	u.Remarks = append(u.Remarks, remarks...)
	if err != nil {
		return u, err
	}
	renamed, err := store.Renamed(ctx)
	for _, old := range renamed {
		u.Remarks = append(u.Remarks, lease.RenamedRemark(old, u.Network))
	}
	return u, err
}

func usageTable(all []lease.Usage, s *screen) {
	t := newTable(false, columns("NETWORK", "SET", "RANGES", "SIZE", "HELD", "RESERVED", "QUARANTINED", "FREE", "USED")...)
	for _, u := range all {
		for _, set := range u.Sets {
			t.row(u.Network, fmt.Sprint(set.Set), set.Ranges.String(), countCell(set.Size), fmt.Sprint(set.Held), fmt.Sprint(set.Reserved),
				fmt.Sprint(set.Quarantined), countCell(set.Free), fmt.Sprintf("%.1f%%", 100*set.Share))
		}
	}
	t.write(s)
	for _, u := range all {
		if u.Outside > 0 {
			s.say("%s: leases outside of these ranges: %d", u.Network, u.Outside)
		}
		for _, remark := range u.Remarks {
			s.say("%s: %s", u.Network, remark)
		}
	}
}

// countCell is a number that people can read: a subnet of IPv6 has more addresses than they
// count.
func countCell(n *big.Int) string {
	const readable = 12
	if s := n.String(); len(s) <= readable {
		return s
	}
	return fmt.Sprintf("%.2g", new(big.Float).SetInt(n))
}
