package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam"
)

func newIPAMReserve(dir *leaseDir) *cobra.Command {
	var output format
	var network string
	var pod podFlags
	var retain time.Duration
	cmd := &cobra.Command{
		Use:   "reserve ADDRESS --network NETWORK --pod NAME",
		Short: "Reserve an address for a pod",
		Long: `Reserve an address for a pod, known by namespace and name: it is given to that
pod's next sandbox on the network, and to nobody else. It may be free, in quarantine, or
that pod's already. Whether a configuration has it in a range is not looked at.
Exit status 0: it is reserved, and its lease is printed; 1: it is another's, which is
said; 2: usage or environment.`,
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
			if cmd.Flags().Changed("for") && retain <= 0 {
				return fmt.Errorf("invalid --for %s: must be more than 0; leave it out to reserve until released", retain)
			}
			store, err := dir.open(network)
			if err != nil {
				return err
			}
			if _, err := dir.networks(network); err != nil {
				// It may be misspelt, but a pod's address can be reserved before any pod is.
				say(cmd.ErrOrStderr(), "relink: this is the first lease of network %s", network)
			}
			return reserve(cmd.Context(), store, address, owner, retain, output, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	addNetwork(cmd, &network, "the `network` to reserve it in")
	addPod(cmd, &pod, "the `pod` to reserve it for")
	cmd.Flags().DurationVar(&retain, "for", 0, "so long, such as 24h (default until it is released)")
	addOutput(cmd, &output)
	return cmd
}

func reserve(ctx context.Context, store *ipam.Store, address netip.Addr, owner attachment.Owner, retain time.Duration, output format, stdout, stderr io.Writer) error {
	lease, err := store.Reserve(ctx, address, owner, retain)
	switch {
	case errors.Is(err, ipam.ErrTaken):
		return differs(stderr, err)
	case err != nil:
		return err
	}
	if output == formatJSON {
		return writeJSON(stdout, lease)
	}
	until := "until it is released"
	if !lease.ByHandUntil.IsZero() {
		until = "until " + timeCell(lease.ByHandUntil)
	}
	if lease.State == ipam.Held {
		say(stdout, "%s is %s, and stays reserved for %s then, %s", address, lease.Whose(), owner, until)
		return nil
	}
	say(stdout, "reserved %s for %s %s", address, owner, until)
	return nil
}
