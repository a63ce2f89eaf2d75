package main

import (
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

func newIPAMShow(dir *leaseDir, v *verbosity) *cobra.Command {
	var output format
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
		Args:              takes("ADDRESS"),
		ValidArgsFunction: eachCompletes(dir.completesLeases(addressesOf)),
		RunE: func(cmd *cobra.Command, args []string) error {
			address, err := parseAddress(args[0])
			if err != nil {
				return err
			}
			networks, err := dir.networks(network)
			if err != nil {
				return err
			}
			return showLeases(cmd.Context(), *dir, networks, address, output, screenOf(cmd, v))
		},
	}
	addNetwork(cmd, dir, &network, "only in this `network`")
	addOutput(cmd, &output)
	return cmd
}

// shown is what relink knows of an address in a network.
type shown struct {
	// Lease keeps the address from being given to others. It is the zero Lease if nothing does.
	lease.Lease
	History []lease.Event `json:"history"`
	// Never says why no ADD gives the address. It is empty if ADDs can give it, or if it is leased.
	Never string `json:"never,omitempty"`
	// Pool is what the Kubernetes API says of the address. Then the rest is empty.
	Pool *pool.Standing `json:"pool,omitempty"`
}

func showLeases(ctx context.Context, dir leaseDir, networks []string, address netip.Addr, output format, s *screen) error {
	var found []shown
	var free, never []string
	leased := false
	incomplete := dir.eachStore(networks, s, func(store *lease.Store) error {
		one, err := lookUp(ctx, store, address)
		if err == nil && one.Never != "" {
			never = append(never, one.Never)
		} else if err == nil {
			free = append(free, store.Network())
		}
		if err == nil && (one.State != "" || len(one.History) > 0) {
			found, leased = append(found, one), leased || one.State != ""
		}
		return err
	})
	standings, elsewhere, unknown := dir.standings(ctx, networks, address, leased, s)
	for _, standing := range standings {
		found = append(found, shown{Lease: lease.Lease{Address: address}, History: []lease.Event{}, Pool: &standing})
	}
	if output.isData() {
		if err := output.write(s.out, orEmpty(found)); err != nil {
			return err
		}
	} else {
		for _, one := range found {
			one.describe(s)
		}
	}
	if !leased && !elsewhere && incomplete == nil {
		if unknown {
			return differs(s, fmt.Errorf("no pod of this node has %s", address))
		}
		if i := slices.IndexFunc(standings, func(p pool.Standing) bool { return p.Never }); i >= 0 {
			return differs(s, fmt.Errorf("no pod has %s, and the pool %s never gives it", address, standings[i].Pool))
		}
		if len(free) > 0 || len(never) == 0 { // Another network's ranges are no news then.
			return differs(s, errors.New(isFree(address, free)))
		}
		return differs(s, errors.New(strings.Join(never, "; ")))
	}
	return incomplete
}

// describe writes what is known, for people.
func (of shown) describe(s *screen) {
	if of.Pool != nil {
		describeStanding(*of.Pool, s)
		return
	}
	describeLease(of.Lease, s)
	writeHistory(of, s)
}

func lookUp(ctx context.Context, store *lease.Store, address netip.Addr) (shown, error) {
	l, err := store.Get(ctx, address)
	if err != nil && !errors.Is(err, lease.ErrNone) {
		return shown{}, err
	}
	history, err := store.History(ctx, address)
	l.Address, l.Network = address, store.Network()
	one := shown{Lease: l, History: orEmpty(history)}
	if err == nil && l.State == "" {
		switch err = store.Gives(ctx, address); {
		case errors.Is(err, lease.ErrNotGranted), errors.Is(err, lease.ErrNone):
			err = nil // The standing of the pool tells more.
		case errors.Is(err, lease.ErrNotGiven):
			one.Never, err = err.Error(), nil
		}
	}
	return one, err
}

func writeHistory(of shown, s *screen) {
	if len(of.History) == 0 {
		return
	}
	switch {
	case of.State != "":
	case of.Never != "":
		s.say("%s", of.Never)
	default:
		s.say("%s is free in network %s", of.Address, of.Network)
	}
	t := newTable(false, column{name: "WHEN"}, column{name: "WHAT"}, column{name: "POD"}, column{name: "SANDBOX", spare: 2},
		column{name: "INTERFACE", spare: 3}, column{name: "THEN", spare: 1}, column{name: "WHY"})
	for _, e := range of.History {
		then := string(e.Then)
		if then == "" {
			then = "free"
		}
		t.row(timeCell(e.At), string(e.What), ownerName(e.Owner), selection.ShortID(e.ContainerID), e.IfName, then, e.Why)
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

func isFree(address netip.Addr, networks []string) string {
	switch len(networks) {
	case 0:
		return fmt.Sprintf("%s is free: no network has leases", address)
	case 1:
		return fmt.Sprintf("%s is free in network %s", address, networks[0])
	}
	return fmt.Sprintf("%s is free in networks %s", address, strings.Join(networks, ", "))
}

// describeLease writes a lease in the layout of kubectl describe.
func describeLease(l lease.Lease, s *screen) {
	if l.State == "" {
		return
	}
	var d leaseDescription
	d.row("Address:", "%s", l.Address)
	d.row("Network:", "%s", l.Network)
	d.row("State:", "%s", string(l.State))
	if pod := podOf(l.Owner); pod.Name != "" || l.Owner == (attachment.Owner{}) {
		d.row("Pod:", "%s", pod)
	} else {
		d.row("Owner:", "%s", l.Owner)
	}
	for _, h := range l.Holders {
		d.holder("", l, h)
	}
	if l.State != lease.Held {
		d.holder("Last ", l, l.Last)
		d.row("Why:", "%s", l.Why)
	}
	if l.Last.ContainerID == "" {
		d.at("Reserved:", l.ReleasedAt)
	} else {
		d.at("Released:", l.ReleasedAt)
	}
	d.at("Until:", l.Until)
	d.row("When given up:", "%s", whenGivenUp(l))
	if l.Conflict {
		d.row("Conflict:", "%s", "another host uses the address. No pod gets it before the quarantine ends, even if no other address is free")
	}
	d.write(s)
}

// leaseDescription is a description of a lease.
type leaseDescription struct{ description }

// holder writes who holds the address, or who held it last.
func (d *leaseDescription) holder(last string, l lease.Lease, h lease.Holder) {
	name := func(s string) string {
		if last == "" {
			return s
		}
		return last + strings.ToLower(s[:1]) + s[1:]
	}
	if podOf(l.Owner) == (attachment.Pod{}) && h.Pod.Name != "" {
		d.row(name("Pod:"), "%s", h.Pod)
	} else if h.Owner != (attachment.Owner{}) && h.Owner.Kind != attachment.OwnerPod {
		d.row(name("Owner:"), "%s", h.Owner)
	}
	d.row(name("Sandbox:"), "%s", h.ContainerID)
	d.row(name("Interface:"), "%s", h.IfName)
	d.row("Pod UID:", "%s", h.Pod.UID)
	d.row("Namespace:", "%s", h.Namespace.Path)
	if last == "" {
		d.row("Why:", "%s", string(h.Origin))
	}
	d.at("Acquired:", h.Since)
	if h.ContainerID != "" {
		d.row("Boot:", "%s", h.Namespace.BootID)
	}
}

// whenGivenUp says what happens to the address once it is given up.
func whenGivenUp(l lease.Lease) string {
	if l.State != lease.Held {
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
	case after.State == lease.Quarantined:
		return fmt.Sprintf("in quarantine for %s", l.Newest().Policy.Quarantine)
	case after.Until.IsZero():
		return "reserved for the pod until it is released by hand" + byHand
	case after.Until.Equal(l.ByHandUntil):
		return "reserved for the pod until " + timeCell(after.Until) + byHand
	}
	return fmt.Sprintf("reserved for the pod for %s", after.Until.Sub(now))
}
