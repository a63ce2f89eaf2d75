package reclaim

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// Verdict says whether the sandbox of a holder is still there.
type Verdict string

// The verdicts. Only Gone proves that nobody will give up the address.
const (
	Gone Verdict = "gone"
	// Due says that the sandbox's network namespace is gone, and that its runtime still knows the sandbox:
	// the runtime owes a DEL.
	Due     Verdict = "DEL due"
	Alive   Verdict = "alive"
	Unknown Verdict = "unknown"
)

// Judgement is a verdict and its evidence, for people.
type Judgement struct {
	Verdict  Verdict  `json:"verdict"`
	Evidence []string `json:"evidence"`
}

// Why is the evidence in one line.
func (j Judgement) Why() string { return strings.Join(j.Evidence, "; ") }

// with returns the judgement with one more piece of evidence.
func (j Judgement) with(v Verdict, format string, args ...any) Judgement {
	return Judgement{v, append(j.Evidence, fmt.Sprintf(format, args...))}
}

// LongestADD is longer than any ADD takes: the kubelet gives up after some minutes. Before that, nobody is proven gone by what
// an ADD has not done yet.
const LongestADD = 10 * time.Minute

// Judge says whether the sandbox of a holder of the address is still there. now is the time by the clock that
// the holder's Since was taken from. If a namespace is known to belong to one of the others, its addresses
// say nothing about this holder.
func (n *Node) Judge(a netip.Addr, h lease.Holder, now time.Time, others ...lease.Holder) Judgement {
	h.Namespace = n.namespaceOf(h)
	if h.Namespace.BootID != n.bootID {
		return Judgement{}.with(Gone, "it held the address in an earlier boot (boot ID %s, now %s)", h.Namespace.BootID, n.bootID)
	}
	if h.Namespace.Inode == 0 {
		return n.judgeByAddress(a, h, now, others)
	}
	j := n.judgeByNamespace(h)
	if h.Origin == lease.Imported && j.Verdict != Alive && j.Verdict != Unknown {
		return n.judgeImported(a, j, others)
	}
	return j
}

// namespaceOf returns the namespace of the holder, or the one that somebody else has recorded. A record of an
// earlier boot says nothing about a sandbox of this one.
func (n *Node) namespaceOf(h lease.Holder) attachment.Namespace {
	if at, ok := n.namespaces[h.ContainerID]; ok && h.Namespace.Inode == 0 && at.BootID == n.bootID && h.Namespace.BootID == n.bootID {
		return at
	}
	return h.Namespace
}

// judgeImported is for an imported holder whose namespace is gone. The import has taken the namespace's path
// from a CNI cache, and that path can have led to a stranger's namespace. So no namespace may have the address,
// either.
func (n *Node) judgeImported(a netip.Addr, j Judgement, others []lease.Holder) Judgement {
	in, nowhere := n.namesOf(a, others)
	if in == "" {
		n.missed()
		in, nowhere = n.namesOf(a, others)
	}
	switch {
	case in != "":
		return j.with(Unknown, "but an import took that from a CNI cache, and %s has the address", in)
	case len(n.closed) > 0:
		return j.with(Unknown, "but an import took that from a CNI cache, and it may be one that cannot be looked into: %s", strings.Join(n.closed, ", "))
	}
	return j.with(j.Verdict, "%s", nowhere)
}

// judgeByNamespace is for a holder whose namespace is known.
func (n *Node) judgeByNamespace(h lease.Holder) Judgement {
	was := h.Namespace
	is, there := n.live[inode{was.Device, was.Inode}]
	if !there {
		n.missed()
		is, there = n.live[inode{was.Device, was.Inode}]
	}
	kept, isKept := n.kept[was.Inode]
	switch {
	case !there && isKept:
		return Judgement{}.with(Unknown, "%s keeps its network namespace, or one that has its inode now (%d:%d)", kept, was.Device, was.Inode)
	case !there && n.partial != "":
		return Judgement{}.with(Unknown, "no mount and no process that is seen here has its network namespace (inode %d:%d), but %s", was.Device, was.Inode, n.partial)
	case !there:
		j := Judgement{}.with(Due, "no mount and no process has its network namespace (inode %d:%d)", was.Device, was.Inode)
		return n.judgeByCache(h, j)
	case was.Cookie == 0 || is.cookie == 0:
		j := Judgement{}.with(Alive, "%s has the inode of its network namespace (%d:%d), and may be another one: the cookies are not known",
			is.name, was.Device, was.Inode)
		if !n.cache.has(h.ContainerID) {
			j.Verdict = Unknown
		}
		return j
	case was.Cookie != is.cookie:
		j := Judgement{}.with(Due, "its network namespace is gone: %s has the inode now (%d:%d, cookie %d; it had cookie %d)",
			is.name, was.Device, was.Inode, is.cookie, was.Cookie)
		return n.judgeByCache(h, j)
	}
	return Judgement{}.with(Alive, "it is in %s", is.name)
}

// judgeByAddress is for a holder whose namespace is unknown. It looks for the address in all namespaces.
func (n *Node) judgeByAddress(a netip.Addr, h lease.Holder, now time.Time, others []lease.Holder) Judgement {
	j := Judgement{}.with(Unknown, "its network namespace was not recorded")
	in, nowhere := n.namesOf(a, others)
	if in == "" {
		n.missed()
		in, nowhere = n.namesOf(a, others)
	}
	if n.cache.has(h.ContainerID) {
		if in != "" {
			return j.with(Alive, "the CNI cache in %s has it, and %s has the address", n.cache.dir, in)
		}
		return j.with(Unknown, "%s, but the CNI cache in %s has it: it is alive, or its runtime owes a DEL", nowhere, n.cache.dir)
	}
	switch {
	case in != "":
		return j.with(Unknown, "%s has the address", in)
	case len(n.closed) > 0:
		return j.with(Unknown, "it may be one that cannot be looked into: %s", strings.Join(n.closed, ", "))
	case n.unreadable[h.ContainerID] != "":
		return j.with(Unknown, "%s", n.unreadable[h.ContainerID])
	case h.Since.After(now.Add(-LongestADD)):
		return j.with(Unknown, "it was given the address less than %s ago: its ADD may not be over", LongestADD)
	}
	return n.judgeByCache(h, j.with(Unknown, "%s", nowhere))
}

// namesOf names the namespaces that have the address, except those of the others. nowhere is the evidence if
// there are none.
func (n *Node) namesOf(a netip.Addr, others []lease.Holder) (names, nowhere string) {
	all, nowhere := []string{}, "no network namespace has the address"
	for _, at := range n.having[a] {
		i := slices.IndexFunc(others, func(h lease.Holder) bool {
			id := h.Namespace
			return at == inode{id.Device, id.Inode} && id.Cookie != 0 && id.Cookie == n.live[at].cookie
		})
		if i >= 0 {
			nowhere = fmt.Sprintf("no network namespace but that of %s has the address", others[i].ContainerID)
			continue
		}
		all = append(all, n.live[at].name)
	}
	return strings.Join(all, " and "), nowhere
}

// judgeByCache is for a holder whose network namespace is gone.
func (n *Node) judgeByCache(h lease.Holder, j Judgement) Judgement {
	switch {
	case n.cache.has(h.ContainerID):
		return j.with(j.Verdict, "the CNI cache in %s has it: its runtime owes a DEL", n.cache.dir)
	case n.cache.blind != "":
		return j.with(Unknown, "whether its runtime owes a DEL is not known: %s", n.cache.blind)
	}
	return j.with(Gone, "the CNI cache in %s does not have it", n.cache.dir)
}
