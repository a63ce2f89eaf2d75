package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/selection"
)

func newIPAMList(dir *leaseDir, v *verbosity) *cobra.Command {
	var output format
	var what leaseChoice
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
			what.Names = args
			return listLeases(cmd.Context(), *dir, what, output, screenOf(cmd, v))
		},
	}
	addLeaseSelection(cmd, dir, &what.Selection)
	cmd.Flags().Var(&what.state, "state", "only what is in this `state`: held, reserved or quarantined")
	must(cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(leaseStates, cobra.ShellCompDirectiveNoFileComp)))
	addOutput(cmd, &output, formatWide, formatName)
	return cmd
}

// leaseChoice chooses leases. A zero field limits nothing.
type leaseChoice struct {
	selection.Selection
	state stateFlag
}

// leaseStates are the values of --state.
var leaseStates = []string{string(lease.Held), string(lease.Reserved), string(lease.Quarantined)}

// stateFlag is the value of --state.
type stateFlag lease.State

func (f *stateFlag) String() string { return string(*f) }
func (f *stateFlag) Type() string   { return "state" }

// Set takes the flag's value.
func (f *stateFlag) Set(s string) error {
	if !slices.Contains(leaseStates, s) {
		return fmt.Errorf("must be %s, %s or %s", lease.Held, lease.Reserved, lease.Quarantined)
	}
	*f = stateFlag(s)
	return nil
}

// of returns the chosen leases in the order in which they are listed.
func (c leaseChoice) of(all []lease.Lease) ([]lease.Lease, error) {
	holdings, err := choose(holdingsOf(all), c.Selection)
	if err != nil {
		return nil, err
	}
	var chosen []lease.Lease
	for _, h := range holdings {
		// All holders of one address follow each other.
		again := len(chosen) > 0 && chosen[len(chosen)-1].Address == h.lease.Address && chosen[len(chosen)-1].Network == h.lease.Network
		if !again && (c.state == "" || h.lease.State == lease.State(c.state)) {
			chosen = append(chosen, h.lease)
		}
	}
	slices.SortFunc(chosen, compareLeases)
	return chosen, nil
}

func listLeases(ctx context.Context, dir leaseDir, what leaseChoice, output format, s *screen) error {
	networks, err := dir.networks(what.Network)
	if err != nil {
		return err
	}
	var all []lease.Lease
	var failed []error
	_ = dir.eachStore(networks, s, func(store *lease.Store) error {
		leases, remarks, err := readLeases(ctx, store)
		all = append(all, leases...)
		for _, remark := range remarks {
			s.warn("%s", remark)
		}
		if err != nil {
			failed = append(failed, err)
		}
		return nil
	})
	chosen, err := what.of(all)
	if err == nil {
		err = writeLeases(chosen, dir, what, output, len(failed) > 0, s)
	}
	for _, f := range failed {
		sayError(s.err, f)
	}
	if err == nil && len(failed) > 0 {
		return errDiffers
	}
	return err
}

// readLeases returns the leases of a store, and remarks on what is wrong with a store that can still be read.
func readLeases(ctx context.Context, store *lease.Store) (all []lease.Lease, remarks []string, err error) {
	if all, err = store.List(ctx); err != nil {
		return nil, nil, err
	}
	remarks, err = storeRemarks(ctx, store)
	return all, remarks, errors.Join(err, store.Verify(ctx))
}

// writeLeases writes the chosen leases. incomplete says that some could not be read.
func writeLeases(chosen []lease.Lease, dir leaseDir, what leaseChoice, output format, incomplete bool, s *screen) error {
	switch {
	case output.isData():
		return output.write(s.out, orEmpty(chosen))
	case output.name == formatName:
		for _, a := range addressNames(chosen) {
			s.say("%s", a)
		}
	case len(chosen) > 0:
		leaseTable(chosen, output.wide(), s)
	case !incomplete && !s.quiet:
		path, err := dir.path()
		if err != nil {
			return err
		}
		s.warn("%s", noLease(what, path))
	}
	return nil
}

// addressNames returns the addresses, each of them once.
func addressNames(leases []lease.Lease) []string {
	said := map[string]bool{}
	var all []string
	for _, l := range leases {
		if a := l.Address.String(); !said[a] {
			said[a] = true
			all = append(all, a)
		}
	}
	return all
}

// noLease returns the line that says that nothing was found.
func noLease(what leaseChoice, dir string) string {
	state := "held or reserved"
	if what.state != "" {
		state = string(what.state)
	}
	switch {
	case len(what.Names) > 0 || what.Namespace != "":
		return "no such address is " + state
	case what.Network != "":
		return fmt.Sprintf("no address of network %s is %s", what.Network, state)
	}
	return fmt.Sprintf("no address is %s in %s", state, dir)
}

func leaseTable(leases []lease.Lease, wide bool, s *screen) {
	t := newTable(wide, column{name: "POD"}, column{name: "ADDRESS"}, column{name: "NETWORK", spare: 2}, column{name: "SANDBOX", wide: true},
		column{name: "INTERFACE", wide: true}, column{name: stateColumn}, column{name: "AGE", spare: 3}, column{name: "SINCE", wide: true},
		column{name: "UNTIL", wide: true}, column{name: "WHY", spare: 1})
	for _, l := range leases {
		t.row(ownerCell(l), l.Address.String(), l.Network, ofHolders(l, func(h lease.Holder) string { return selection.ShortID(h.ContainerID) }),
			ofHolders(l, func(h lease.Holder) string { return h.IfName }), string(l.State), leaseAge(l), timeCell(since(l)), timeCell(l.Until), why(l))
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

// leaseAge is the time since the address got its state. A store's time can be ahead of the clock.
func leaseAge(l lease.Lease) string {
	if since(l).After(time.Now()) {
		return "0s"
	}
	return age(since(l))
}

// since returns when the address got its state.
func since(l lease.Lease) time.Time {
	if l.State == lease.Held {
		return l.Newest().Since
	}
	return l.ReleasedAt
}

// why says why the attachment was given the address, or why nobody has it.
func why(l lease.Lease) string {
	if l.State == lease.Held {
		return string(l.Newest().Origin)
	}
	return l.Why
}

// ofHolders joins the results of f for each holder, or for the last holder if nobody has the address.
func ofHolders(l lease.Lease, f func(lease.Holder) string) string {
	var all []string
	for _, h := range l.Holders {
		all = append(all, f(h))
	}
	if len(all) == 0 {
		return f(l.Last)
	}
	return strings.Join(slices.Compact(all), ",")
}
