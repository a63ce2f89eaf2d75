package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

func newIPAMReserve(dir *leaseDir, v *verbosity) *cobra.Command {
	var output format
	var network string
	var pod podFlags
	var retain time.Duration
	var force bool
	cmd := &cobra.Command{
		Use:   "reserve ADDRESS --network NETWORK --pod NAME",
		Short: "Reserve an address for a pod",
		Long: `Reserve an address for a pod, known by namespace and name: it is given to that
pod's next sandbox on the network, and to nobody else. It may be free, in quarantine, or
that pod's already. Of several that are reserved for a pod by hand the newest is given.
An address that no ADD of the network gives is refused, and so is a network that none has
asked for addresses yet: its name may be misspelt.
Exit status 0: it is reserved, and its lease is printed; 1: it is another's or never
given, which is said; 2: usage or environment.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			address, err := parseAddress(args[0])
			if err != nil {
				return err
			}
			owner, err := pod.owner()
			if err != nil {
				return err
			}
			if owner == (attachment.Owner{}) {
				return errors.New("--pod is missing: name the pod to reserve the address for")
			}
			if err := (attachment.Pod{Namespace: owner.Namespace, Name: owner.Name}).Validate(); err != nil {
				return err
			}
			if cmd.Flags().Changed("for") && retain <= 0 {
				return fmt.Errorf("invalid --for %s: must be more than 0; leave it out to reserve until released", retain)
			}
			store, err := dir.open(network)
			if err != nil {
				return err
			}
			if there, err := store.Exists(); err != nil {
				return err
			} else if !there && !force {
				return fmt.Errorf("invalid --network %q: nothing was given in it yet. If the name is right, --force reserves the address all the same", network)
			}
			return reserve(cmd.Context(), store, address, owner, retain, output, screenOf(cmd, v))
		},
	}
	addNetwork(cmd, &network, "the `network` to reserve it in")
	addPod(cmd, &pod, "the `pod` to reserve it for")
	cmd.Flags().DurationVar(&retain, "for", 0, "so long, such as 24h (default until it is released)")
	cmd.Flags().BoolVar(&force, "force", false, "also in a network that nothing was given in yet")
	addOutput(cmd, &output)
	return cmd
}

func reserve(ctx context.Context, store *lease.Store, address netip.Addr, owner attachment.Owner, retain time.Duration, output format, s *screen) error {
	l, err := store.Reserve(ctx, address, owner, retain)
	switch {
	case errors.Is(err, lease.ErrTaken), errors.Is(err, lease.ErrNotGiven):
		return differs(s, err)
	case err != nil:
		return err
	}
	if output.isData() {
		return output.write(s.out, l)
	}
	until := "until it is released"
	if !l.ByHandUntil.IsZero() {
		until = "until " + timeCell(l.ByHandUntil)
	}
	if l.State == lease.Held {
		s.say("%s is %s, and stays reserved for %s then, %s", address, l.Whose(), owner, until)
		return nil
	}
	s.say("reserved %s for %s %s", address, owner, until)
	return nil
}
