package reclaim

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// Cache is what the CNI caches have.
type Cache struct {
	dir string
	// entries are by container ID. A container that only Multus knows may have none.
	entries map[string][]cnicache.Entry
	// missing says that there is no cache at all.
	missing bool
	// Problems say what cannot be read, and why. Then there may be more entries than these.
	Problems []string
}

// ReadCache reads the caches below dir. A runtime that has attached anything has a cache. If dir has none, the
// cache is elsewhere.
func ReadCache(dir string) (Cache, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Cache{}, err
	}
	c := Cache{dir: dir, entries: map[string][]cnicache.Entry{}}
	if _, err := os.Stat(filepath.Join(dir, "results")); err != nil {
		c.missing, c.Problems = true, []string{fmt.Sprintf("there is no CNI cache in %s (%s): --cni-cache names the directory that has it", dir, err)}
		return c, nil
	}
	entries, unreadable, err := cnicache.Read(dir)
	delegating, listErr := cnicache.MultusContainerIDs(dir)
	if err := errors.Join(err, listErr); err != nil {
		c.Problems = []string{err.Error()}
		return c, nil
	}
	for _, e := range entries {
		id := e.Attachment.ContainerID
		c.entries[id] = append(c.entries[id], e)
	}
	for _, id := range delegating {
		if !c.has(id) {
			c.entries[id] = nil
		}
	}
	for _, err := range unreadable {
		c.Problems = append(c.Problems, err.Error())
	}
	return c, nil
}

// incomplete is why there may be more entries than these, empty if all are known.
func (c Cache) incomplete() string {
	switch n := len(c.Problems); n {
	case 0:
		return ""
	case 1:
		return c.Problems[0]
	default:
		return fmt.Sprintf("%s, and %d more files cannot be read", c.Problems[0], n-1)
	}
}

// has says whether the caches have the container.
func (c Cache) has(containerID string) bool {
	_, found := c.entries[containerID]
	return found
}

// Judge completes the judgement of a container whose network namespace is gone. What the caches have, the runtime has yet to delete.
func (c Cache) Judge(containerID string, j sandbox.Judgement) sandbox.Judgement {
	switch {
	case c.has(containerID):
		return j.With(sandbox.VerdictDELDue, "the CNI cache in %s has it: its runtime owes a DEL", c.dir)
	case c.incomplete() != "":
		return j.With(sandbox.VerdictUnknown, "whether its runtime owes a DEL is not known: %s", c.incomplete())
	}
	return j.With(sandbox.VerdictGone, "the CNI cache in %s does not have it", c.dir)
}

// Entry returns what the CNI caches have of the attachment. An entry that names the pod goes first. An entry of
// another network only shows that the container is known.
func (n *Node) Entry(key attachment.Key) (cnicache.Entry, bool) {
	entries := slices.DeleteFunc(slices.Clone(n.cache.entries[key.ContainerID]), func(e cnicache.Entry) bool { return e.Attachment != key })
	if len(entries) == 0 {
		return cnicache.Entry{}, false
	}
	if i := slices.IndexFunc(entries, func(e cnicache.Entry) bool { return e.Pod.Name != "" }); i >= 0 {
		return entries[i], true
	}
	return entries[0], true
}

// Entries returns what the CNI caches have of the container. ok is true for a container of which they have no more than its name.
func (n *Node) Entries(containerID string) (entries []cnicache.Entry, ok bool) {
	entries, ok = n.cache.entries[containerID]
	return slices.Clone(entries), ok
}

// EntriesOf returns what the CNI caches have of the network, in the order of the container IDs.
func (n *Node) EntriesOf(network string) (entries []cnicache.Entry) {
	for _, ofContainer := range n.cache.entries {
		for _, e := range ofContainer {
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
