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

	"github.com/relink-cni/relink/pkg/ipam/lease"
)

func newIPAMShow(dir *leaseDir) *cobra.Command {
	var output format
	var network string
	cmd := &cobra.Command{
		Use:   "show ADDRESS",
		Short: "Show all that is known of an address",
		Long: `Show all that is known of an address, in every network that has leased it, unless
--network names one: who has it, and what happened to it, as far as the store remembers.
Exit status 0: it is leased; 1: it is free, or a network could not be read, which is said;
2: usage or environment.`,
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

// shown is all that is known of an address in a network.
type shown struct {
	// Lease is what keeps it from being given, the zero Lease for nothing.
	lease.Lease
	History []lease.Event `json:"history"`
}

func showLeases(ctx context.Context, dir leaseDir, networks []string, address netip.Addr, output format, stdout, stderr io.Writer) error {
	var found []shown
	leased := false
	incomplete := dir.eachStore(networks, stderr, func(store *lease.Store) error {
		s, err := lookUp(ctx, store, address)
		if err == nil && (s.State != "" || len(s.History) > 0) {
			found, leased = append(found, s), leased || s.State != ""
		}
		return err
	})
	if output == formatJSON {
		if err := writeJSON(stdout, orEmpty(found)); err != nil {
			return err
		}
	}
	for _, s := range found {
		if output == formatJSON {
			break
		}
		if err := errors.Join(describeLease(s.Lease, stdout), writeHistory(s, stdout)); err != nil {
			return err
		}
	}
	if !leased && incomplete == nil {
		return differs(stderr, errors.New(isFree(address, networks)))
	}
	return incomplete
}

func lookUp(ctx context.Context, store *lease.Store, address netip.Addr) (shown, error) {
	l, err := store.Get(ctx, address)
	if err != nil && !errors.Is(err, lease.ErrNone) {
		return shown{}, err
	}
	history, err := store.History(ctx, address)
	l.Address, l.Network = address, store.Network()
	return shown{l, orEmpty(history)}, err
}

func writeHistory(s shown, w io.Writer) error {
	if len(s.History) == 0 {
		return nil
	}
	if s.State == "" {
		say(w, "%s is free in network %s", s.Address, s.Network)
	}
	t := newTable(w, "WHEN", "WHAT", "OWNER", "SANDBOX", "INTERFACE", "WHY", "THEN")
	for _, e := range s.History {
		then := string(e.Then)
		if then == "" {
			then = "free"
		}
		t.row(timeCell(e.At), string(e.What), e.Owner.String(), shortID(e.ContainerID), e.IfName, e.Why, then)
	}
	err := t.flush()
	fmt.Fprintln(w)
	return err
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
func describeLease(l lease.Lease, w io.Writer) error {
	if l.State == "" {
		return nil
	}
	t := newTable(w, "Address:", l.Address.String())
	d := description{t}
	d.row("Network:", l.Network)
	d.row("State:", string(l.State))
	d.row("Owner:", l.Owner.String())
	for _, h := range l.Holders {
		d.holder("", h)
	}
	if l.State != lease.Held {
		d.holder("Last ", l.Last)
		d.row("Why:", l.Why)
	}
	if l.Last.ContainerID == "" {
		d.at("Reserved:", l.ReleasedAt)
	} else {
		d.at("Released:", l.ReleasedAt)
	}
	d.at("Until:", l.Until)
	d.row("When given up:", whenGivenUp(l))
	if l.Conflict {
		d.row("Conflict:", "another host has it: it is not given before it ends, even if no other is free")
	}
	fmt.Fprintln(t.w)
	return t.flush()
}

// description is a table of names and values, without a row for what is empty.
type description struct{ *table }

func (d description) row(name, value string) {
	if value != "" {
		d.table.row(name, value)
	}
}

func (d description) at(name string, when time.Time) {
	if !when.IsZero() {
		d.table.row(name, when.Local().Format("2006-01-02 15:04:05 MST"))
	}
}

// holder writes who holds an address, or held it last.
func (d description) holder(last string, h lease.Holder) {
	name := func(s string) string {
		if last == "" {
			return s
		}
		return last + strings.ToLower(s[:1]) + s[1:]
	}
	d.row(name("Sandbox:"), h.ContainerID)
	d.row(name("Interface:"), h.IfName)
	d.row("Pod UID:", h.PodUID)
	d.row("Namespace:", h.Namespace.Path)
	if last == "" {
		d.row("Why:", string(h.Origin))
	}
	d.at("Acquired:", h.Since)
	if h.ContainerID != "" {
		d.row("Boot:", h.Namespace.BootID)
	}
}

// whenGivenUp says what comes after what is held.
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
		return "reserved for the owner until it is released by hand" + byHand
	case after.Until.Equal(l.ByHandUntil):
		return "reserved for the owner until " + timeCell(after.Until) + byHand
	}
	return fmt.Sprintf("reserved for the owner for %s", after.Until.Sub(now))
}
