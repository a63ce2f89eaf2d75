package reclaim

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/cnicache"
)

// Entries returns what the CNI caches have of the container. ok is true for a container of which they have no more than its name.
func (n *Node) Entries(containerID string) (entries []cnicache.Entry, ok bool) {
	entries, ok = n.cache.entries[containerID]
	return slices.Clone(entries), ok
}

// EntriesOf returns what the CNI caches have of the network, in the order of the container IDs.
func (n *Node) EntriesOf(network string) (entries []cnicache.Entry) {
	for _, id := range slices.Sorted(maps.Keys(n.cache.entries)) {
		for _, e := range n.cache.entries[id] {
			if e.Attachment.Network == network {
				entries = append(entries, e)
			}
		}
	}
	slices.SortStableFunc(entries, func(a, b cnicache.Entry) int {
		return cmp.Or(cmp.Compare(a.Attachment.ContainerID, b.Attachment.ContainerID), cmp.Compare(a.Attachment.IfName, b.Attachment.IfName))
	})
	return entries
}

// CacheProblems says why the CNI caches can have more than Entries returns: missing if there is no cache at all, and a line for each file
// that cannot be read.
func (n *Node) CacheProblems() (missing string, torn []string) {
	if n.cache.missing {
		return n.cache.incomplete(), nil
	}
	return "", slices.Clone(n.cache.Problems)
}

// SandboxWith names the sandbox of this node that has the address, empty for none.
func (n *Node) SandboxWith(a netip.Addr) string {
	n.searchMissing() // Something else than a mount or a process may keep it.
	for _, id := range n.holders[a] {
		if !n.hosts[id] {
			return n.live[id].name
		}
	}
	return ""
}
