package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/big"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/pkg/ipam/lease"
)

func newIPAMUsage(dir *leaseDir) *cobra.Command {
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
			return showUsage(cmd.Context(), *dir, networks, output, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	addNetwork(cmd, &network, "only of this `network`")
	addOutput(cmd, &output)
	return cmd
}

func showUsage(ctx context.Context, dir leaseDir, networks []string, output format, stdout, stderr io.Writer) error {
	var all []lease.Usage
	incomplete := dir.eachStore(networks, stderr, func(store *lease.Store) error {
		u, err := usageOf(ctx, store)
		if err == nil {
			all = append(all, u)
		}
		return err
	})
	w := bufio.NewWriter(stdout)
	var err error
	if output == formatJSON {
		err = writeJSON(w, orEmpty(all))
	} else {
		err = usageTable(all, w)
	}
	if err := errors.Join(err, w.Flush()); err != nil {
		return err
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

func usageTable(all []lease.Usage, w io.Writer) error {
	t := newTable(w, "NETWORK", "SET", "RANGES", "SIZE", "HELD", "RESERVED", "QUARANTINED", "FREE", "USED")
	for _, u := range all {
		for _, s := range u.Sets {
			t.row(u.Network, fmt.Sprint(s.Set), s.Ranges.String(), countCell(s.Size), fmt.Sprint(s.Held), fmt.Sprint(s.Reserved),
				fmt.Sprint(s.Quarantined), countCell(s.Free), fmt.Sprintf("%.1f%%", 100*s.Share))
		}
	}
	if err := t.flush(); err != nil {
		return err
	}
	for _, u := range all {
		if u.Outside > 0 {
			say(w, "%s: leases outside of these ranges: %d", u.Network, u.Outside)
		}
		for _, remark := range u.Remarks {
			say(w, "%s: %s", u.Network, remark)
		}
	}
	return nil
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
