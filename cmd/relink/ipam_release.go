package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

func newIPAMRelease(dir *leaseDir, v *verbosity) *cobra.Command {
	var output format
	var network string
	var pod podFlags
	var expected lease.Expected
	cmd := &cobra.Command{
		Use:   "release ADDRESS --network NETWORK (--container ID | --pod NAME | --nobody)",
		Short: "Make an address free that its holder does not need any more",
		Long: `Make an address free: what is held goes into quarantine as after a DEL, a
reservation or a quarantine ends. The holder that you expect has to be named, and if
it is another one nothing is released: --container (and --ifname) for what is held,
--pod (and --namespace) for what is held or reserved, --nobody for what is in
quarantine or reserved for nobody.

It does not look whether the holder is alive: relink ipam show says who it is.
Exit status 0: it was released, and the lease that it had is printed; 1: it is free,
or another's, which is said; 2: usage or environment.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			address, err := parseAddress(args[0])
			if err != nil {
				return err
			}
			if expected.Owner, err = pod.owner(); err != nil {
				return err
			}
			if err := checkHolder(expected, address); err != nil {
				return err
			}
			store, err := dir.open(network)
			if err != nil {
				return err
			}
			if _, err := dir.networks(network); err != nil {
				return err
			}
			return release(cmd.Context(), store, address, expected, output, screenOf(cmd, v))
		},
	}
	addNetwork(cmd, &network, "the `network` that the address is of")
	flags := cmd.Flags()
	flags.StringVar(&expected.ContainerID, "container", "", "expect that the sandbox of this container `ID` holds it")
	flags.StringVar(&expected.IfName, "ifname", "", "expect that this `interface` of the sandbox holds it")
	addPod(cmd, &pod, "expect that this `pod` holds it or has it reserved")
	flags.BoolVar(&expected.Nobody, "nobody", false, "expect that nobody holds it: it is in quarantine, or reserved for nobody")
	addOutput(cmd, &output)
	return cmd
}

// checkHolder reports flags that name no holder, or two.
func checkHolder(h lease.Expected, address netip.Addr) error {
	named := h.ContainerID != "" || h.Owner != attachment.Owner{}
	switch {
	case h.IfName != "" && h.ContainerID == "":
		return fmt.Errorf("--ifname %s needs --container: it says which interface of that sandbox", h.IfName)
	case h.Nobody && named:
		return errors.New("--nobody can't be given with --container or --pod: it says that nobody holds the address")
	case !h.Nobody && !named:
		return fmt.Errorf("name the holder that you expect: --container ID, --pod NAME, or --nobody for an address in quarantine or reserved for nobody; relink ipam show %s says who it is", address)
	}
	return nil
}

func release(ctx context.Context, store *lease.Store, address netip.Addr, expected lease.Expected, output format, s *screen) error {
	was, left, err := store.ReleaseByHand(ctx, address, expected)
	switch {
	case errors.Is(err, lease.ErrHolder), errors.Is(err, lease.ErrNone):
		return differs(s, err)
	case err != nil:
		return err
	}
	if output.isData() {
		return output.write(s.out, was)
	}
	now := "it is free"
	switch left.State {
	case lease.Held:
		now = "it is " + left.Whose()
	case lease.Quarantined:
		now = "it is in quarantine until " + timeCell(left.Until)
	}
	s.say("released %s: it was %s; %s", address, was.Whose(), now)
	return nil
}
