package main

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/selection"
)

func newIPAMList(dir *leaseDir) *cobra.Command {
	var choice leaseChoice
	cmd := newVerb("ipam-list", func(cmd *cobra.Command, args []string) error {
		choice.Names = args
		return listLeases(cmd.Context(), *dir, choice, screenOf(cmd))
	})
	addLeaseSelection(cmd, dir, &choice.Selection)
	cli.AddChoice(cmd, &choice.state, "state", "", "state", "only what is in this `state`: held, reserved or quarantined",
		string(lease.Held), string(lease.Reserved), string(lease.Quarantined))
	cli.AddOutput(cmd, cli.FormatWide, cli.FormatName)
	return cmd
}

// leaseChoice chooses leases. A zero field limits nothing.
type leaseChoice struct {
	selection.Selection
	state cli.ChoiceFlag
}

// selectLeases returns the chosen leases in the order in which they are listed.
func (c leaseChoice) selectLeases(leases []lease.Lease) ([]lease.Lease, error) {
	holdings, err := choose(holdingsOf(leases), c.Selection)
	if err != nil {
		return nil, err
	}
	var chosen []lease.Lease
	for _, h := range holdings {
		if c.state.Name == "" || string(h.lease.State) == c.state.Name {
			chosen = append(chosen, h.lease)
		}
	}
	slices.SortFunc(chosen, compareLeases)
	// An address can have two holders.
	return slices.CompactFunc(chosen, func(a, b lease.Lease) bool { return compareLeases(a, b) == 0 }), nil
}

func listLeases(ctx context.Context, dir leaseDir, choice leaseChoice, s *cli.Screen) error {
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
			s.Warnf("%s", remark)
		}
		return errors.Join(err, store.Verify(ctx))
	})
	chosen, err := choice.selectLeases(collected)
	if err != nil {
		return err
	}
	return s.Present(cli.OrEmpty(chosen), incomplete == nil, func() {
		switch {
		case s.Format == cli.FormatName:
			s.PrintLines(cli.Unique(cli.Texts(chosen, func(l lease.Lease) string { return l.Address.String() })))
		case len(chosen) > 0:
			leaseTable(chosen, s)
		case incomplete == nil && !s.Quiet:
			path, _ := dir.path() // Its stores were found.
			s.Warnf("no such address is %s in %s", cmp.Or(choice.state.Name, "held or reserved"), path)
		}
	})
}

func leaseTable(leases []lease.Lease, s *cli.Screen) {
	t := cli.NewTable("POD | ADDRESS | NETWORK:2 | SANDBOX:wide | INTERFACE:wide | STATE | AGE:3 | SINCE:wide | UNTIL:wide | WHY:1")
	for _, l := range leases {
		since, reason := l.ReleasedAt, l.Reason
		if l.State == lease.Held {
			since, reason = l.Newest().Since, string(l.Newest().Origin)
		}
		t.Values(ownerCell(l), l.Address, l.Network, joinHolders(l, func(h lease.Holder) string { return selection.ShortID(h.ContainerID) }),
			joinHolders(l, func(h lease.Holder) string { return h.IfName }), l.State, age(since), cli.TimeCell(since), cli.TimeCell(l.Until), reason)
	}
	t.Write(s)
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
	return strings.Join(slices.Compact(cli.Texts(holdersOf(l), f)), ",")
}
