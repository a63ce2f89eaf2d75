package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/pkg/ipam"
)

func newIPAMShow(dir *leaseDir) *cobra.Command {
	var output format
	var network string
	cmd := &cobra.Command{
		Use:   "show ADDRESS",
		Short: "Show all that is known of an address",
		Long: `Show all that is known of an address, in every network that has leased it, unless
--network names one. Exit status 0: it is leased; 1: it is free, or a network could
not be read, which is said; 2: usage or environment.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			address, err := parseAddress(args[0])
			if err != nil {
				return err
			}
			networks, err := dir.networks(network)
			if err != nil {
				return err
			}
			return showLeases(cmd.Context(), *dir, networks, address, output, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	addNetwork(cmd, &network, "only in this `network`")
	addOutput(cmd, &output)
	return cmd
}

func showLeases(ctx context.Context, dir leaseDir, networks []string, address netip.Addr, output format, stdout, stderr io.Writer) error {
	var found []ipam.Lease
	incomplete := dir.eachStore(networks, stderr, func(store *ipam.Store) error {
		lease, err := store.Get(ctx, address)
		if err == nil {
			found = append(found, lease)
		} else if errors.Is(err, ipam.ErrNone) {
			err = nil
		}
		return err
	})
	if output == formatJSON {
		if err := writeJSON(stdout, orEmpty(found)); err != nil {
			return err
		}
	}
	if len(found) == 0 && incomplete == nil {
		return differs(stderr, errors.New(isFree(address, networks)))
	}
	for _, l := range found {
		if output == formatJSON {
			break
		}
		if err := describeLease(l, stdout); err != nil {
			return err
		}
	}
	return incomplete
}

func isFree(address netip.Addr, networks []string) string {
	switch len(networks) {
	case 0:
		return fmt.Sprintf("%s is free: no network has leases", address)
	case 1:
		return fmt.Sprintf("%s is free in network %s", address, networks[0])
	}
	return fmt.Sprintf("%s is free in networks %s", address, strings.Join(networks, ", "))
}

// describeLease writes a lease in the manner of kubectl describe.
func describeLease(l ipam.Lease, w io.Writer) error {
	t := newTable(w, "Address:", l.Address.String())
	row := func(name, value string) {
		if value != "" {
			t.row(name, value)
		}
	}
	at := func(name string, when time.Time) {
		if !when.IsZero() {
			t.row(name, when.Local().Format("2006-01-02 15:04:05 MST"))
		}
	}
	row("Network:", l.Attachment.Network)
	row("State:", string(l.State))
	row("Owner:", l.Owner.String())
	row("Pod UID:", l.PodUID)
	sandbox, ifName := "Sandbox:", "Interface:"
	if l.State != ipam.Held {
		sandbox, ifName = "Last sandbox:", "Last interface:"
	}
	row(sandbox, l.Attachment.ContainerID)
	row(ifName, l.Attachment.IfName)
	row("Why:", why(l))
	at("Acquired:", l.AcquiredAt)
	if l.Attachment.ContainerID == "" {
		at("Reserved:", l.ReleasedAt)
	} else {
		at("Released:", l.ReleasedAt)
	}
	at("Until:", l.Until)
	row("Boot:", l.BootID)
	row("When given up:", whenGivenUp(l))
	if l.Conflict {
		row("Conflict:", "another host has it: it is not given before it ends, even if no other is free")
	}
	fmt.Fprintln(t.w)
	return t.flush()
}

// whenGivenUp says what comes after what is held.
func whenGivenUp(l ipam.Lease) string {
	if l.State != ipam.Held {
		return ""
	}
	now := time.Now()
	after, ok := l.GivenUp("", now)
	byHand := ""
	if after.ByHand {
		byHand = ": it was reserved by hand"
	}
	switch {
	case !ok:
		return "free"
	case after.State == ipam.Quarantined:
		return fmt.Sprintf("in quarantine for %s", l.Policy.Quarantine)
	case after.Until.IsZero():
		return "reserved for the owner until it is released by hand" + byHand
	case after.Until.Equal(l.ByHandUntil):
		return "reserved for the owner until " + timeCell(after.Until) + byHand
	}
	return fmt.Sprintf("reserved for the owner for %s", after.Until.Sub(now))
}
