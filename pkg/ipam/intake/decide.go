package intake

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
)

// entry decides about an entry that says whose its address is. was is the lease that the address has, the zero
// Lease for a free address.
func (im *importer) entry(e Entry, was lease.Lease) {
	key := attachment.Key{Network: im.network, ContainerID: e.ContainerID, IfName: e.IfName}
	out := Outcome{File: e.Name, Address: e.Address, Attachment: key}
	cached := im.cached(key)
	if cached.Pod.Name == "" {
		cached.Pod = e.Pod
	}
	h := im.holder(e, cached)
	was, why := im.withoutOthers(was, h)
	if was.HeldBy(key) {
		im.present(out, was)
		return
	}
	out.Owner = cached.Pod.Owner()
	gone := im.node.Judge(e.Address, h, im.now, was.Holders...)
	kept := out.Owner
	if a, known := im.ownerOf(key, cached.Pod, gone); known {
		kept = a.Owner
		im.keepFor(&h, a)
	}
	switch {
	case was.Last.Key(im.network) == key && im.isOver(was.Last, gone):
		// The other plugin was not told, so that the entry is out of date.
		out.Owner, out.State, out.Why = was.Owner, Present, "given up since, and "+was.Whose()
	case im.isAnothers(was, out.Owner) && im.isAnothers(was, kept):
		out.State, out.Why = Conflict, was.Whose()+why
		if gone.Verdict == reclaim.Gone {
			out.State, out.Why = OutOfDate, fmt.Sprintf("%s; the %s's sandbox is gone: %s", out.Why, im.Noun, gone.Why())
		}
	case im.pooled && gone.Verdict == reclaim.Gone:
		out.State, out.Why = OutOfDate, fmt.Sprintf("the pool is not asked for it: the %s's sandbox is gone: %s", im.Noun, gone.Why())
	case im.wants(&out):
		im.take(e, was, h, kept)
		out.State, out.Why = sandboxState(Imported, gone)
	}
	im.files = append(im.files, out)
}

// wants notes an address that has a lease at the end. It returns false if the pools do not give it to this node, and reports that.
func (im *importer) wants(out *Outcome) bool {
	if why := im.refused[out.Address]; why != "" {
		out.State, out.Why = Refused, why
		return false
	}
	im.wanted = append(im.wanted, out.Address)
	return true
}

// cached returns what the caches have of the attachment, the zero Entry for nothing. The other plugin may know the network by another
// name.
func (im *importer) cached(key attachment.Key) cnicache.Entry {
	entry, ok := im.node.Entry(key)
	if !ok && im.Alias != "" {
		key.Network = im.Alias
		entry, _ = im.node.Entry(key)
	}
	return entry
}

// isOver says whether the last sandbox that held the address is gone, and not only its lease. j is the
// judgement of the entry's sandbox. A sandbox of an earlier boot is gone, unless it was attached again.
func (im *importer) isOver(last lease.Holder, j reclaim.Judgement) bool {
	return isGone(j) || last.Namespace.BootID != im.view.BootID && j.Verdict != reclaim.Alive
}

// isAnothers says whether the lease keeps the address from the owner.
func (im *importer) isAnothers(was lease.Lease, owner attachment.Owner) bool {
	switch {
	case was.State == "" || was.Nobodys():
		return false
	case was.State == lease.Reserved && was.Owner == owner:
		return false
	}
	return true
}

// sandboxState is the state of an address whose lease agrees with its entry.
func sandboxState(s State, j reclaim.Judgement) (_ State, why string) {
	if j.Verdict == reclaim.Gone {
		return NoSandbox, "held until it is reclaimed: " + j.Why()
	}
	return s, ""
}

// holder is the holder that the entry names. It counts as one of this boot, whatever the time of the entry: the
// clock may have been wrong when it was written.
func (im *importer) holder(e Entry, cached cnicache.Entry) lease.Holder {
	written := e.Written
	if written.After(im.now) {
		written = im.now
	}
	h := lease.Holder{
		ContainerID: e.ContainerID, IfName: e.IfName, Origin: lease.Imported, Since: written.UTC().Truncate(time.Millisecond),
		Policy: lease.Policy{Quarantine: lease.DefaultQuarantine}, Namespace: attachment.Namespace{BootID: im.view.BootID},
	}
	im.complete(&h, e.Address, cached, cached.Pod.Owner())
	return h
}

// take gives the address to the holder. What an operator reserved for the owner stays reserved.
func (im *importer) take(e Entry, was lease.Lease, h lease.Holder, owner attachment.Owner) {
	taken := lease.Lease{Address: e.Address, Network: im.network}
	if was.State == lease.Reserved && was.ByHand && was.Owner != (attachment.Owner{}) {
		owner = was.Owner // It is this owner, or the pod by its name.
		taken.ByHand, taken.ByHandAt, taken.ByHandUntil = true, was.ByHandAt, was.ByHandUntil
	}
	taken.State, taken.Owner, taken.Holders = lease.Held, owner, []lease.Holder{h}
	im.intake.Leases = append(im.intake.Leases, taken)
}

// present is for an address that is held as its entry says.
func (im *importer) present(out Outcome, was lease.Lease) {
	if out.Owner = was.Owner; !im.wants(&out) {
		im.files = append(im.files, out)
		return
	}
	now, what := im.completed(was, out.Attachment)
	state, known := Present, ""
	if len(what) > 0 {
		state, known = Completed, "known now: "+strings.Join(what, ", ")
		im.intake.Leases = append(im.intake.Leases, now)
	}
	h, _ := now.Holder(out.Attachment)
	out.Owner = now.Owner
	out.State, out.Why = sandboxState(state, im.node.Judge(out.Address, h, im.now, reclaim.Others(now, h)...))
	if out.Why == "" {
		out.Why = known
	}
	im.files = append(im.files, out)
}

// completed returns the lease with what the caches know of its holder, and says what is new. It changes only
// a holder that an import has made.
func (im *importer) completed(l lease.Lease, key attachment.Key) (_ lease.Lease, what []string) {
	i := slices.IndexFunc(l.Holders, func(h lease.Holder) bool { return h.Key(im.network) == key })
	if l.Holders[i].Origin != lease.Imported {
		return l, nil
	}
	entry := im.cached(key)
	owner := entry.Pod.Owner()
	switch {
	case l.Owner == (attachment.Owner{}) && owner != l.Owner:
		l.Owner = owner
		what = append(what, "its pod")
	case l.Owner != owner:
		entry.Pod = attachment.Pod{} // It belongs to another owner.
	}
	l.Holders = slices.Clone(l.Holders)
	what = append(what, im.complete(&l.Holders[i], l.Address, entry, l.Owner)...)
	return im.completeOwner(l, i, what)
}

// completeOwner keeps the address for the owner of the holder's pod, if an earlier import could only keep it for the pod.
func (im *importer) completeOwner(l lease.Lease, i int, what []string) (lease.Lease, []string) {
	h := &l.Holders[i]
	if h.Policy.ByOwner || len(l.Holders) > 1 || l.Owner != h.Pod.Owner() {
		return l, what
	}
	a, known := im.ownerOf(h.Key(im.network), h.Pod, im.node.Judge(l.Address, *h, im.now))
	if !known {
		return l, what
	}
	im.keepFor(h, a)
	if !l.ByHand {
		l.Owner, l.Claimed = a.Owner, false
	}
	return l, append(what, "its owner")
}

// complete adds to the holder what it lacks and is known by now, and says what that is.
func (im *importer) complete(h *lease.Holder, a netip.Addr, entry cnicache.Entry, owner attachment.Owner) (what []string) {
	if h.Pod.Name == "" {
		h.Pod.Namespace, h.Pod.Name = entry.Pod.Namespace, entry.Pod.Name
	}
	if h.Pod.UID == "" && entry.Pod.UID != "" {
		h.Pod.UID = entry.Pod.UID
		what = append(what, "its pod's UID")
	}
	if is := im.namespaceAt(entry.Netns, a); h.Namespace.Inode == 0 && is.Path != "" && is != h.Namespace {
		h.Namespace = is
		if is.Inode == 0 {
			what = append(what, "where its network namespace was")
		} else {
			what = append(what, "its network namespace")
		}
	}
	if im.policy.Sticky && !h.Policy.Sticky && !h.Policy.ByOwner && owner != (attachment.Owner{}) {
		h.Policy.Sticky, h.Policy.Retain = true, im.policy.Retain
		what = append(what, "that it stays reserved for its pod")
	}
	return what
}

// namespaceAt returns what the path tells of the namespace of a sandbox that has the address. A path such as
// /proc/<pid>/ns/net can lead to a stranger's namespace by now: only the address shows whose it is.
func (im *importer) namespaceAt(path string, a netip.Addr) attachment.Namespace {
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

// withoutOthers is for an address whose entry names another attachment now: the plugin has given it again. It
// returns the lease without the imported holders that are gone. why tells of those that may still be there.
// by is the holder that the entry names.
func (im *importer) withoutOthers(was lease.Lease, by lease.Holder) (_ lease.Lease, why string) {
	left, named := was, by.Key(im.network)
	left.Holders = nil
	for _, h := range was.Holders {
		if h.Origin != lease.Imported || h.Key(im.network) == named {
			left.Holders = append(left.Holders, h)
			continue
		}
		j := im.node.Judge(was.Address, h, im.now, append(reclaim.Others(was, h), by)...)
		if !isGone(j) {
			left.Holders = append(left.Holders, h)
			why += fmt.Sprintf("; the sandbox %s is %s: %s", h.ContainerID, standing(j), j.Why())
			continue
		}
		im.givenUp(was, h, fmt.Sprintf("its %s in %s is of %s", im.Noun, im.Path, named), j)
	}
	if len(was.Holders) == 0 || len(left.Holders) > 0 {
		return left, why
	}
	// Another owner has by now what the policy would reserve. An operator's reservation stays.
	left.Holders = []lease.Holder{was.Newest()}
	left.Holders[0].Policy = lease.Policy{}
	left, _ = left.GivenUp("", im.view.Now)
	return left, ""
}

// isGone says whether the sandbox is gone, for an address that the plugin does not know any more. It does not
// matter if the runtime still knows the sandbox.
func isGone(j reclaim.Judgement) bool { return j.Verdict == reclaim.Gone || j.Verdict == reclaim.Due }

// standing says in words whether a sandbox that is not proven gone is alive.
func standing(j reclaim.Judgement) string {
	if j.Verdict == reclaim.Alive {
		return "alive"
	}
	return "not proven gone"
}

// givenUp makes the holder give up the address.
func (im *importer) givenUp(l lease.Lease, h lease.Holder, why string, j reclaim.Judgement) {
	im.intake.Gone = append(im.intake.Gone, lease.Gone{
		Address: l.Address, Holder: h, Why: fmt.Sprintf("given up through %s: %s; its sandbox is gone: %s", im.Plugin, why, j.Why()),
	})
	im.files = append(im.files, Outcome{
		Address: l.Address, Attachment: h.Key(im.network), Owner: l.Owner, State: GivenUp, Why: fmt.Sprintf("%s; %s", why, j.Why()),
	})
}

// withoutEntry decides about imported leases that have no entry any more: a DEL came to the other plugin, or somebody
// took the entry away.
func (im *importer) withoutEntry() error {
	return im.view.Each(func(l lease.Lease) error {
		_, has := slices.BinarySearchFunc(im.Entries, l.Address, func(e Entry, a netip.Addr) int { return e.Address.Compare(a) })
		if !has {
			im.lost(l)
		}
		return nil
	})
}

// lost decides about the holders of a lease that has no entry.
func (im *importer) lost(was lease.Lease) {
	why := fmt.Sprintf("%s has no %s of it any more", im.Path, im.Noun)
	now, changed := was, false
	for _, h := range was.Holders {
		if h.Origin == lease.Imported {
			var what []string
			now, what = im.completed(now, h.Key(im.network))
			changed = changed || len(what) > 0
		}
	}
	left := now
	left.Holders = nil
	for _, h := range now.Holders {
		if h.Origin == lease.Imported {
			j := im.node.Judge(was.Address, h, im.now, reclaim.Others(was, h)...)
			if isGone(j) {
				im.givenUp(was, h, why, j)
				continue
			}
			out := Outcome{
				Address: was.Address, Attachment: h.Key(im.network), Owner: now.Owner, State: Kept,
				Why: fmt.Sprintf("%s; its sandbox is %s: %s", why, standing(j), j.Why()),
			}
			im.wants(&out)
			im.files = append(im.files, out)
		}
		left.Holders = append(left.Holders, h)
	}
	if changed && len(left.Holders) > 0 {
		im.intake.Leases = append(im.intake.Leases, left)
	}
}

// torn holds back the address of a torn entry.
func (im *importer) torn(e Entry, was lease.Lease) {
	out := Outcome{File: e.Name, Address: e.Address, State: Torn}
	switch {
	case was.State != "" && was.State != lease.Quarantined && (was.State != lease.Reserved || !was.Nobodys()):
		out.Why = e.Torn + ", and its address is " + was.Whose()
	case !im.wants(&out):
	case was.State == lease.Reserved:
		out.Why = e.Torn + ": held back already"
	default:
		out.Why = e.Torn + ": held back, because a pod may have the address"
		im.intake.Leases = append(im.intake.Leases, lease.Lease{
			Address: e.Address, Network: im.network, State: lease.Reserved, ReleasedAt: im.view.Now,
			Why: fmt.Sprintf("a pod may have it by %s's %s, which is torn: %s", im.Plugin, filepath.Join(im.Path, e.Name), e.Torn),
		})
	}
	im.files = append(im.files, out)
}
