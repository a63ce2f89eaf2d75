package capture

import (
	"fmt"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Identity says whose an interface is, as far as the CNI caches and the checkpoints of its sandbox tell.
type Identity struct {
	Attachment attachment.Key
	Pod        attachment.Pod
	CNI        checkpoint.CNI
	// InCache says that a cache has this very interface.
	InCache bool
	// Note says which part of Attachment is made up, and why, and what else could not be found out.
	Note string
}

// cacheEntry is an entry of a cache with the namespace that its path leads to now.
type cacheEntry struct {
	cnicache.Entry
	namespace attachment.NamespaceFile
}

// identify returns whose the link in the namespace is. If there are several entries, those with the
// live MAC go first, then those of Multus's delegates: the runtime's cache has Multus with its first
// delegate's interface. Entries that disagree about the container ID tell nothing. One of them is
// left over, and nobody knows which.
func identify(namespace attachment.Namespace, link netstate.Link, cache []cacheEntry) Identity {
	ofSandbox := filterEntries(cache, func(e cacheEntry) bool { return e.namespace == namespace.File() })
	exact := filterEntries(ofSandbox, func(e cacheEntry) bool { return e.Attachment.IfName == link.Name })
	exact = preferEntries(exact, func(e cacheEntry) bool { return e.MAC == link.MAC })
	exact = preferEntries(exact, func(e cacheEntry) bool { return e.Delegate })
	entries, note := exact, "no CNI cache knows the sandbox"
	if len(exact) == 0 && len(ofSandbox) > 0 {
		entries, note = ofSandbox, "no CNI cache knows the interface's network"
	}
	unnamed := Identity{Attachment: attachment.Key{
		Network: checkpoint.NetworkUnknown, ContainerID: checkpoint.UnnamedID(namespace), IfName: link.Name,
	}}
	switch ids := containerIDs(entries); {
	case len(ids) > 1:
		note = fmt.Sprintf("the CNI cache has %d container IDs for it", len(ids))
	case len(ids) == 1 && len(exact) > 0:
		e := exact[0]
		return Identity{Attachment: e.Attachment, Pod: e.Pod, CNI: checkpoint.CNI{Config: e.Config, Result: e.Result}, InCache: true}
	case len(ids) == 1:
		unnamed.Attachment.ContainerID, unnamed.Pod = ids[0], entries[0].Pod
		unnamed.Note = note + `: it is remembered as "` + checkpoint.NetworkUnknown + `"`
		return unnamed
	}
	unnamed.Note = note + ": its container ID is made from the namespace"
	return unnamed
}

// withRecords returns the owner with what the checkpoints of the same namespace tell. They tell nothing where
// they disagree about the container ID, or where theirs is made from the namespace too.
func (o Identity) withRecords(namespace attachment.Namespace, records []checkpoint.Record) Identity {
	if o.Attachment.ContainerID != checkpoint.UnnamedID(namespace) {
		return o
	}
	id, pod := "", attachment.Pod{}
	for _, r := range records {
		switch containerID := r.Attachment.ContainerID; {
		case containerID == checkpoint.UnnamedID(namespace):
			continue
		case id != "" && id != containerID:
			return o
		default:
			id = containerID
		}
		if r.Pod.Name != "" {
			pod = r.Pod
		}
	}
	if id == "" {
		return o
	}
	o.Attachment.ContainerID, o.Pod = id, pod
	o.Note = `no CNI cache knows the interface's network: it is remembered as "` + checkpoint.NetworkUnknown + `"`
	return o
}

func filterEntries(entries []cacheEntry, match func(cacheEntry) bool) []cacheEntry {
	var matches []cacheEntry
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

func containerIDs(entries []cacheEntry) []string {
	var ids []string
	for _, e := range entries {
		if !slices.Contains(ids, e.Attachment.ContainerID) {
			ids = append(ids, e.Attachment.ContainerID)
		}
	}
	return ids
}

// addNote adds to the Note.
func (o *Identity) addNote(text string) {
	if o.Note != "" {
		o.Note += "; "
	}
	o.Note += text
}
