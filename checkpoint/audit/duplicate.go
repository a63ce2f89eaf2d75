package audit

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// user is a live sandbox that has an address on one of its devices.
type user struct {
	id   attachment.NamespaceFile
	path string
	addr DeviceAddress
	// key and owner are those of its attachment, and attached is its checkpoint, nil for none. held says that it holds the address.
	key      attachment.Key
	attached *Attached
	pod      attachment.Pod
	owner    attachment.Owner
	held     bool
	// resolved is the owner of a holder by the API, nobody if it was not asked. shared says that this owner has several pods at
	// a time, each with an address of its own.
	resolved attachment.Owner
	shared   bool
}

// judgeDuplicates finds the addresses that two live sandboxes of one network have. One of them holds the lease.
func (j *judge) judgeDuplicates() {
	users := j.addressUsers()
	for n, l := range j.leases() {
		if l.State == lease.Held && len(users[l.Address]) > 1 {
			j.judgeDuplicate(n, l, users[l.Address])
		}
	}
}

// addressUsers returns the sandboxes that have each address.
func (j *judge) addressUsers() map[netip.Addr][]user {
	byAddress := map[netip.Addr][]user{}
	for id, live := range j.Sandboxes.Live {
		for _, addr := range live.Addresses {
			byAddress[addr.Address] = append(byAddress[addr.Address], user{id: id, path: live.Namespace.Path, addr: addr})
		}
	}
	return byAddress
}

// judgeDuplicate judges an address that several devices have.
func (j *judge) judgeDuplicate(n *Network, l *lease.Lease, candidates []user) {
	var users, unheld []user
	for _, u := range candidates {
		if j.identify(n, l, &u); u.held {
			users = append(users, u)
		} else {
			unheld = append(unheld, u)
		}
	}
	if len(users) == 0 {
		return
	}
	parent := users[0].addr.Parent
	for _, u := range unheld {
		// What is on one parent is in one network. What is elsewhere may have the address in another network. A sandbox may have it twice: that
		// is one pod's doing.
		inNetwork := u.attached.isOf(n.Name, u.key) || parent != 0 && u.addr.Parent == parent
		if inNetwork && !slices.ContainsFunc(users, func(listed user) bool { return listed.id == u.id }) {
			users = append(users, u)
		}
	}
	slices.SortStableFunc(users, func(a, b user) int { return strings.Compare(a.key.String(), b.key.String()) })
	users = slices.CompactFunc(users, func(a, b user) bool { return a.id == b.id })
	if len(users) > 1 {
		j.add(j.duplicateFinding(n, l, users))
	}
}

// identify finds the attachment that the device is of. A holder without a recorded namespace is known by its checkpoint.
func (j *judge) identify(n *Network, l *lease.Lease, u *user) {
	for i := range j.Attached {
		a := &j.Attached[i]
		if a.Record.Namespace.File() == u.id && a.Index == u.addr.Index && a.Record.Namespace.Same(j.Sandboxes.Live[u.id].Namespace) == nil {
			u.attached, u.key, u.pod, u.owner = a, a.Record.Attachment, a.Record.Pod, a.Owner
		}
	}
	for i, h := range l.Holders {
		verdict := j.Sandboxes.holderVerdict(&l.Holders[i])
		inPlace := verdict.Verdict == sandbox.VerdictAlive && h.Namespace.File() == u.id
		if inPlace || u.key.ContainerID == h.ContainerID && u.key.ContainerID != "" {
			u.key, u.pod, u.owner, u.held = h.Key(n.Name), j.holderPod(l, h), l.Owner, true
			u.resolved, u.shared = h.Owner, h.Policy.Shared
		}
	}
}

// duplicateFinding is an error unless all have the address on behalf of one owner: then a new sandbox takes the address
// over, and the one before is about to end.
func (j *judge) duplicateFinding(n *Network, l *lease.Lease, users []user) Finding {
	first := users[slices.IndexFunc(users, func(u user) bool { return u.held })]
	f := n.finding(DuplicateAddress, l, first.key, first.pod)
	f.Fields.ReleasedAt = l.ReleasedAt
	for _, u := range users {
		if !first.isTakeover(u) {
			f.Severity = Error
		}
		if u.key != first.key {
			f.Fields.OtherAttachments = append(f.Fields.OtherAttachments, u.key)
		}
		f.Evidence = append(f.Evidence, u.String())
	}
	if f.Severity == Information {
		f.Evidence = append(f.Evidence, "both are of one owner: the new sandbox takes the address over, and the one before has not ended yet")
	} else {
		f.Evidence = append(f.Evidence, "they are in one network: each gets a part of the other's traffic. Delete one of the pods")
	}
	return f
}

// isTakeover says that both have the address on behalf of one owner, which has one pod at a time: one is the other's next
// sandbox.
func (u user) isTakeover(next user) bool {
	resolved := u.resolved != (attachment.Owner{}) && next.resolved != (attachment.Owner{})
	if u.owner != next.owner || u.owner == (attachment.Owner{}) || resolved && u.resolved != next.resolved {
		return false
	}
	byName := u.pod.Owner() != (attachment.Owner{}) && u.pod.Owner() == next.pod.Owner() // Two pods of one name never run at one time.
	return !u.shared && !next.shared || u.pod.UID != "" && u.pod.UID == next.pod.UID || byName
}

// String says which sandbox has the address, and where.
func (u user) String() string {
	subject, holding := "the network namespace at "+u.path, "without the lease"
	if u.key.ContainerID != "" {
		subject = fmt.Sprintf("%s (sandbox %s)", u.pod, u.key.ContainerID)
	}
	if u.held {
		holding = "and holds the lease"
	}
	return fmt.Sprintf("%s has it on %s, %s", subject, u.addr.Device, holding)
}
