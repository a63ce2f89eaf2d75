package adopt

import (
	"fmt"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/netstate"
)

// Owner says whose an interface is, as far as the CNI caches and the checkpoints of its sandbox tell.
type Owner struct {
	Attachment attachment.Key
	Pod        attachment.Pod
	CNI        checkpoint.CNI
	// Named says that a cache has this very interface.
	Named bool
	// Note says which part of Attachment is made up, and why, and what else could not be found out.
	Note string
}

// located is an entry of a cache with the namespace that its path leads to now.
type located struct {
	cnicache.Entry
	device, inode uint64
}

// ownerOf returns whose the link in the namespace is. If there are several entries, those with the
// live MAC go first, then those of Multus's delegates: the runtime's cache has Multus with its first
// delegate's interface. Entries that disagree about the container ID tell nothing. One of them is
// left over, and nobody knows which.
func ownerOf(namespace attachment.Namespace, link netstate.Link, cache []located) Owner {
	ofSandbox := only(cache, func(e located) bool { return e.device == namespace.Device && e.inode == namespace.Inode })
	exact := only(ofSandbox, func(e located) bool { return e.Attachment.IfName == link.Name })
	exact = preferred(exact, func(e located) bool { return e.MAC == link.MAC })
	exact = preferred(exact, func(e located) bool { return e.Delegate })
	known, note := exact, "no CNI cache knows the sandbox"
	if len(exact) == 0 && len(ofSandbox) > 0 {
		known, note = ofSandbox, "no CNI cache knows the interface's network"
	}
	unnamed := Owner{Attachment: attachment.Key{
		Network: checkpoint.NetworkUnknown, ContainerID: checkpoint.UnnamedID(namespace), IfName: link.Name,
	}}
	switch ids := containerIDs(known); {
	case len(ids) > 1:
		note = fmt.Sprintf("the CNI cache has %d container IDs for it", len(ids))
	case len(ids) == 1 && len(exact) > 0:
		e := exact[0]
		return Owner{Attachment: e.Attachment, Pod: e.Pod, CNI: checkpoint.CNI{Config: e.Config, Result: e.Result}, Named: true}
	case len(ids) == 1:
		unnamed.Attachment.ContainerID, unnamed.Pod = ids[0], known[0].Pod
		unnamed.Note = note + `: it is remembered as "` + checkpoint.NetworkUnknown + `"`
		return unnamed
	}
	unnamed.Note = note + ": its container ID is made from the namespace"
	return unnamed
}

// byNeighbours returns the owner with what the checkpoints of the same namespace tell. They tell nothing where
// they disagree about the container ID, or where theirs is made from the namespace too.
func (o Owner) byNeighbours(namespace attachment.Namespace, records []checkpoint.Record) Owner {
	if o.Attachment.ContainerID != checkpoint.UnnamedID(namespace) {
		return o
	}
	id, pod := "", attachment.Pod{}
	for _, r := range records {
		switch is := r.Attachment.ContainerID; {
		case is == checkpoint.UnnamedID(namespace):
			continue
		case id != "" && id != is:
			return o
		default:
			id = is
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

func only(entries []located, is func(located) bool) []located {
	var some []located
	for _, e := range entries {
		if is(e) {
			some = append(some, e)
		}
	}
	return some
}

// preferred is only. If only returns nothing, it returns all entries.
func preferred(entries []located, is func(located) bool) []located {
	if some := only(entries, is); len(some) > 0 {
		return some
	}
	return entries
}

func containerIDs(entries []located) []string {
	var ids []string
	for _, e := range entries {
		if !slices.Contains(ids, e.Attachment.ContainerID) {
			ids = append(ids, e.Attachment.ContainerID)
		}
	}
	return ids
}

// note adds to the Note.
func (o *Owner) note(more string) {
	if o.Note != "" {
		o.Note += "; "
	}
	o.Note += more
}
