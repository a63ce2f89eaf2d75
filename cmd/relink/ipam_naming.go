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
	cmd.ValidArgsFunction = dir.completesLeases(func(h holding) []string {
		return append(namesOfHolding(h), h.lease.Address.String())
	})
	completeLeaseNamespaces(cmd, dir)
}

func completeLeaseNamespaces(cmd *cobra.Command, dir *leaseDir) {
	must(cmd.RegisterFlagCompletionFunc("namespace", dir.completesLeases(func(h holding) []string { return []string{h.lease.Owner.Namespace} })))
}

// addNetwork lets the verb name a network that has leases.
func addNetwork(cmd *cobra.Command, dir *leaseDir, network *string, usage string) {
	cmd.Flags().StringVar(network, "network", "", usage)
	must(cmd.RegisterFlagCompletionFunc("network", dir.completesNetworks))
}

// holding is an address with one of its holders. If nobody holds the address, it has one holding, with the last holder.
type holding struct {
	lease  lease.Lease
	holder lease.Holder
}

// holdingsOf returns the holdings of the leases.
func holdingsOf(leases []lease.Lease) []holding {
	var all []holding
	for _, l := range leases {
		if len(l.Holders) == 0 {
			all = append(all, holding{l, l.Last})
		}
		for _, h := range l.Holders {
			all = append(all, holding{l, h})
		}
	}
	return all
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

func (h holding) thing() selection.Thing {
	return selection.Thing{Pod: h.pod(), ContainerID: h.holder.ContainerID, Network: h.lease.Network}
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
func choose(all []holding, by selection.Selection) ([]holding, error) {
	prefixes, names := splitNames(by.Names)
	if by.Names = names; len(all) == 0 || len(names) == 0 {
		by.Network = "" // Other networks were not read. A network without leases is no mistake.
	}
	if by.All() && len(prefixes) == 0 {
		return all, nil
	}
	things := make([]selection.Thing, len(all))
	for i, h := range all {
		things[i] = h.thing()
	}
	chosen, err := by.Choose(things)
	if err != nil {
		return nil, err
	}
	if len(prefixes) > 0 {
		if err := choosePrefixes(chosen, all, things, by, prefixes); err != nil {
			return nil, err
		}
	}
	var those []holding
	for i, h := range all {
		if chosen[i] {
			those = append(those, h)
		}
	}
	return those, nil
}

// choosePrefixes adds to chosen the holdings with an address in one of the prefixes, within the limits of the
// selection. If the selection has no names, chosen has only applied the limits so far.
func choosePrefixes(chosen []bool, all []holding, things []selection.Thing, by selection.Selection, prefixes []netip.Prefix) error {
	within := slices.Clone(chosen)
	if len(by.Names) == 0 {
		clear(chosen)
	} else {
		by.Names = nil
		var err error
		if within, err = by.Choose(things); err != nil {
			return err
		}
	}
	for _, prefix := range prefixes {
		found := false
		for i, h := range all {
			if within[i] && prefix.Contains(h.lease.Address) {
				chosen[i], found = true, true
			}
		}
		if !found {
			return noneIn(prefix)
		}
	}
	return nil
}

func noneIn(prefix netip.Prefix) error {
	if prefix.IsSingleIP() {
		return fmt.Errorf("%q %w: no such address is held, reserved or in quarantine; %s shows those that are", prefix.Addr(), selection.ErrNothing, ipamList)
	}
	return fmt.Errorf("%q %w: no address in it is held, reserved or in quarantine; %s shows those that are", prefix, selection.ErrNothing, ipamList)
}

// splitNames separates addresses and prefixes from other names. No namespace and no container ID of a runtime looks
// like an address. The name of a pod can. The user then names it with its namespace.
func splitNames(all []string) (prefixes []netip.Prefix, names []string) {
	for _, name := range all {
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

// completesLeases returns a completion with values from the stores. A store that cannot be read in time adds no values.
func (d *leaseDir) completesLeases(of func(holding) []string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		var all []string
		for _, h := range d.holdingsInTime(cmd.Context()) {
			all = append(all, of(h)...)
		}
		return completionsOf(all, begun), cobra.ShellCompDirectiveNoFileComp
	}
}

// holdingsInTime returns the holdings of the stores that can be read in time.
func (d *leaseDir) holdingsInTime(ctx context.Context) []holding {
	networks, err := d.networks("")
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionWait)
	defer cancel()
	var all []lease.Lease
	for _, network := range networks {
		store, err := d.open(network)
		if err != nil {
			continue
		}
		leases, err := store.List(ctx)
		if err == nil {
			all = append(all, leases...)
		}
	}
	return holdingsOf(all)
}

func (d *leaseDir) completesNetworks(_ *cobra.Command, _ []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
	all, err := d.networks("")
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return completionsOf(all, begun), cobra.ShellCompDirectiveNoFileComp
}

// eachCompletes returns a completion for several arguments, where each argument has a completion of its own.
func eachCompletes(each ...cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) >= len(each) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return each[len(args)](cmd, args, begun)
	}
}

func addressesOf(h holding) []string { return []string{h.lease.Address.String()} }
