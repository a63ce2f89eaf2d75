package main

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/selection"
)

// ipamList is the verb that shows which leases can be named.
const ipamList = "relink ipam list"

// addLeaseSelection lets a user name leases in the same way as attachments. The names are in args.
func addLeaseSelection(cmd *cobra.Command, dir *leaseDir, s *selection.Selection) {
	s.Lister, s.Addresses = ipamList, true
	addNamespaces(cmd, &s.Namespace)
	addNetwork(cmd, dir, &s.Network, "only addresses of this `network`")
	cmd.Args = cli.Takes(0, -1)
	cmd.ValidArgsFunction = dir.completeLeases(func(h holding) []string {
		return append(namesOfHolding(h), h.lease.Address.String())
	})
	completeLeaseNamespaces(cmd, dir)
}

func completeLeaseNamespaces(cmd *cobra.Command, dir *leaseDir) {
	cli.Must(cmd.RegisterFlagCompletionFunc("namespace", dir.completeLeases(func(h holding) []string { return []string{h.lease.Owner.Namespace} })))
}

// addNetwork lets the verb name a network that has leases.
func addNetwork(cmd *cobra.Command, dir *leaseDir, network *string, usage string) {
	cmd.Flags().StringVar(network, "network", "", usage)
	cli.Must(cmd.RegisterFlagCompletionFunc("network", dir.completeNetworks()))
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
		for _, h := range holdersOf(l) {
			holdings = append(holdings, holding{l, h})
		}
	}
	return holdings
}

// holdersOf returns the holders, or the last one if nobody holds the address.
func holdersOf(l lease.Lease) []lease.Holder {
	if len(l.Holders) == 0 {
		return []lease.Holder{l.Last}
	}
	return l.Holders
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
	if len(holdings) == 0 || len(filter.Names) == 0 {
		filter.Network = "" // Other networks were not read. A network without leases is no mistake.
	}
	if filter.MatchesAll() {
		return holdings, nil
	}
	var candidates []selection.Candidate
	for _, h := range holdings {
		candidates = append(candidates, selection.Candidate{Pod: h.pod(), ContainerID: h.holder.ContainerID, Network: h.lease.Network, Address: h.lease.Address})
	}
	chosen, err := filter.Choose(candidates)
	if err != nil {
		return nil, err
	}
	return selection.Keep(holdings, chosen), nil
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
	return cli.Completion(func(cmd *cobra.Command) (holdings []holding) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionWait)
		defer cancel()
		stores, _ := d.stores("")
		for _, store := range stores {
			leases, _ := store.List(ctx)
			holdings = append(holdings, holdingsOf(leases)...)
		}
		return holdings
	}, valuesOf)
}

// completeNetworks returns a completion with the networks that have leases.
func (d *leaseDir) completeNetworks() cobra.CompletionFunc {
	return cli.Completion(func(*cobra.Command) []string {
		_, names, _ := d.networks()
		return names
	}, func(name string) []string { return []string{name} })
}

func addressesOf(h holding) []string { return []string{h.lease.Address.String()} }
