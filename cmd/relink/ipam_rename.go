package main

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/pkg/ipam/lease"
)

func newIPAMRename(dir *leaseDir, v *verbosity) *cobra.Command {
	return &cobra.Command{
		Use:   "rename OLD NEW",
		Short: "Give the leases of a network that was renamed to the network of the new name",
		Long: `Give the leases of the network OLD to the network NEW, after the "name" in its configuration
was changed. If NEW has leases already, it gets those of OLD besides. If both have a lease of
one address, nothing is done and each such address is said: delete one of the two pods, or
release one of the two leases.
Exit status 0: done; 1: both have leases of one address, or OLD has none; 2: usage or
environment.`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := dir.open(args[0])
			if err != nil {
				return err
			}
			to, err := dir.open(args[1])
			if err != nil {
				return err
			}
			return rename(cmd.Context(), from, to, screenOf(cmd, v))
		},
	}
}

func rename(ctx context.Context, from, to *lease.Store, s *screen) error {
	n, err := from.Rename(ctx, to)
	var clash *lease.ClashError
	switch {
	case errors.As(err, &clash):
		for _, c := range clash.Clashes {
			s.warn("%s", c)
		}
		s.warn("nothing was renamed")
		return errDiffers
	case errors.Is(err, lease.ErrNone):
		return differs(s, err)
	case err != nil:
		return err
	}
	s.say("network %s has what was network %s's: %d leases", to.Network(), from.Network(), n)
	return nil
}
