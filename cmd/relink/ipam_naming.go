package main

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/selection"
)

// leaseNameUsage shows in a usage line how to name leases.
const leaseNameUsage = "[[NAMESPACE/]POD|ID|ADDRESS|PREFIX]..."

// leaseNamingHelp is in the help of every verb that selects leases.
const leaseNamingHelp = `POD is the name of a pod. ID is a container ID or its beginning: relink ipam list -o wide shows
it. PREFIX stands for the addresses in it, such as 10.3.0.0/28. A name that matches nothing is
an error. So is one that matches several pods.`

// ipamList is the verb that shows which leases can be named.
const ipamList = "relink ipam list"

// addLeaseSelection lets a user name leases in the same way as attachments. The names are in args.
func addLeaseSelection(cmd *cobra.Command, dir *leaseDir, s *selection.Selection) {
	s.Lister = ipamList
	addNamespaces(cmd, &s.Namespace)
	addNetwork(cmd, dir, &s.Network, "only addresses of this `network`")
	cmd.Args = cobra.ArbitraryArgs
	cmd.ValidArgsFunction = dir.completeLeases(func(h holding) []string {
		return append(namesOfHolding(h), h.lease.Address.String())
	})
	completeLeaseNamespaces(cmd, dir)
}

func completeLeaseNamespaces(cmd *cobra.Command, dir *leaseDir) {
	must(cmd.RegisterFlagCompletionFunc("namespace", dir.completeLeases(func(h holding) []string { return []string{h.lease.Owner.Namespace} })))
}

// addNetwork lets the verb name a network that has leases.
func addNetwork(cmd *cobra.Command, dir *leaseDir, network *string, usage string) {
	cmd.Flags().StringVar(network, "network", "", usage)
	must(cmd.RegisterFlagCompletionFunc("network", dir.completeNetworks))
}

// holding is an address with one of its holders. If nobody holds the address, it has one holding, with the last holder.
type holding struct {
	lease  lease.Lease
	holder lease.Holder
}

// holdingsOf returns the holdings of the leases.
func holdingsOf(leases []lease.Lease) []holding {
	var holdings []holding
	for _, l := range leases {
		if len(l.Holders) == 0 {
			holdings = append(holdings, holding{l, l.Last})
		}
		for _, h := range l.Holders {
			holdings = append(holdings, holding{l, h})
		}
	}
	return holdings
}

// podOf returns the owner's pod, or the zero Pod if the owner is no pod.
func podOf(o attachment.Owner) attachment.Pod {
	if o.Kind != attachment.OwnerPod {
		return attachment.Pod{}
	}
	return attachment.Pod{Namespace: o.Namespace, Name: o.Name}
}

// pod returns the pod that has the address or had it last. An address that waits for a pod by its name is that pod's.
func (h holding) pod() attachment.Pod {
	if pod := podOf(h.lease.Owner); pod.Name != "" {
		return pod
	}
	return attachment.Pod{Namespace: h.holder.Pod.Namespace, Name: h.holder.Pod.Name}
}

func (h holding) thing() selection.Candidate {
	return selection.Candidate{Pod: h.pod(), ContainerID: h.holder.ContainerID, Network: h.lease.Network}
}

// namesOfHolding returns the names that select the holding. The address is not among them.
func namesOfHolding(h holding) []string {
	switch pod := h.pod(); {
	case pod.Name != "":
		return []string{pod.String()}
	case h.holder.ContainerID != "":
		return []string{h.holder.ContainerID}
	}
	return nil
}

// choose returns the holdings that the selection names. errors.Is matches selection.ErrNothing and
// selection.ErrAmbiguous.
func choose(holdings []holding, filter selection.Selection) ([]holding, error) {
	prefixes, names := splitNames(filter.Names)
	if filter.Names = names; len(holdings) == 0 || len(names) == 0 {
		filter.Network = "" // Other networks were not read. A network without leases is no mistake.
	}
	if filter.MatchesAll() && len(prefixes) == 0 {
		return holdings, nil
	}
	things := make([]selection.Candidate, len(holdings))
	for i, h := range holdings {
		things[i] = h.thing()
	}
	chosen, err := filter.Choose(things)
	if err != nil {
		return nil, err
	}
	if len(prefixes) > 0 {
		if err := choosePrefixes(chosen, holdings, things, filter, prefixes); err != nil {
			return nil, err
		}
	}
	var selected []holding
	for i, h := range holdings {
		if chosen[i] {
			selected = append(selected, h)
		}
	}
	return selected, nil
}

// choosePrefixes adds to chosen the holdings with an address in one of the prefixes, within the limits of the
// selection. If the selection has no names, chosen has only applied the limits so far.
func choosePrefixes(chosen []bool, holdings []holding, things []selection.Candidate, filter selection.Selection, prefixes []netip.Prefix) error {
	within := slices.Clone(chosen)
	if len(filter.Names) == 0 {
		clear(chosen)
	} else {
		filter.Names = nil
		var err error
		if within, err = filter.Choose(things); err != nil {
			return err
		}
	}
	for _, prefix := range prefixes {
		found := false
		for i, h := range holdings {
			if within[i] && prefix.Contains(h.lease.Address) {
				chosen[i], found = true, true
			}
		}
		if !found {
			return noLeaseIn(prefix)
		}
	}
	return nil
}

func noLeaseIn(prefix netip.Prefix) error {
	name := prefix.String()
	if prefix.IsSingleIP() {
		name = prefix.Addr().String()
	}
	return fmt.Errorf("%q %w: no such address is held, reserved or in quarantine; %s shows those that are", name, selection.ErrNothing, ipamList)
}

// splitNames separates addresses and prefixes from other names. No namespace and no container ID of a runtime looks
// like an address. The name of a pod can. The user then names it with its namespace.
func splitNames(args []string) (prefixes []netip.Prefix, names []string) {
	for _, name := range args {
		if a, err := parseAddress(name); err == nil {
			prefixes = append(prefixes, netip.PrefixFrom(a, a.BitLen()))
		} else if p, err := netip.ParsePrefix(name); err == nil {
			prefixes = append(prefixes, p.Masked())
		} else {
			names = append(names, name)
		}
	}
	return prefixes, names
}

// compareLeases orders leases as kubectl orders pods: by namespace and name. So a pod's addresses are together, as in
// relink list. Leases without a pod come last.
func compareLeases(a, b lease.Lease) int {
	podA, podB := podOf(a.Owner), podOf(b.Owner)
	return cmp.Or(compareBool(podA.Name == "", podB.Name == ""), strings.Compare(podA.Namespace, podB.Namespace),
		strings.Compare(podA.Name, podB.Name), a.Address.Compare(b.Address), strings.Compare(a.Network, b.Network))
}

// completionWait bounds the wait for a store that is in use: the user has pressed a key and is waiting.
const completionWait = 200 * time.Millisecond

// completeLeases returns a completion with values from the stores. A store that cannot be read in time adds no values.
func (d *leaseDir) completeLeases(valuesOf func(holding) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var values []string
		for _, h := range d.holdingsInTime(cmd.Context()) {
			values = append(values, valuesOf(h)...)
		}
		return withPrefix(values, prefix), cobra.ShellCompDirectiveNoFileComp
	}
}

// holdingsInTime returns the holdings of the stores that can be read in time.
func (d *leaseDir) holdingsInTime(ctx context.Context) []holding {
	stores, err := d.stores("")
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionWait)
	defer cancel()
	var collected []lease.Lease
	for _, store := range stores {
		leases, _ := store.List(ctx)
		collected = append(collected, leases...)
	}
	return holdingsOf(collected)
}

func (d *leaseDir) completeNetworks(_ *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
	stores, err := d.stores("")
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return withPrefix(texts(stores, (*lease.Store).Network), prefix), cobra.ShellCompDirectiveNoFileComp
}

// completeArgs returns a completion for several arguments, where each argument has a completion of its own.
func completeArgs(completers ...cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= len(completers) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return completers[len(args)](cmd, args, prefix)
	}
}

func addressesOf(h holding) []string { return []string{h.lease.Address.String()} }
