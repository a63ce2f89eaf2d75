package importer

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
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
	key := attachment.Key{Network: im.network, ContainerID: e.ContainerID, IfName: e.IfName}
	out := EntryOutcome{File: e.Name, Address: e.Address, Attachment: key}
	cached := im.cacheEntry(key)
	if cached.Pod.Name == "" {
		cached.Pod = e.Pod
	}
	h := im.holder(e, cached)
	previous, reason := im.withoutGoneHolders(previous, h)
	if previous.HeldBy(key) {
		im.decidePresent(out, previous)
		return
	}
	out.Owner = cached.Pod.Owner()
	judgement := im.node.Judge(e.Address, h, im.instant, previous.Holders...)
	kept := out.Owner
	if a, ok := im.ownerOf(key, cached.Pod, judgement); ok {
		kept = a.Owner
		im.keepForOwner(&h, a)
	}
	switch {
	case previous.Last.IsAttachment(key) && im.isLastGone(previous.Last, judgement):
		// The other plugin was not told, so that the entry is out of date.
		out.Owner, out.State, out.Reason = previous.Owner, Present, "given up since, and "+previous.Describe()
	case im.isOtherOwners(previous, out.Owner) && im.isOtherOwners(previous, kept):
		out.State, out.Reason = Conflict, previous.Describe()+reason
		if judgement.Verdict == sandbox.VerdictGone {
			out.State, out.Reason = OutOfDate, fmt.Sprintf("%s; the %s's sandbox is gone: %s", out.Reason, im.Noun, judgement.Reason())
		}
	case im.pooled && judgement.Verdict == sandbox.VerdictGone:
		out.State, out.Reason = OutOfDate, fmt.Sprintf("the pool is not asked for it: the %s's sandbox is gone: %s", im.Noun, judgement.Reason())
	case im.addWanted(&out):
		im.importLease(e, previous, h, kept)
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
func (im *importRun) isOtherOwners(previous lease.Lease, owner attachment.Owner) bool {
	switch {
	case previous.State == "" || previous.IsOwnerless():
		return false
	case previous.State == lease.Reserved && previous.Owner == owner:
		return false
	}
	return true
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
		Policy: lease.Policy{Quarantine: lease.DefaultQuarantine}, Namespace: attachment.Namespace{BootID: im.view.BootID},
	}
	if im.network != im.store {
		h.Network = im.network
	}
	im.completeHolder(&h, e.Address, cached, cached.Pod.Owner())
	return h
}

// importLease gives the address to the holder. What an operator reserved for the owner stays reserved.
func (im *importRun) importLease(e Entry, previous lease.Lease, h lease.Holder, owner attachment.Owner) {
	imported := lease.Lease{Address: e.Address, Network: im.store}
	if previous.State == lease.Reserved && previous.ByHand && previous.Owner != (attachment.Owner{}) {
		owner = previous.Owner // It is this owner, or the pod by its name.
		imported.ByHand, imported.ByHandAt, imported.ByHandUntil = true, previous.ByHandAt, previous.ByHandUntil
	}
	imported.State, imported.Owner, imported.Holders = lease.Held, owner, []lease.Holder{h}
	im.batch.Leases = append(im.batch.Leases, imported)
}

// decidePresent is for an address that is held as its entry says.
func (im *importRun) decidePresent(out EntryOutcome, previous lease.Lease) {
	if out.Owner = previous.Owner; !im.addWanted(&out) {
		im.files = append(im.files, out)
		return
	}
	current, changes := im.completeLease(previous, out.Attachment)
	state, note := Present, ""
	if len(changes) > 0 {
		state, note = Completed, "known now: "+strings.Join(changes, ", ")
		im.batch.Leases = append(im.batch.Leases, current)
	}
	h, _ := current.Holder(out.Attachment)
	out.Owner = current.Owner
	out.State, out.Reason = sandboxState(state, im.node.Judge(out.Address, h, im.instant, reclaim.OtherHolders(current, h)...))
	if out.Reason == "" {
		out.Reason = note
	}
	im.files = append(im.files, out)
}

// completeLease returns the lease with what the caches know of its holder, and says what is new. It changes only
// a holder that an import has made.
func (im *importRun) completeLease(l lease.Lease, key attachment.Key) (_ lease.Lease, changes []string) {
	i := slices.IndexFunc(l.Holders, func(h lease.Holder) bool { return h.IsAttachment(key) })
	if l.Holders[i].Origin != lease.Imported {
		return l, nil
	}
	entry := im.cacheEntry(key)
	owner := entry.Pod.Owner()
	switch {
	case l.Owner == (attachment.Owner{}) && owner != l.Owner:
		l.Owner = owner
		changes = append(changes, "its pod")
	case l.Owner != owner:
		entry.Pod = attachment.Pod{} // It belongs to another owner.
	}
	l.Holders = slices.Clone(l.Holders)
	changes = append(changes, im.completeHolder(&l.Holders[i], l.Address, entry, l.Owner)...)
	return im.completeOwner(l, i, changes)
}

// completeOwner keeps the address for the owner of the holder's pod, if an earlier import could only keep it for the pod.
func (im *importRun) completeOwner(l lease.Lease, i int, changes []string) (lease.Lease, []string) {
	h := &l.Holders[i]
	if h.Policy.ByOwner || len(l.Holders) > 1 || l.Owner != h.Pod.Owner() {
		return l, changes
	}
	a, ok := im.ownerOf(h.Key(im.store), h.Pod, im.node.Judge(l.Address, *h, im.instant))
	if !ok {
		return l, changes
	}
	im.keepForOwner(h, a)
	if !l.ByHand {
		l.Owner, l.Claimed = a.Owner, false
	}
	return l, append(changes, "its owner")
}

// completeHolder adds to the holder what it lacks and is known by now, and says what that is.
func (im *importRun) completeHolder(h *lease.Holder, a netip.Addr, entry cnicache.Entry, owner attachment.Owner) (changes []string) {
	if h.Pod.Name == "" {
		h.Pod.Namespace, h.Pod.Name = entry.Pod.Namespace, entry.Pod.Name
	}
	if h.Pod.UID == "" && entry.Pod.UID != "" {
		h.Pod.UID = entry.Pod.UID
		changes = append(changes, "its pod's UID")
	}
	if namespace := im.namespaceAt(entry.Netns, a); h.Namespace.Inode == 0 && namespace.Path != "" && namespace != h.Namespace {
		h.Namespace = namespace
		if namespace.Inode == 0 {
			changes = append(changes, "where its network namespace was")
		} else {
			changes = append(changes, "its network namespace")
		}
	}
	if im.policy.Sticky && !h.Policy.Sticky && !h.Policy.ByOwner && owner != (attachment.Owner{}) {
		h.Policy.Sticky, h.Policy.Retain = true, im.policy.Retain
		changes = append(changes, "that it stays reserved for its pod")
	}
	return changes
}

// namespaceAt returns what the path tells of the namespace of a sandbox that has the address. A path such as
// /proc/<pid>/ns/net can lead to a stranger's namespace by now: only the address shows whose it is.
func (im *importRun) namespaceAt(path string, a netip.Addr) attachment.Namespace {
	if path == "" {
		return attachment.Namespace{BootID: im.view.BootID}
	}
	id, err := identity.Read(path)
	if err != nil || !im.node.Has(id, a) {
		return attachment.Namespace{Path: path, BootID: im.view.BootID}
	}
	id.BootID = im.view.BootID
	return id
}

// withoutGoneHolders is for an address whose entry names another attachment now: the plugin has given it again. It
// returns the lease without the imported holders that are gone. reason tells of those that may still be there.
// holder is the holder that the entry names.
func (im *importRun) withoutGoneHolders(previous lease.Lease, holder lease.Holder) (_ lease.Lease, reason string) {
	remaining, named := previous, holder.Key(im.store)
	remaining.Holders = nil
	for _, h := range previous.Holders {
		if h.Origin != lease.Imported || h.IsAttachment(named) {
			remaining.Holders = append(remaining.Holders, h)
			continue
		}
		j := im.node.Judge(previous.Address, h, im.instant, append(reclaim.OtherHolders(previous, h), holder)...)
		if !isGone(j) {
			remaining.Holders = append(remaining.Holders, h)
			reason += fmt.Sprintf("; the sandbox %s is %s: %s", h.ContainerID, describeVerdict(j), j.Reason())
			continue
		}
		im.giveUpHolder(previous, h, fmt.Sprintf("its %s in %s is of %s", im.Noun, im.Path, named), j)
	}
	if len(previous.Holders) == 0 || len(remaining.Holders) > 0 {
		return remaining, reason
	}
	// Another owner has by now what the policy would reserve. An operator's reservation stays.
	remaining.Holders = []lease.Holder{previous.Newest()}
	remaining.Holders[0].Policy = lease.Policy{}
	remaining = remaining.GivenUp("", im.view.Time)
	return remaining, ""
}

// isGone says whether the sandbox is gone, for an address that the plugin does not know any more. It does not
// matter if the runtime still knows the sandbox.
func isGone(j sandbox.Judgement) bool {
	return j.Verdict == sandbox.VerdictGone || j.Verdict == sandbox.VerdictDELDue
}

// describeVerdict says in words whether a sandbox that is not proven gone is alive.
func describeVerdict(j sandbox.Judgement) string {
	if j.Verdict == sandbox.VerdictAlive {
		return "alive"
	}
	return "not proven gone"
}

// giveUpHolder makes the holder give up the address.
func (im *importRun) giveUpHolder(l lease.Lease, h lease.Holder, reason string, j sandbox.Judgement) {
	im.batch.GoneHolders = append(im.batch.GoneHolders, lease.GoneHolder{
		Address: l.Address, Holder: h, Reason: fmt.Sprintf("given up through %s: %s; its sandbox is gone: %s", im.Plugin, reason, j.Reason()),
	})
	im.files = append(im.files, EntryOutcome{
		Address: l.Address, Attachment: h.Key(im.store), Owner: l.Owner, State: GivenUp, Reason: fmt.Sprintf("%s; %s", reason, j.Reason()),
	})
}

// decideWithoutEntry decides about imported leases that have no entry any more: a DEL came to the other plugin, or somebody
// took the entry away.
func (im *importRun) decideWithoutEntry() error {
	return im.view.Each(func(l lease.Lease) error {
		_, found := slices.BinarySearchFunc(im.Entries, l.Address, func(e Entry, a netip.Addr) int { return e.Address.Compare(a) })
		if !found {
			im.decideMissing(l)
		}
		return nil
	})
}

// decideMissing decides about the holders of a lease that has no entry.
func (im *importRun) decideMissing(previous lease.Lease) {
	reason := fmt.Sprintf("%s has no %s of it any more", im.Path, im.Noun)
	current, changed := previous, false
	for _, h := range previous.Holders {
		if h.Origin == lease.Imported {
			var changes []string
			current, changes = im.completeLease(current, h.Key(im.store))
			changed = changed || len(changes) > 0
		}
	}
	remaining := current
	remaining.Holders = nil
	for _, h := range current.Holders {
		if h.Origin == lease.Imported {
			j := im.node.Judge(previous.Address, h, im.instant, reclaim.OtherHolders(previous, h)...)
			if isGone(j) {
				im.giveUpHolder(previous, h, reason, j)
				continue
			}
			out := EntryOutcome{
				Address: previous.Address, Attachment: h.Key(im.store), Owner: current.Owner, State: Kept,
				Reason: fmt.Sprintf("%s; its sandbox is %s: %s", reason, describeVerdict(j), j.Reason()),
			}
			im.addWanted(&out)
			im.files = append(im.files, out)
		}
		remaining.Holders = append(remaining.Holders, h)
	}
	if changed && len(remaining.Holders) > 0 {
		im.batch.Leases = append(im.batch.Leases, remaining)
	}
}

// decideTorn holds back the address of a torn entry.
func (im *importRun) decideTorn(e Entry, previous lease.Lease) {
	out := EntryOutcome{File: e.Name, Address: e.Address, State: Torn}
	switch {
	case previous.State != "" && previous.State != lease.Quarantined && (previous.State != lease.Reserved || !previous.IsOwnerless()):
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
