package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/selection"
)

func newIPAMShow(dir *leaseDir) *cobra.Command {
	var network string
	cmd := &cobra.Command{
		Use:   "show ADDRESS",
		Short: "Show everything about an address",
		Long: `Show everything about an address, in every network that has leased it: who has it, its state
after the holder gives it up, and what happened to it before, as far as the store remembers.

If it is an address of a pool that nodes share, relink-agent asks the Kubernetes API: which node
has it, whether that node is declared dead, and which owner it belongs to.

Exit status 0: it is leased, or another node has it; 1: it is free or never given, or a store
could not be read, and a message says so; 2: usage or environment.`,
		Example: `  relink ipam show 10.3.0.5
  relink ipam show fd00:3::5 --network lan -o yaml`,
		Args:              takes(1, 1),
		ValidArgsFunction: completeArgs(dir.completeLeases(addressesOf)),
		RunE: func(cmd *cobra.Command, args []string) error {
			address, err := parseAddress(args[0])
			if err != nil {
				return err
			}
			stores, err := dir.stores(network)
			if err != nil {
				return err
			}
			return showLeases(cmd.Context(), stores, address, screenOf(cmd))
		},
	}
	addNetwork(cmd, dir, &network, "only in this `network`")
	addOutput(cmd)
	return cmd
}

// addressReport is what relink knows of an address in a network.
type addressReport struct {
	// Lease keeps the address from being given to others. It is the zero Lease if nothing does.
	lease.Lease
	History []lease.Event `json:"history"`
	// NeverReason says why no ADD gives the address. It is empty if ADDs can give it, or if it is leased.
	NeverReason string `json:"never,omitempty"`
	// Pool is what the Kubernetes API says of the address. Then the rest is empty.
	Pool *pool.AddressStatus `json:"pool,omitempty"`
}

func showLeases(ctx context.Context, stores []*lease.Store, address netip.Addr, s *screen) error {
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
	standings, heldRemotely, unknown := askStandings(ctx, stores, address, leased, s)
	for _, standing := range standings {
		found = append(found, addressReport{Lease: lease.Lease{Address: address}, History: []lease.Event{}, Pool: &standing})
	}
	present := leased || heldRemotely || incomplete != nil
	err := s.present(orEmpty(found), incomplete == nil, func() {
		for _, entry := range found {
			entry.describe(s)
		}
	})
	never := slices.IndexFunc(standings, func(p pool.AddressStatus) bool { return p.Excluded })
	switch {
	case present || err != nil:
		return err
	case unknown:
		err = fmt.Errorf("no pod of this node has %s", address)
	case never >= 0:
		err = fmt.Errorf("no pod has %s, and the pool %s never gives it", address, standings[never].Pool)
	case len(free) > 0 || len(excluded) == 0: // Another network's ranges are no news then.
		err = errors.New(freeText(address, free))
	default:
		err = errors.New(strings.Join(excluded, "; "))
	}
	return reportDifference(s, err)
}

// describe writes what is known, for people.
func (entry addressReport) describe(s *screen) {
	if entry.Pool != nil {
		describeStanding(*entry.Pool, s)
		return
	}
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
	entry := addressReport{Lease: l, History: orEmpty(history)}
	if err == nil && l.State == "" {
		switch err = store.CheckGiven(ctx, address); {
		case errors.Is(err, lease.ErrNotGranted), errors.Is(err, lease.ErrNotLeased):
			err = nil // The standing of the pool tells more.
		case errors.Is(err, lease.ErrNotGiven):
			entry.NeverReason, err = err.Error(), nil
		}
	}
	return entry, err
}

func writeHistory(entry addressReport, s *screen) {
	if len(entry.History) == 0 {
		return
	}
	switch {
	case entry.State != "":
	case entry.NeverReason != "":
		s.printf("%s", entry.NeverReason)
	default:
		s.printf("%s is free in network %s", entry.Address, entry.Network)
	}
	t := newTable("WHEN | WHAT | POD | SANDBOX:2 | INTERFACE:3 | THEN:1 | WHY")
	for _, e := range entry.History {
		t.values(timeCell(e.Time), e.Type, ownerName(e.Owner), selection.ShortID(e.ContainerID), e.IfName, cmp.Or(e.StateAfter, "free"), e.Reason)
	}
	t.write(s)
	fmt.Fprintln(s.raw())
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

// add adds names, each before its value.
func (d *description) add(pairs ...string) {
	for pair := range slices.Chunk(pairs, 2) {
		d.row(pair[0], pair[1])
	}
}

// describeLease writes a lease in the layout of kubectl describe.
func describeLease(l lease.Lease, s *screen) {
	if l.State == "" {
		return
	}
	owned := "Owner:"
	if podOf(l.Owner).Name != "" || l.Owner == (attachment.Owner{}) {
		owned = "Pod:"
	}
	var d description
	d.add(
		"Address:", l.Address.String(),
		"Network:", l.Network,
		"State:", string(l.State),
		owned, ownerName(l.Owner),
	)
	for _, h := range l.Holders {
		d.holder("", l, h)
	}
	if l.State != lease.Held {
		d.holder("Last ", l, l.Last)
		d.row("Why:", l.Reason)
	}
	since := "Released:"
	if l.Last.ContainerID == "" {
		since = "Reserved:"
	}
	d.timeRow(since, l.ReleasedAt)
	d.timeRow("Until:", l.Until)
	d.row("When given up:", releaseOutcome(l))
	if l.Conflict {
		d.row("Conflict:", "another host uses the address. No pod gets it before the quarantine ends, even if no other address is free")
	}
	d.write(s)
}

// holder writes who holds the address, or who held it last.
func (d *description) holder(last string, l lease.Lease, h lease.Holder) {
	name := func(s string) string {
		if last == "" {
			return s
		}
		return last + strings.ToLower(s[:1]) + s[1:]
	}
	if podOf(l.Owner) == (attachment.Pod{}) && h.Pod.Name != "" {
		d.row(name("Pod:"), h.Pod.String())
	} else if h.Owner != (attachment.Owner{}) && h.Owner.Kind != attachment.OwnerPod {
		d.row(name("Owner:"), h.Owner.String())
	}
	d.add(
		name("On network:"), h.Network,
		name("Sandbox:"), h.ContainerID,
		name("Interface:"), h.IfName,
		"Pod UID:", h.Pod.UID,
		"Namespace:", h.Namespace.Path,
	)
	if last == "" {
		d.row("Why:", string(h.Origin))
	}
	d.timeRow("Acquired:", h.Since)
	if h.ContainerID != "" {
		d.row("Boot:", h.Namespace.BootID)
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
		return "reserved for the pod until " + timeCell(after.Until) + byHand
	}
	return fmt.Sprintf("reserved for the pod for %s", after.Until.Sub(instant))
}
