package reclaim

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// LongestADD is longer than any ADD takes: the kubelet gives up after some minutes. Before that, nobody is proven gone by what
// an ADD has not done yet.
const LongestADD = 10 * time.Minute

// Judge says whether the sandbox of a holder of the address is still there. instant is the time by the clock that
// the holder's Since was taken from. If a namespace is known to belong to one of the others, its addresses
// say nothing about this holder.
func (n *Node) Judge(a netip.Addr, h lease.Holder, instant time.Time, otherHolders ...lease.Holder) sandbox.Judgement {
	h.Namespace = n.namespaceOf(h)
	if h.Namespace.BootID != n.bootID {
		return sandbox.Judgement{}.With(sandbox.VerdictGone, "it held the address in an earlier boot (boot ID %s, now %s)", h.Namespace.BootID, n.bootID)
	}
	if h.Namespace.Inode == 0 {
		return n.judgeByAddress(a, h, instant, otherHolders)
	}
	j := n.judgeByNamespace(h)
	if h.Origin == lease.Imported && j.Verdict != sandbox.VerdictAlive && j.Verdict != sandbox.VerdictUnknown {
		return n.judgeImported(a, j, otherHolders)
	}
	return j
}

// namespaceOf returns the namespace of the holder, or the one that somebody else has recorded. A record of an
// earlier boot says nothing about a sandbox of this one.
func (n *Node) namespaceOf(h lease.Holder) attachment.Namespace {
	if recorded, ok := n.namespaces[h.ContainerID]; ok && h.Namespace.Inode == 0 && recorded.BootID == n.bootID && h.Namespace.BootID == n.bootID {
		return recorded
	}
	return h.Namespace
}

// judgeImported is for an imported holder whose namespace is gone. The import has taken the namespace's path
// from a CNI cache, and that path can have led to a stranger's namespace. So no namespace may have the address,
// either.
func (n *Node) judgeImported(a netip.Addr, j sandbox.Judgement, otherHolders []lease.Holder) sandbox.Judgement {
	names, nowhere := n.namesOf(a, otherHolders)
	switch {
	case names != "":
		return j.With(sandbox.VerdictUnknown, "but an import took that from a CNI cache, and %s has the address", names)
	case len(n.uninspected) > 0:
		return j.With(sandbox.VerdictUnknown, "but an import took that from a CNI cache, and it may be one that cannot be looked into: %s", strings.Join(n.uninspected, ", "))
	}
	return j.With(j.Verdict, "%s", nowhere)
}

// find returns the namespace that has the inode of the recorded one, after a further search if none has it.
func (n *Node) find(recorded attachment.Namespace) (current liveNamespace, found bool) {
	key := inode(recorded.File())
	if _, found := n.live[key]; !found {
		n.searchMissing()
	}
	current, found = n.live[key]
	return current, found
}

// judgeByNamespace is for a holder whose namespace is known.
func (n *Node) judgeByNamespace(h lease.Holder) (j sandbox.Judgement) {
	recorded := h.Namespace
	current, found := n.find(recorded)
	kept, isKept := n.keepers[recorded.Inode]
	place := fmt.Sprintf("%d:%d", recorded.Device, recorded.Inode)
	switch {
	case !found && isKept:
		return j.With(sandbox.VerdictUnknown, "%s keeps its network namespace, or one that has its inode now (%s)", kept, place)
	case !found && n.incomplete != "":
		return j.With(sandbox.VerdictUnknown, "no mount and no process that is seen here has its network namespace (inode %s), but %s", place, n.incomplete)
	case !found:
		j = j.With(sandbox.VerdictDELDue, "no mount and no process has its network namespace (inode %s)", place)
	case (recorded.Cookie == 0 || current.cookie == 0) && n.cache.has(h.ContainerID):
		return j.With(sandbox.VerdictAlive, cookielessText, current.name, place)
	case recorded.Cookie == 0 || current.cookie == 0:
		return j.With(sandbox.VerdictUnknown, cookielessText, current.name, place)
	case recorded.Cookie == current.cookie:
		return j.With(sandbox.VerdictAlive, "it is in %s", current.name)
	default:
		j = j.With(sandbox.VerdictDELDue, "its network namespace is gone: %s has the inode now (%s, cookie %d; it had cookie %d)", current.name, place, current.cookie, recorded.Cookie)
	}
	return n.cache.Judge(h.ContainerID, j)
}

// cookielessText is the evidence of a namespace that only its inode tells.
const cookielessText = "%s has the inode of its network namespace (%s), and may be another one: the cookies are not known"

// judgeByAddress is for a holder whose namespace is unknown. It looks for the address in all namespaces.
func (n *Node) judgeByAddress(a netip.Addr, h lease.Holder, instant time.Time, otherHolders []lease.Holder) sandbox.Judgement {
	j := sandbox.Judgement{}.With(sandbox.VerdictUnknown, "its network namespace was not recorded")
	names, nowhere := n.namesOf(a, otherHolders)
	if n.cache.has(h.ContainerID) {
		if names != "" {
			return j.With(sandbox.VerdictAlive, "the CNI cache in %s has it, and %s has the address", n.cache.dir, names)
		}
		return j.With(sandbox.VerdictUnknown, "%s, but the CNI cache in %s has it: it is alive, or its runtime owes a DEL", nowhere, n.cache.dir)
	}
	switch {
	case names != "":
		return j.With(sandbox.VerdictUnknown, "%s has the address", names)
	case len(n.uninspected) > 0:
		return j.With(sandbox.VerdictUnknown, "it may be one that cannot be looked into: %s", strings.Join(n.uninspected, ", "))
	case n.unreadable[h.ContainerID] != "":
		return j.With(sandbox.VerdictUnknown, "%s", n.unreadable[h.ContainerID])
	case h.Since.After(instant.Add(-LongestADD)):
		return j.With(sandbox.VerdictUnknown, "it was given the address less than %s ago: its ADD may not be over", LongestADD)
	}
	return n.cache.Judge(h.ContainerID, j.With(sandbox.VerdictUnknown, "%s", nowhere))
}

// namesOf names the namespaces that have the address, except those of the others. nowhere is the evidence if
// there are none, after a further search.
func (n *Node) namesOf(a netip.Addr, otherHolders []lease.Holder) (names, nowhere string) {
	var found []string
	nowhere = "no network namespace has the address"
	for _, key := range n.holders[a] {
		i := slices.IndexFunc(otherHolders, func(h lease.Holder) bool {
			id := h.Namespace
			return key == inode(id.File()) && id.Cookie != 0 && id.Cookie == n.live[key].cookie
		})
		if i >= 0 {
			nowhere = fmt.Sprintf("no network namespace but that of %s has the address", otherHolders[i].ContainerID)
			continue
		}
		found = append(found, n.live[key].name)
	}
	if len(found) == 0 && n.searchOnce != nil {
		n.searchMissing()
		return n.namesOf(a, otherHolders)
	}
	return strings.Join(found, " and "), nowhere
}

// OtherHolders returns the other holders of the lease, for Judge. Imported holders are left out: their namespaces may
// be strangers'.
func OtherHolders(l lease.Lease, holder lease.Holder) []lease.Holder {
	return slices.DeleteFunc(slices.Clone(l.Holders), func(h lease.Holder) bool {
		return h.Origin == lease.Imported || h.ContainerID == holder.ContainerID && h.IfName == holder.IfName
	})
}
