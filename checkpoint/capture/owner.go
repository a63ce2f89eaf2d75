package capture

import (
	"context"
	"errors"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
)

// Identity says whose an interface is, as far as the CNI caches and the checkpoints of its sandbox tell.
type Identity struct {
	Attachment attachment.Key
	Pod        attachment.Pod
	CNI        checkpoint.CNI
	// InCache says that a cache or a lease has this very interface.
	InCache bool
	// Note says which part of Attachment is made up, and why, and what else could not be found out.
	Note string
}

// cacheEntry is an entry of a cache with the namespace that its path leads to now, or the holder of a lease.
type cacheEntry struct {
	cnicache.Entry
	namespace attachment.NamespaceFile
	// recorded is the namespace of a holder.
	recorded attachment.Namespace
}

// isOf says that the entry is of the sandbox.
func (e cacheEntry) isOf(namespace attachment.Namespace) bool {
	return e.namespace == namespace.File() && (e.recorded == (attachment.Namespace{}) || e.recorded.Same(namespace) == nil)
}

// holderEntries returns the holders of all leases of the node whose namespaces were recorded: an ADD that was killed has left nothing else
// that tells whose its interface is.
func holderEntries(ctx context.Context, store *checkpoint.Store) (entries []cacheEntry, problems []string) {
	sources := audit.Sources{Store: store}
	if err := sources.OpenLeases(""); err != nil {
		return nil, []string{printable.Joined(err)}
	}
	for _, s := range sources.Leases {
		holders, err := s.Holders(ctx)
		if err != nil && !errors.Is(err, lease.ErrNotLeased) {
			sources.Problems = append(sources.Problems, printable.Joined(err))
		}
		for _, holder := range holders {
			if h := holder.Holder; h.Namespace.Inode != 0 {
				entry := cnicache.Entry{Attachment: h.Key(s.Network()), Pod: h.Pod}
				entries = append(entries, cacheEntry{Entry: entry, namespace: h.Namespace.File(), recorded: h.Namespace})
			}
		}
	}
	return entries, sources.Problems
}

// identify returns whose the link in the namespace is. If there are several entries, those with the
// live MAC go first, then those of Multus's delegates: the runtime's cache has Multus with its first
// delegate's interface. An entry whose name no device has is of the one that has its MAC. If no entry is of the interface, the container ID can be
// that of another interface of the sandbox, or of the records of the namespace. Entries that disagree about the container ID tell nothing, and
// neither do such records. One of the entries is left over, and nobody knows which.
func identify(namespace attachment.Namespace, devices netstate.Devices, link netstate.Link, cache []cacheEntry, records []checkpoint.Record) Identity {
	ofSandbox := filterEntries(cache, func(e cacheEntry) bool { return e.isOf(namespace) })
	exact := filterEntries(ofSandbox, func(e cacheEntry) bool { return e.Attachment.IfName == link.Name })
	if len(exact) == 0 { // It can have been renamed.
		exact = filterEntries(ofSandbox, func(e cacheEntry) bool {
			_, exists := devices.ByName(e.Attachment.IfName)
			return e.MAC != "" && e.MAC == link.MAC && !exists
		})
	}
	exact = preferEntries(exact, func(e cacheEntry) bool { return e.MAC == link.MAC })
	exact = preferEntries(exact, func(e cacheEntry) bool { return e.Delegate })
	if _, _, unique := commonSandbox(exact); unique {
		e := exact[0]
		return Identity{Attachment: e.Attachment, Pod: e.Pod, CNI: checkpoint.CNI{Config: e.Config, Result: e.Result}, InCache: true}
	}
	unnamed := checkpoint.UnnamedID(namespace)
	var recorded []cacheEntry
	for _, r := range records {
		if r.Attachment.ContainerID != unnamed {
			recorded = append(recorded, cacheEntry{Entry: cnicache.Entry{Attachment: r.Attachment, Pod: r.Pod}})
		}
	}
	o := Identity{Attachment: attachment.Key{Network: checkpoint.NetworkUnknown, IfName: link.Name}}
	o.Note = `no CNI cache knows the interface's network: it is remembered as "` + checkpoint.NetworkUnknown + `"`
	for _, entries := range [][]cacheEntry{ofSandbox, recorded} {
		var unique bool
		if o.Attachment.ContainerID, o.Pod, unique = commonSandbox(entries); unique {
			return o
		}
	}
	o.Attachment.ContainerID, o.Pod, o.Note = unnamed, attachment.Pod{}, "no CNI cache knows the sandbox"
	if len(ofSandbox) > 0 {
		o.Note = "the CNI caches have several container IDs for it"
	}
	o.Note += ": its container ID is made from the namespace"
	return o
}

// commonSandbox returns the container ID of the entries, and their pod. unique says that there is an entry, and that all have that ID.
func commonSandbox(entries []cacheEntry) (containerID string, pod attachment.Pod, unique bool) {
	for i, e := range entries {
		if i > 0 && e.Attachment.ContainerID != containerID {
			return "", attachment.Pod{}, false
		}
		if containerID = e.Attachment.ContainerID; e.Pod.Name != "" {
			pod = e.Pod
		}
	}
	return containerID, pod, len(entries) > 0
}

func filterEntries(entries []cacheEntry, match func(cacheEntry) bool) (matches []cacheEntry) {
	for _, e := range entries {
		if match(e) {
			matches = append(matches, e)
		}
	}
	return matches
}

// preferEntries is filterEntries. If filterEntries returns nothing, it returns all entries.
func preferEntries(entries []cacheEntry, match func(cacheEntry) bool) []cacheEntry {
	if matches := filterEntries(entries, match); len(matches) > 0 {
		return matches
	}
	return entries
}
