package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/selection"
)

func newIPAMShow(dir *leaseDir) *cobra.Command {
	var network string
	cmd := newVerb("ipam-show", func(cmd *cobra.Command, args []string) error {
		address, err := cli.ParseAddress(args[0])
		if err != nil {
			return err
		}
		stores, err := dir.stores(network)
		if err != nil {
			return err
		}
		return showLeases(cmd.Context(), stores, address, screenOf(cmd))
	})
	cmd.Args = cli.Takes(1, 1)
	cmd.ValidArgsFunction = cli.CompleteArgs(dir.completeLeases(addressesOf))
	addNetwork(cmd, dir, &network, "only in this `network`")
	cli.AddOutput(cmd)
	return cmd
}

// addressReport is what relink knows of an address in a network.
type addressReport struct {
	// Lease keeps the address from being given to others. It is the zero Lease if nothing does.
	lease.Lease
	History []lease.Event `json:"history"`
	// NeverReason says why no ADD gives the address. It is empty if ADDs can give it, or if it is leased.
	NeverReason string `json:"never,omitempty"`
}

func showLeases(ctx context.Context, stores []*lease.Store, address netip.Addr, s *cli.Screen) error {
	var found []addressReport
	var free, excluded []string
	leased := false
	incomplete := eachStore(stores, s, func(store *lease.Store) error {
		entry, err := lookUpAddress(ctx, store, address)
		switch {
		case err != nil:
			return err
		case entry.NeverReason != "":
			excluded = append(excluded, entry.NeverReason)
		default:
			free = append(free, store.Network())
		}
		if entry.State != "" || len(entry.History) > 0 {
			found, leased = append(found, entry), leased || entry.State != ""
		}
		return nil
	})
	err := s.Present(cli.OrEmpty(found), incomplete == nil, func() {
		for _, entry := range found {
			entry.describe(s)
		}
	})
	switch {
	case leased || incomplete != nil || err != nil:
		return err
	case len(free) > 0 || len(excluded) == 0: // Another network's ranges are no news then.
		err = errors.New(freeText(address, free))
	default:
		err = errors.New(strings.Join(excluded, "; "))
	}
	return cli.ReportDifference(s, err)
}

// describe writes what is known, for people.
func (entry addressReport) describe(s *cli.Screen) {
	describeLease(entry.Lease, s)
	writeHistory(entry, s)
}

func lookUpAddress(ctx context.Context, store *lease.Store, address netip.Addr) (addressReport, error) {
	l, err := store.Get(ctx, address)
	if err != nil && !errors.Is(err, lease.ErrNotLeased) {
		return addressReport{}, err
	}
	history, err := store.History(ctx, address)
	l.Address, l.Network = address, store.Network()
	entry := addressReport{Lease: l, History: cli.OrEmpty(history)}
	if err == nil && l.State == "" {
		if err = store.CheckGiven(ctx, address); errors.Is(err, lease.ErrNotGiven) {
			entry.NeverReason, err = err.Error(), nil
		}
	}
	return entry, err
}

func writeHistory(entry addressReport, s *cli.Screen) {
	if len(entry.History) == 0 {
		return
	}
	switch {
	case entry.State != "":
	case entry.NeverReason != "":
		s.Printf("%s", entry.NeverReason)
	default:
		s.Printf("%s is free in network %s", entry.Address, entry.Network)
	}
	t := cli.NewTable("WHEN | WHAT | POD | SANDBOX:2 | INTERFACE:3 | THEN:1 | WHY")
	for _, e := range entry.History {
		t.Values(cli.TimeCell(e.Time), e.Type, ownerName(e.Owner), selection.ShortID(e.ContainerID), e.IfName, cmp.Or(e.StateAfter, "free"), e.Reason)
	}
	t.Write(s)
	fmt.Fprintln(s.Raw())
}

// ownerName is the name of the pod, or of another kind of owner.
func ownerName(o attachment.Owner) string {
	if pod := podOf(o); pod.Name != "" {
		return pod.String()
	}
	return o.String()
}

func freeText(address netip.Addr, networks []string) string {
	if len(networks) == 0 {
		return fmt.Sprintf("%s is free: no network has leases", address)
	}
	return fmt.Sprintf("%s is free in network %s", address, strings.Join(networks, " and network "))
}

// describeLease writes a lease in the layout of kubectl describe.
func describeLease(l lease.Lease, s *cli.Screen) {
	if l.State == "" {
		return
	}
	owned := "Owner:"
	if podOf(l.Owner).Name != "" || l.Owner == (attachment.Owner{}) {
		owned = "Pod:"
	}
	var d cli.Description
	d.Add(
		"Address:", l.Address.String(),
		"Network:", l.Network,
		"State:", string(l.State),
		owned, ownerName(l.Owner),
	)
	for _, h := range l.Holders {
		describeHolder("", l, h, &d)
	}
	if l.State != lease.Held {
		describeHolder("Last ", l, l.Last, &d)
		d.Add("Why:", l.Reason)
	}
	since := "Released:"
	if l.Last.ContainerID == "" {
		since = "Reserved:"
	}
	d.AddTime(since, l.ReleasedAt)
	d.AddTime("Until:", l.Until)
	d.Add("When given up:", releaseOutcome(l))
	if l.Conflict {
		d.Add("Conflict:", "another host uses the address. No pod gets it before the quarantine ends, even if no other address is free")
	}
	d.Write(s)
}

// describeHolder writes who holds the address, or who held it last.
func describeHolder(last string, l lease.Lease, h lease.Holder, d *cli.Description) {
	name := func(s string) string {
		if last == "" {
			return s
		}
		return last + strings.ToLower(s[:1]) + s[1:]
	}
	if podOf(l.Owner) == (attachment.Pod{}) && h.Pod.Name != "" {
		d.Add(name("Pod:"), h.Pod.String())
	} else if h.Owner != (attachment.Owner{}) && h.Owner.Kind != attachment.OwnerPod {
		d.Add(name("Owner:"), h.Owner.String())
	}
	d.Add(
		name("On network:"), h.Network,
		name("Sandbox:"), h.ContainerID,
		name("Interface:"), h.IfName,
		"Pod UID:", h.Pod.UID,
		"Namespace:", h.Namespace.Path,
	)
	if last == "" {
		d.Add("Why:", string(h.Origin))
	}
	d.AddTime("Acquired:", h.Since)
	if h.ContainerID != "" {
		d.Add("Boot:", h.Namespace.BootID)
	}
}

// releaseOutcome says what happens to the address once it is given up.
func releaseOutcome(l lease.Lease) string {
	if l.State != lease.Held {
		return ""
	}
	instant := time.Now()
	after := l.GivenUp("", instant)
	byHand := ""
	if after.ByHand {
		byHand = ": it was reserved by hand"
	}
	switch {
	case after.State == "":
		return "free"
	case after.State == lease.Quarantined:
		return fmt.Sprintf("in quarantine for %s", l.Newest().Policy.Quarantine)
	case after.Until.IsZero():
		return "reserved for the pod until it is released by hand" + byHand
	case after.Until.Equal(l.ByHandUntil):
		return "reserved for the pod until " + cli.TimeCell(after.Until) + byHand
	}
	return fmt.Sprintf("reserved for the pod for %s", after.Until.Sub(instant))
}
