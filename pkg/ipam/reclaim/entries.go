package reclaim

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/cnicache"
)

// Entries returns what the CNI caches have of the container. known is true for a container of which they have no more than its name.
func (n *Node) Entries(containerID string) (all []cnicache.Entry, known bool) {
	all, known = n.cache.entries[containerID]
	return slices.Clone(all), known
}

// EntriesOf returns what the CNI caches have of the network, in the order of the container IDs.
func (n *Node) EntriesOf(network string) (all []cnicache.Entry) {
	for _, id := range slices.Sorted(maps.Keys(n.cache.entries)) {
		for _, e := range n.cache.entries[id] {
			if e.Attachment.Network == network {
				all = append(all, e)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b cnicache.Entry) int {
		return cmp.Or(cmp.Compare(a.Attachment.ContainerID, b.Attachment.ContainerID), cmp.Compare(a.Attachment.IfName, b.Attachment.IfName))
	})
	return all
}

// UnreadCache says why the CNI caches can have more than Entries returns: missing if there is no cache at all, and a line for each file
// that cannot be read.
func (n *Node) UnreadCache() (missing string, torn []string) {
	if n.cache.missing {
		return n.cache.blind, nil
	}
	return "", slices.Clone(n.cache.problems)
}

// With names the sandbox of this node that has the address, empty for none.
func (n *Node) With(a netip.Addr) string {
	for _, at := range n.having[a] {
		if !n.hosts[at] {
			return n.live[at].name
		}
	}
	return ""
}
