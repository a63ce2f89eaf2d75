package whereabouts

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/ipam/importer"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/ipam/reclaim"
)

// Import takes over the addresses that pods of this node have in the network, as importer.Import does. The CNI caches tell which
// these are. path is where the IPPools come from, for people. Without CNI caches it is an error: no allocation would be
// this node's.
func Import(ctx context.Context, store *lease.Store, p Pools, path string, o importer.Options) (importer.ImportReport, error) {
	return importer.Import(ctx, store, func(n *reclaim.Node, network string) (importer.Source, error) { return p.source(n, network, path) }, o)
}

// nodeCaches is what is known of the node.
type nodeCaches interface {
	importer.Caches
	Entries(containerID string) (entries []cnicache.Entry, ok bool)
	CacheProblems() (missing string, torn []string)
	SandboxWith(a netip.Addr) string
}

// source returns what the IPPools say of the network on this node.
func (p Pools) source(n nodeCaches, network, path string) (importer.Source, error) {
	s := importer.Source{Plugin: "Whereabouts", Path: path, Noun: "allocation", Copy: true, Unknown: slices.Clone(p.unknown)}
	missing, torn := n.CacheProblems()
	if missing != "" {
		return s, errors.New("nothing tells which allocations are this node's: " + missing)
	}
	for _, reason := range torn {
		s.Unknown = append(s.Unknown, importer.EntryOutcome{State: importer.Ignored, Reason: reason + ": a pod may be left out because of that"})
	}
	for _, a := range p.allocations {
		entries, ok := n.Entries(a.ContainerID)
		switch e, networkName := entryOf(a, entries, network); {
		case !ok && n.SandboxWith(a.Address) == "":
			s.OnOtherNodes++
		case !ok:
			s.Unknown = append(s.Unknown, importer.EntryOutcome{Address: a.Address, State: importer.Missing, Reason: fmt.Sprintf(
				"%s has it, and no CNI cache of this node has the sandbox %s of its allocation: delete the pod there", n.SandboxWith(a.Address), a.ContainerID)})
		case networkName != network:
			s.OtherNetworks++
		default:
			addEntry(&s, e)
		}
	}
	s.Unlisted = importer.Unlisted(n, network, p.has)
	return s, nil
}

// entryOf returns whose the allocation is, and in which network. The container is one of this node, and the CNI caches have these
// entries of it. If they do not tell the network, it can be this one.
func entryOf(e importer.Entry, entries []cnicache.Entry, network string) (_ importer.Entry, networkName string) {
	e.Name = e.Address.String()
	fits := func(c cnicache.Entry) bool { return c.Attachment.IfName == e.IfName }
	if e.IfName == "" {
		fits = func(c cnicache.Entry) bool { return slices.Contains(attachment.ResultAddresses(c.Result), e.Address) }
	}
	entries = slices.DeleteFunc(slices.Clone(entries), func(c cnicache.Entry) bool { return !fits(c) })
	if i := slices.IndexFunc(entries, func(c cnicache.Entry) bool { return c.Attachment.Network == network }); i >= 0 {
		e.IfName = entries[i].Attachment.IfName
		return e, network
	}
	if len(entries) > 0 {
		return e, entries[0].Attachment.Network
	}
	if e.IfName == "" {
		e.Torn = fmt.Sprintf("no CNI cache tells the interface of the sandbox %s", e.ContainerID)
	}
	return e, network
}

// addEntry adds an entry. With overlapping ranges, an address can have several allocations.
func addEntry(s *importer.Source, e importer.Entry) {
	n := len(s.Entries) - 1
	switch {
	case n < 0 || s.Entries[n].Address != e.Address:
		s.Entries = append(s.Entries, e)
	case s.Entries[n].ContainerID != e.ContainerID || s.Entries[n].IfName != e.IfName:
		s.Unknown = append(s.Unknown, importer.EntryOutcome{Address: e.Address, State: importer.Conflict, Reason: fmt.Sprintf(
			"%s of %s has it by another allocation: delete one of the two pods", s.Entries[n].IfName, s.Entries[n].ContainerID)})
	}
}

// has says whether the container has an allocation of the address.
func (p Pools) has(a netip.Addr, containerID string) bool {
	i, _ := slices.BinarySearchFunc(p.allocations, a, func(e importer.Entry, a netip.Addr) int { return e.Address.Compare(a) })
	for ; i < len(p.allocations) && p.allocations[i].Address == a; i++ {
		if p.allocations[i].ContainerID == containerID {
			return true
		}
	}
	return false
}
