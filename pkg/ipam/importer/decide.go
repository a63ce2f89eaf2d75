package importer

import (
	"cmp"
	"fmt"
	"net/netip"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cnicache"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/ipam/reclaim"
	"github.com/relink-cni/relink/pkg/kernel/identity"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// decideEntry decides about an entry that says whose its address is. previous is the lease that the address has, the zero
// Lease for a free address.
func (im *importRun) decideEntry(e Entry, previous lease.Lease) {
	out := EntryOutcome{File: e.Name, Address: e.Address, Attachment: attachment.Key{Network: im.network, ContainerID: e.ContainerID, IfName: e.IfName}}
	cached := im.cacheEntry(out.Attachment)
	if cached.Pod.Name == "" {
		cached.Pod = e.Pod
	}
	h := im.holder(e, cached)
	if previous.HeldBy(out.Attachment) {
		out = im.decidePresent(out, previous)
		im.files = append(im.files, out)
		return
	}
	out.Owner = cached.Pod.Owner()
	imported, judgement := im.complete(lease.Lease{Address: e.Address, Network: im.store, State: lease.Held, Owner: out.Owner, Holders: []lease.Holder{h}}, h, cached, previous.Holders)
	switch {
	case previous.Last.IsAttachment(out.Attachment) && im.isLastGone(previous.Last, judgement):
		// The other plugin was not told, so that the entry is out of date.
		out.Owner, out.State, out.Reason = previous.Owner, Present, "given up since, and "+previous.Describe()
	case isOtherOwners(previous, out.Owner) && isOtherOwners(previous, imported.Owner):
		out.State, out.Reason = Conflict, previous.Describe()
		if judgement.Verdict == sandbox.VerdictGone {
			out.State, out.Reason = OutOfDate, fmt.Sprintf("%s; the %s's sandbox is gone: %s", out.Reason, im.Noun, judgement.Reason())
		}
	case len(im.Pools) > 0 && judgement.Verdict == sandbox.VerdictGone:
		out.State, out.Reason = OutOfDate, fmt.Sprintf("the pool is not asked for it: the %s's sandbox is gone: %s", im.Noun, judgement.Reason())
	case im.addWanted(&out):
		if previous.State == lease.Reserved && previous.ByHand && previous.Owner != (attachment.Owner{}) {
			// It is reserved for this owner, or for the pod by its name, and stays so.
			imported.Owner, imported.ByHand, imported.ByHandAt, imported.ByHandUntil = previous.Owner, true, previous.ByHandAt, previous.ByHandUntil
		}
		im.batch.Leases = append(im.batch.Leases, imported)
		out.State, out.Reason = sandboxState(Imported, judgement)
	}
	im.files = append(im.files, out)
}

// addWanted notes an address that has a lease at the end. It returns false if the pools do not give it to this node, and reports that.
func (im *importRun) addWanted(out *EntryOutcome) bool {
	if reason := im.refused[out.Address]; reason != "" {
		out.State, out.Reason = Refused, reason
		return false
	}
	im.wanted = append(im.wanted, out.Address)
	return true
}

// cacheEntry returns what the caches have of the attachment, the zero Entry for nothing. The other plugin may know the network by another
// name.
func (im *importRun) cacheEntry(key attachment.Key) cnicache.Entry {
	entry, ok := im.node.Entry(key)
	if !ok && im.Alias != "" {
		key.Network = im.Alias
		entry, _ = im.node.Entry(key)
	}
	return entry
}

// isLastGone says whether the last sandbox that held the address is gone, and not only its lease. j is the
// judgement of the entry's sandbox. A sandbox of an earlier boot is gone, unless it was attached again.
func (im *importRun) isLastGone(last lease.Holder, j sandbox.Judgement) bool {
	return isGone(j) || last.Namespace.BootID != im.view.BootID && j.Verdict != sandbox.VerdictAlive
}

// isOtherOwners says whether the lease keeps the address from the owner.
func isOtherOwners(l lease.Lease, owner attachment.Owner) bool {
	return l.State != "" && !l.IsOwnerless() && (l.State != lease.Reserved || l.Owner != owner)
}

// sandboxState is the state of an address whose lease agrees with its entry.
func sandboxState(s EntryState, j sandbox.Judgement) (_ EntryState, reason string) {
	if j.Verdict == sandbox.VerdictGone {
		return NoSandbox, "held until it is reclaimed: " + j.Reason()
	}
	return s, ""
}

// holder is the holder that the entry names. It counts as one of this boot, whatever the time of the entry: the
// clock may have been wrong when it was written.
func (im *importRun) holder(e Entry, cached cnicache.Entry) lease.Holder {
	written := e.Written
	if written.After(im.instant) {
		written = im.instant
	}
	h := lease.Holder{
		ContainerID: e.ContainerID, IfName: e.IfName, Origin: lease.Imported, Since: written.UTC().Truncate(time.Millisecond),
		Policy: lease.Policy{Quarantine: lease.DefaultQuarantine}, Namespace: im.namespaceAt(cached.Netns, e.Address),
	}
	if im.network != im.store {
		h.Network = im.network
	}
	return h
}

// decidePresent is for an address that is held as its entry says.
func (im *importRun) decidePresent(out EntryOutcome, previous lease.Lease) EntryOutcome {
	if out.Owner = previous.Owner; !im.addWanted(&out) {
		return out
	}
	h, _ := previous.Holder(out.Attachment)
	current, judgement := im.complete(previous, h, im.cacheEntry(out.Attachment), reclaim.OtherHolders(previous, h))
	state := Present
	if !reflect.DeepEqual(current, previous) {
		state = Completed
		im.batch.Leases = append(im.batch.Leases, current)
	}
	out.Owner = current.Owner
	out.State, out.Reason = sandboxState(state, judgement)
	return out
}

// complete returns the lease with what is known by now of the holder and of its owner, and judges the holder. It changes only a holder that
// an import has made. Other holders are for the judgement.
func (im *importRun) complete(l lease.Lease, holder lease.Holder, entry cnicache.Entry, otherHolders []lease.Holder) (lease.Lease, sandbox.Judgement) {
	if holder.Origin != lease.Imported {
		return l, im.node.Judge(l.Address, holder, im.instant, otherHolders...)
	}
	key := holder.Key(im.store)
	l.Holders = slices.Clone(l.Holders)
	h := &l.Holders[slices.IndexFunc(l.Holders, func(h lease.Holder) bool { return h.IsAttachment(key) })]
	if l.Owner == (attachment.Owner{}) {
		l.Owner = entry.Pod.Owner()
	}
	if l.Owner == entry.Pod.Owner() { // Else the pod belongs to another owner.
		if h.Pod.Name == "" {
			h.Pod.Namespace, h.Pod.Name = entry.Pod.Namespace, entry.Pod.Name
		}
		h.Pod.UID = cmp.Or(h.Pod.UID, entry.Pod.UID)
	}
	if namespace := im.namespaceAt(entry.Netns, l.Address); h.Namespace.Inode == 0 && namespace.Path != "" {
		h.Namespace = namespace
	}
	if im.Policy.Sticky && !h.Policy.Sticky && !h.Policy.ByOwner && l.Owner != (attachment.Owner{}) {
		h.Policy.Sticky, h.Policy.Retain = true, im.Policy.Retain
	}
	judgement := im.node.Judge(l.Address, *h, im.instant, otherHolders...)
	if h.Policy.ByOwner || len(l.Holders) > 1 || l.Owner != h.Pod.Owner() {
		return l, judgement
	}
	if a, ok := im.ownerOf(key, h.Pod, judgement); ok {
		im.keepForOwner(h, a)
		if !l.ByHand {
			l.Owner, l.Claimed = a.Owner, false
		}
	}
	return l, judgement
}

// namespaceAt returns what the path tells of the namespace of a sandbox that has the address. A path such as
// /proc/<pid>/ns/net can lead to a stranger's namespace by now: only the address shows whose it is.
func (im *importRun) namespaceAt(path string, a netip.Addr) attachment.Namespace {
	id := attachment.Namespace{Path: path}
	if path != "" {
		if read, err := identity.Read(path); err == nil && im.node.Has(read, a) {
			id = read
		}
	}
	id.BootID = im.view.BootID
	return id
}

// isGone says whether the sandbox is gone, for an address that the plugin does not know any more. It does not
// matter if the runtime still knows the sandbox.
func isGone(j sandbox.Judgement) bool {
	return j.Verdict == sandbox.VerdictGone || j.Verdict == sandbox.VerdictDELDue
}

// decideTorn holds back the address of a torn entry.
func (im *importRun) decideTorn(e Entry, previous lease.Lease) {
	out := EntryOutcome{File: e.Name, Address: e.Address, State: Torn}
	switch {
	case previous.State != "" && !previous.IsOwnerless():
		out.Reason = e.Torn + ", and its address is " + previous.Describe()
	case !im.addWanted(&out):
	case previous.State == lease.Reserved:
		out.Reason = e.Torn + ": held back already"
	default:
		out.Reason = e.Torn + ": held back, because a pod may have the address"
		im.batch.Leases = append(im.batch.Leases, lease.Lease{
			Address: e.Address, Network: im.store, State: lease.Reserved, ReleasedAt: im.view.Time,
			Reason: fmt.Sprintf("a pod may have it by %s's %s, which is torn: %s", im.Plugin, filepath.Join(im.Path, e.Name), e.Torn),
		})
	}
	im.files = append(im.files, out)
}

// Caches are the CNI caches of the node.
type Caches interface {
	EntriesOf(network string) []cnicache.Entry
}

// Unlisted returns what pods have in the network by the CNI caches, and what has no entry of the plugin. Whatever range the address is of:
// the plugin may have lost the whole range.
func Unlisted(c Caches, network string, listed func(a netip.Addr, containerID string) bool) (entries []Entry) {
	for _, e := range c.EntriesOf(network) {
		for _, a := range attachment.ResultAddresses(e.Result) {
			if !listed(a, e.Attachment.ContainerID) {
				entries = append(entries, Entry{Address: a, ContainerID: e.Attachment.ContainerID, IfName: e.Attachment.IfName, Pod: e.Pod})
			}
		}
	}
	return entries
}

// decideUnlisted reports an address that a pod has and that the plugin does not know, unless the store knows it or the pod is gone.
func (im *importRun) decideUnlisted(e Entry, previous lease.Lease) {
	key := attachment.Key{Network: im.network, ContainerID: e.ContainerID, IfName: e.IfName}
	cached := im.cacheEntry(key)
	if previous.HeldBy(key) || isGone(im.node.Judge(e.Address, im.holder(e, cached), im.instant, previous.Holders...)) {
		return
	}
	advice := "delete the pod"
	if im.Copy {
		advice = "it is older than the pod, so make it anew; if it still has none, delete the pod"
	}
	im.files = append(im.files, EntryOutcome{
		Address: e.Address, Attachment: key, Owner: cached.Pod.Owner(), State: Missing,
		Reason: fmt.Sprintf("the CNI cache has it for this pod, and %s has no %s of it: %s", im.Path, im.Noun, advice),
	})
}
