package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/selection"
)

func newIPAMList(dir *leaseDir) *cobra.Command {
	var choice leaseChoice
	cmd := &cobra.Command{
		Use:   "list " + leaseNameUsage,
		Short: "List the addresses that are not free: who has them, and why",
		Long: `List the addresses that are not free: which pod holds each, for which pod it is reserved, or who
had it before its quarantine. The rows are sorted by pod. Addresses of no pod come last, with
the container ID, if any. AGE is the time since the address got its state. A narrow terminal
shows fewer columns; -o wide shows all. While a pod's new sandbox takes over the address of the
old one, both hold it.

` + leaseNamingHelp + `

Exit status 0: all stores could be read; 1: one could not, and a message names it;
2: usage or environment.`,
		Example: `  relink ipam list                        # all addresses that are not free
  relink ipam list shop/web-0 -o wide     # those of a pod, with all columns
  relink ipam list 10.3.0.0/28            # those in a part of a network
  relink ipam list --state reserved       # those that wait for their pods`,
		RunE: func(cmd *cobra.Command, args []string) error {
			choice.Names = args
			return listLeases(cmd.Context(), *dir, choice, screenOf(cmd))
		},
	}
	addLeaseSelection(cmd, dir, &choice.Selection)
	addChoice(cmd, &choice.state, "state", "", "state", "only what is in this `state`: held, reserved or quarantined",
		string(lease.Held), string(lease.Reserved), string(lease.Quarantined))
	addOutput(cmd, formatWide, formatName)
	return cmd
}

// leaseChoice chooses leases. A zero field limits nothing.
type leaseChoice struct {
	selection.Selection
	state choiceFlag
}

// selectLeases returns the chosen leases in the order in which they are listed.
func (c leaseChoice) selectLeases(leases []lease.Lease) ([]lease.Lease, error) {
	holdings, err := choose(holdingsOf(leases), c.Selection)
	if err != nil {
		return nil, err
	}
	var chosen []lease.Lease
	for _, h := range holdings {
		if c.state.name == "" || string(h.lease.State) == c.state.name {
			chosen = append(chosen, h.lease)
		}
	}
	slices.SortFunc(chosen, compareLeases)
	// An address can have two holders.
	return slices.CompactFunc(chosen, func(a, b lease.Lease) bool { return compareLeases(a, b) == 0 }), nil
}

func listLeases(ctx context.Context, dir leaseDir, choice leaseChoice, s *screen) error {
	stores, err := dir.stores(choice.Network)
	if err != nil {
		return err
	}
	var collected []lease.Lease
	incomplete := eachStore(stores, s, func(store *lease.Store) error {
		leases, err := store.List(ctx)
		if err != nil {
			return err
		}
		collected = append(collected, leases...)
		remarks, err := storeRemarks(ctx, store)
		for _, remark := range remarks {
			s.warnf("%s", remark)
		}
		return errors.Join(err, store.Verify(ctx))
	})
	chosen, err := choice.selectLeases(collected)
	if err != nil {
		return err
	}
	return s.present(orEmpty(chosen), incomplete == nil, func() {
		switch {
		case s.format == formatName:
			s.printLines(unique(texts(chosen, func(l lease.Lease) string { return l.Address.String() })))
		case len(chosen) > 0:
			leaseTable(chosen, s)
		case incomplete == nil && !s.quiet:
			path, _ := dir.path() // Its stores were found.
			s.warnf("no such address is %s in %s", cmp.Or(choice.state.name, "held or reserved"), path)
		}
	})
}

func leaseTable(leases []lease.Lease, s *screen) {
	t := newTable("POD | ADDRESS | NETWORK:2 | SANDBOX:wide | INTERFACE:wide | STATE | AGE:3 | SINCE:wide | UNTIL:wide | WHY:1")
	for _, l := range leases {
		since, reason := l.ReleasedAt, l.Reason
		if l.State == lease.Held {
			since, reason = l.Newest().Since, string(l.Newest().Origin)
		}
		t.values(ownerCell(l), l.Address, l.Network, joinHolders(l, func(h lease.Holder) string { return selection.ShortID(h.ContainerID) }),
			joinHolders(l, func(h lease.Holder) string { return h.IfName }), l.State, age(since), timeCell(since), timeCell(l.Until), reason)
	}
	t.write(s)
}

// ownerCell is the pod of the lease, or the container ID of its newest holder if no pod is known.
func ownerCell(l lease.Lease) string {
	if pod := (holding{l, l.Newest()}).pod(); pod.Name != "" {
		return pod.String()
	}
	if l.Owner != (attachment.Owner{}) {
		return ownerName(l.Owner)
	}
	return selection.ShortID(l.Newest().ContainerID)
}

// joinHolders joins the results of f for each holder, or for the last holder if nobody has the address.
func joinHolders(l lease.Lease, f func(lease.Holder) string) string {
	return strings.Join(slices.Compact(texts(holdersOf(l), f)), ",")
}
