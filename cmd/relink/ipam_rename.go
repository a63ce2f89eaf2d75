package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/pkg/ipam/lease"
)

func newIPAMRename(dir *leaseDir, v *verbosity) *cobra.Command {
	return &cobra.Command{
		Use:   "rename OLD NEW",
		Short: "Move the leases of a renamed network to its new name",
		Long: `Give the leases of the network OLD to the network NEW, after you changed the "name" in its
configuration. NEW may have leases already. If both have a lease of one address, nothing is
done, and each such address is named: delete one of the two pods, or release one of the two
leases. If the command was killed, run it again.

Exit status 0: done; 1: both have leases of one address, or OLD has none, and a message says so;
2: usage or environment.`,
		Example:           `  relink ipam rename lan vlan3`,
		Args:              exactArgs("OLD", "NEW"),
		ValidArgsFunction: completeArgs(dir.completeNetworks, dir.completeNetworks),
		RunE: func(cmd *cobra.Command, args []string) error {
			source, err := dir.open(args[0])
			if err != nil {
				return err
			}
			target, err := dir.open(args[1])
			if err != nil {
				return err
			}
			return rename(cmd.Context(), source, target, screenOf(cmd, v))
		},
	}
}

func rename(ctx context.Context, source, target *lease.Store, s *screen) error {
	n, err := source.Rename(ctx, target)
	var clash *lease.ClashError
	switch {
	case errors.As(err, &clash):
		for _, c := range clash.Clashes {
			s.warnf("%s", c)
		}
		s.warnf("nothing was renamed")
		return errDiffers
	case errors.Is(err, lease.ErrNotLeased):
		return reportDifference(s, err)
	case err != nil:
		return err
	}
	s.info(fmt.Sprintf("network %s has %s from network %s now", target.Network(), count(n, "lease"), source.Network()))
	return nil
}
