package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/selection"
)

func newIPAMList(dir *leaseDir, v *verbosity) *cobra.Command {
	var output format
	var network string
	var pod podFlags
	var filter leaseFilter
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the addresses that are not free: who has them, and why",
		Long: `List the addresses that are not free: who holds each, for whom it is reserved, or
what it is in quarantine for. Of all networks, unless --network names one. An address that
a pod's new sandbox takes over from the one before is held by both for that long.
Exit status 0: all could be read; 1: a network could not, which is said; 2: usage or
environment.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if filter.owner, err = pod.owner(); err != nil {
				return err
			}
			networks, err := dir.networks(network)
			if err != nil {
				return err
			}
			return listLeases(cmd.Context(), *dir, networks, filter, output, screenOf(cmd, v))
		},
	}
	addNetwork(cmd, &network, "only of this `network`")
	addPod(cmd, &pod, "only what this `pod` holds or has reserved")
	cmd.Flags().Var(&filter.state, "state", "only what is in this `state`: held, reserved or quarantined")
	cmd.Flags().Var(&filter.addresses, "address", "only this `address`, or those of a network such as 10.3.0.0/28")
	addOutput(cmd, &output)
	return cmd
}

// leaseFilter chooses leases. What is not set chooses all.
type leaseFilter struct {
	owner     attachment.Owner
	state     stateFlag
	addresses addressFlag
}

func (f leaseFilter) chooses(l lease.Lease) bool {
	return (f.owner == attachment.Owner{} || l.Owner == f.owner) &&
		(f.state == "" || l.State == lease.State(f.state)) &&
		(!f.addresses.IsValid() || f.addresses.Contains(l.Address))
}

// stateFlag is the value of --state.
type stateFlag lease.State

func (f *stateFlag) String() string { return string(*f) }
func (f *stateFlag) Type() string   { return "state" }

// Set takes the flag's value.
func (f *stateFlag) Set(s string) error {
	switch lease.State(s) {
	case lease.Held, lease.Reserved, lease.Quarantined:
		*f = stateFlag(s)
		return nil
	}
	return fmt.Errorf("must be %s, %s or %s", lease.Held, lease.Reserved, lease.Quarantined)
}

// addressFlag is the value of --address.
type addressFlag struct{ netip.Prefix }

func (f *addressFlag) Type() string { return "address" }

func (f *addressFlag) String() string {
	if !f.IsValid() {
		return ""
	}
	return f.Prefix.String()
}

// Set takes the flag's value.
func (f *addressFlag) Set(s string) (err error) {
	if a, err := parseAddress(s); err == nil {
		f.Prefix = netip.PrefixFrom(a, a.BitLen())
		return nil
	}
	if f.Prefix, err = netip.ParsePrefix(s); err != nil {
		return errors.New("must be an IP address such as 10.3.0.5 or a network such as 10.3.0.0/28")
	}
	return nil
}

func listLeases(ctx context.Context, dir leaseDir, networks []string, filter leaseFilter, output format, s *screen) error {
	var chosen []lease.Lease
	incomplete := dir.eachStore(networks, s, func(store *lease.Store) error {
		all, err := store.List(ctx)
		if err != nil {
			return err
		}
		for _, l := range all {
			if filter.chooses(l) {
				chosen = append(chosen, l)
			}
		}
		remarks, err := storeRemarks(ctx, store)
		for _, remark := range remarks {
			s.warn("%s", remark)
		}
		return errors.Join(err, store.Verify(ctx))
	})
	if output.isData() {
		if err := output.write(s.out, orEmpty(chosen)); err != nil {
			return err
		}
	} else {
		leaseTable(chosen, output.wide(), s)
	}
	return incomplete
}

func leaseTable(leases []lease.Lease, wide bool, s *screen) {
	t := newTable(wide, columns("ADDRESS", "NETWORK", "STATE", "OWNER", "SANDBOX", "INTERFACE", "SINCE", "UNTIL", "WHY")...)
	for _, l := range leases {
		t.row(l.Address.String(), l.Network, string(l.State), l.Owner.String(),
			ofHolders(l, func(h lease.Holder) string { return selection.ShortID(h.ContainerID) }), ofHolders(l, func(h lease.Holder) string { return h.IfName }),
			timeCell(since(l)), timeCell(l.Until), why(l))
	}
	t.write(s)
}
