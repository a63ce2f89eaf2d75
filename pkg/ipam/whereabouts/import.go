package whereabouts

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/ipam/intake"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/ipam/reclaim"
)

// Import takes over the addresses that pods of this node have in the network, as intake.Import does. The CNI caches tell which
// these are. path is where the IPPools come from, for people. Without CNI caches it is an error: no allocation would be
// this node's.
func Import(ctx context.Context, store *lease.Store, p Pools, path string, o intake.Options) (intake.Report, error) {
	return intake.Import(ctx, store, func(n *reclaim.Node) (intake.Source, error) { return p.on(n, store.Network(), path) }, o)
}

// node is what is known of the node.
type node interface {
	intake.Caches
	Entries(containerID string) (all []cnicache.Entry, known bool)
	UnreadCache() (missing string, torn []string)
	With(a netip.Addr) string
}

// on returns what the IPPools say of the network on this node.
func (p Pools) on(n node, network, path string) (intake.Source, error) {
	s := intake.Source{Plugin: "Whereabouts", Path: path, Noun: "allocation", Copy: true, Unknown: slices.Clone(p.unknown)}
	missing, torn := n.UnreadCache()
	if missing != "" {
		return s, errors.New("nothing tells which allocations are this node's: " + missing)
	}
	for _, why := range torn {
		s.Unknown = append(s.Unknown, intake.Outcome{State: intake.Ignored, Why: why + ": a pod may be left out because of that"})
	}
	for _, a := range p.allocations {
		entries, known := n.Entries(a.containerID)
		switch e, of := place(a, entries, network); {
		case !known && n.With(a.address) == "":
			s.Elsewhere++
		case !known:
			s.Unknown = append(s.Unknown, intake.Outcome{Address: a.address, State: intake.Missing, Why: fmt.Sprintf(
				"%s has it, and no CNI cache of this node has the sandbox %s of its allocation: delete the pod there", n.With(a.address), a.containerID)})
		case of != network:
			s.OtherNetworks++
		default:
			add(&s, e)
		}
	}
	s.Unlisted = intake.Unlisted(n, network, p.has)
	return s, nil
}

// place returns whose the allocation is, and in which network. The container is one of this node, and the CNI caches have these
// entries of it. If they do not tell the network, it can be this one.
func place(a allocation, entries []cnicache.Entry, network string) (_ intake.Entry, of string) {
	e := intake.Entry{Address: a.address, Name: a.address.String(), ContainerID: a.containerID, IfName: a.ifName, Pod: a.pod}
	fits := func(c cnicache.Entry) bool { return c.Attachment.IfName == a.ifName }
	if a.ifName == "" {
		fits = func(c cnicache.Entry) bool { return slices.Contains(c.Addresses(), a.address) }
	}
	entries = slices.DeleteFunc(slices.Clone(entries), func(c cnicache.Entry) bool { return !fits(c) })
	if i := slices.IndexFunc(entries, func(c cnicache.Entry) bool { return c.Attachment.Network == network }); i >= 0 {
		e.IfName = entries[i].Attachment.IfName
		return e, network
	}
	if len(entries) > 0 {
		return e, entries[0].Attachment.Network
	}
	if a.ifName == "" {
		e.Torn = fmt.Sprintf("no CNI cache tells the interface of the sandbox %s", a.containerID)
	}
	return e, network
}

// add adds an entry. With overlapping ranges, an address can have several allocations.
func add(s *intake.Source, e intake.Entry) {
	n := len(s.Entries) - 1
	switch {
	case n < 0 || s.Entries[n].Address != e.Address:
		s.Entries = append(s.Entries, e)
	case s.Entries[n].ContainerID != e.ContainerID || s.Entries[n].IfName != e.IfName:
		s.Unknown = append(s.Unknown, intake.Outcome{Address: e.Address, State: intake.Conflict, Why: fmt.Sprintf(
			"%s of %s has it by another allocation: delete one of the two pods", s.Entries[n].IfName, s.Entries[n].ContainerID)})
	}
}

// has says whether the container has an allocation of the address.
func (p Pools) has(a netip.Addr, containerID string) bool {
	i, _ := slices.BinarySearchFunc(p.allocations, a, func(al allocation, a netip.Addr) int { return al.address.Compare(a) })
	for ; i < len(p.allocations) && p.allocations[i].address == a; i++ {
		if p.allocations[i].containerID == containerID {
			return true
		}
	}
	return false
}
