package lease

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

// State is what keeps an address from being given.
type State string

const (
	// Held says that at least one attachment has the address.
	Held State = "held"
	// Reserved says that no attachment has the address, and that it waits for its owner.
	Reserved State = "reserved"
	// Quarantined says that the address is nobody's, and that other hosts may not know that yet.
	Quarantined State = "quarantined"
)

// Origin is why an attachment was given this address and no other.
type Origin string

const (
	// Requested says that the runtime or the configuration asked for it.
	Requested Origin = "requested"
	// FromReservation says that it was reserved for the owner.
	FromReservation Origin = "reserved for the owner"
	// TakenOver says that an earlier sandbox of the owner still held it.
	TakenOver Origin = "taken over from the owner's sandbox before"
	// InTurn says that it was the next free one.
	InTurn Origin = "next in turn"
	// LongestReleased says that none was free, and that its quarantine would have ended first.
	LongestReleased Origin = "released first, as none was free"
	// Imported says that host-local had given it.
	Imported Origin = "imported"
)

// Duration is a time.Duration that is stored as its text, such as 1m0s.
type Duration time.Duration

// String returns the duration as time.Duration does.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalText returns String.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText takes what time.ParseDuration does.
func (d *Duration) UnmarshalText(b []byte) error {
	parsed, err := time.ParseDuration(string(b))
	*d = Duration(parsed)
	return err
}

// Policy is what happens to an address when its last holder gives it up.
type Policy struct {
	// Sticky: it stays reserved for the owner.
	Sticky bool `json:"sticky,omitzero"`
	// Retain bounds the reservation; 0 is until somebody releases it.
	Retain Duration `json:"retain,omitzero"`
	// Quarantine is how long it is not given to another owner while one is free.
	Quarantine Duration `json:"quarantine,omitzero"`
	// Shared: several pods of the owner can run at the same time. Each has its own addresses, and all of these wait for
	// the owner's next pods.
	Shared bool `json:"shared,omitzero"`
	// ByOwner: the address is kept for Holder.Owner, and not for the pod by its name.
	ByOwner bool `json:"byOwner,omitzero"`
}

// KeptByAPI says whether the Kubernetes API has the address of a pool for its owner, so that the owner's next pod gets it on
// any node. Of an owner with several pods at a time, the addresses wait on the node where they were.
func (p Policy) KeptByAPI() bool { return p.Sticky && !p.keptForSeveral() }

// keptForSeveral says whether the address is kept for an owner that has several pods at the same time. What is kept for a pod by
// its name is that pod's, whatever owner the pod names.
func (p Policy) keptForSeveral() bool { return p.Shared && p.ByOwner }

// DefaultQuarantine is longer than hosts nearby use what they know of an address without asking again: 45 s
// at most by RFC 4861, section 6.3.2, which Linux follows for ARP as well.
const DefaultQuarantine = Duration(time.Minute)

// Holder is an attachment that has an address, with what shows whether the attachment is still there.
type Holder struct {
	ContainerID string `json:"containerID,omitzero"`
	IfName      string `json:"ifName,omitzero"`
	// Network is the attachment's network, empty if the store has the network's name. A network that got another name keeps
	// its store, and several networks can have one.
	Network string `json:"network,omitzero"`
	// Pod is the pod that the sandbox belongs to. The next pod of that name has another UID.
	Pod attachment.Pod `json:"pod,omitzero"`
	// Owner is the pod's owner by the Kubernetes API, nobody if the API was not asked. Lease.Owner says for whom the
	// address is kept.
	Owner attachment.Owner `json:"owner,omitzero"`
	// Namespace is the sandbox's, as far as it was known when the address was given. The boot is always
	// known: no attachment outlives its boot.
	Namespace attachment.Namespace `json:"namespace,omitzero"`
	// Since is when it was given the address.
	Since  time.Time `json:"since,omitzero"`
	Origin Origin    `json:"origin,omitzero"`
	Policy Policy    `json:"policy,omitzero"`

	Unknown Unknown `json:"-"`
}

// IsAttachment says whether the attachment is the holder's. No other network has that interface of the container: a DEL can come with the
// name that the network has now, or with the one that it had at the ADD.
func (h Holder) IsAttachment(a attachment.Key) bool {
	return h.ContainerID == a.ContainerID && h.IfName == a.IfName
}

// Key returns the holder's attachment. store is the name of the lease's store.
func (h Holder) Key(store string) attachment.Key {
	return attachment.Key{Network: cmp.Or(h.Network, store), ContainerID: h.ContainerID, IfName: h.IfName}
}

// Lease is an address that is not free.
type Lease struct {
	Address netip.Addr `json:"address"`
	// Network is the name of the store, which need not be that of the holders' networks. It is not stored.
	Network string `json:"network,omitzero"`
	// Owner is the owner on whose behalf the address is held, or for whom it is reserved. It is nobody if
	// the runtime named no pod.
	Owner attachment.Owner `json:"owner,omitzero"`
	State State            `json:"state"`
	// Holders have the address, in the order in which they got it. There are none unless State is Held. A
	// new sandbox of the owner holds it beside the earlier one until that one goes.
	Holders []Holder `json:"holders,omitzero"`
	// Last is the last holder of an address that is not Held. It is zero if nobody ever held it.
	Last Holder `json:"last,omitzero"`
	// Reason is for people: why it is quarantined or reserved.
	Reason string `json:"why,omitzero"`
	// ByHand: an operator reserved it. It is reserved again after its holder gives it up, whatever the
	// policy says.
	ByHand bool `json:"byHand,omitzero"`
	// ByHandAt is when, and ByHandUntil when that ends; zero for never.
	ByHandAt    time.Time `json:"byHandAt,omitzero"`
	ByHandUntil time.Time `json:"byHandUntil,omitzero"`
	// Conflict: another host uses it. It is not given even if no other address is free.
	Conflict   bool      `json:"conflict,omitzero"`
	ReleasedAt time.Time `json:"releasedAt,omitzero"`
	// Until is when a reservation or a quarantine ends; zero for never.
	Until time.Time `json:"until,omitzero"`

	// Claimed: the Kubernetes API knows that the address of a pool is the owner's.
	Claimed bool `json:"claimed,omitzero"`

	Unknown Unknown `json:"-"`
}

// Holder returns which of the holders the attachment is.
func (l Lease) Holder(a attachment.Key) (Holder, bool) {
	if i := slices.IndexFunc(l.Holders, func(h Holder) bool { return h.IsAttachment(a) }); i >= 0 {
		return l.Holders[i], true
	}
	return Holder{}, false
}

// HeldBy says whether the attachment holds the address.
func (l Lease) HeldBy(a attachment.Key) bool {
	_, ok := l.Holder(a)
	return ok
}

// Newest returns the holder that was given the address last. If nobody holds the address, that is the last
// holder.
func (l Lease) Newest() Holder {
	if len(l.Holders) == 0 {
		return l.Last
	}
	return l.Holders[len(l.Holders)-1]
}

// IsClaimable says whether the API has a claim of the lease, or gets one.
func (l Lease) IsClaimable() bool {
	return l.Newest().Policy.KeptByAPI() && l.Owner.Name != "" && (l.State == Held || l.State == Reserved)
}

// isFree says whether there is no lease: the address is free.
func (l Lease) isFree() bool { return l.State == "" }

// hasOwner says whether the lease is on somebody's behalf.
func (l Lease) hasOwner() bool { return l.Owner != (attachment.Owner{}) }

// IsOwnerless says whether the address is nobody's, and is still not given.
func (l Lease) IsOwnerless() bool {
	return l.State == Quarantined || l.State == Reserved && !l.hasOwner()
}

// Describe says in words who has the address, or why it is not given.
func (l Lease) Describe() string {
	switch l.State {
	case Held:
		const enough = 3
		var keys []string
		for i, h := range l.Holders {
			if i == enough {
				keys = append(keys, fmt.Sprintf("%d more", len(l.Holders)-enough))
				break
			}
			keys = append(keys, h.Key(l.Network).String())
		}
		text := "held by " + strings.Join(keys, " and ")
		if l.hasOwner() {
			text += fmt.Sprintf(" (%s)", l.Owner)
		}
		return text
	case Reserved:
		if !l.hasOwner() {
			return "reserved: " + l.Reason
		}
		return "reserved for " + l.Owner.String()
	}
	return "in quarantine: " + l.Reason
}

// describeFor is Describe for an owner that asks for the address in vain. If the address is an owner's of the same name, it tells the two
// apart, and says when the address can be had.
func (l Lease) describeFor(o attachment.Owner) string {
	named := l.Owner
	named.UID = o.UID
	if l.State == Quarantined || named != o || l.Owner == o {
		return l.Describe()
	}
	return fmt.Sprintf("%s: the %s of that name before this one (it had UID %s, this one has %s). It can be had when no sandbox holds it, and relink gc or relink-agent "+
		"has twice, 10 minutes apart, seen in the Kubernetes API that this owner is gone, or after relink ipam release",
		l.Describe(), o.Kind, cmp.Or(l.Owner.UID, "none"), cmp.Or(o.UID, "none"))
}

// WithoutHolder returns the held lease as it will be without the holder. instant is the store's time (ClockAhead).
func (l Lease) WithoutHolder(h Holder, instant time.Time) Lease {
	return l.withoutHolders(h.sameAttachment, "", instant)
}

// withoutHolders returns the lease after those holders gave up the address: held by the others, or GivenUp.
func (l Lease) withoutHolders(match func(Holder) bool, reason string, instant time.Time) Lease {
	remaining := slices.DeleteFunc(slices.Clone(l.Holders), match)
	if len(remaining) == 0 {
		return l.GivenUp(reason, instant)
	}
	l.Holders = remaining
	return l
}

// withoutSticky returns the held lease as if its newest holder had no sticky policy.
func (l Lease) withoutSticky() Lease {
	l.Holders = slices.Clone(l.Holders)
	l.Holders[len(l.Holders)-1].Policy.Sticky = false
	return l
}

// GivenUp returns the lease after its last holder gave up the address: reserved, quarantined, or the zero Lease for free.
func (l Lease) GivenUp(reason string, instant time.Time) Lease {
	l.Last, l.Holders = l.Newest(), nil
	if l.Conflict {
		reason = l.Reason
		l.Last.Policy.Quarantine = max(l.Last.Policy.Quarantine, DefaultQuarantine)
	}
	l.ReleasedAt, l.Reason = instant, reason
	if l.ByHand && !l.ReservedByHandAt(instant) {
		l.dropByHand()
		if l.Last.Policy.ByOwner { // The operator has kept it for the pod by its name. That is over.
			l.Owner = l.Last.Owner
		}
	}
	switch policy := l.Last.Policy; {
	case l.hasOwner() && (l.ByHand || policy.Sticky):
		l.State, l.Until, l.Conflict = Reserved, l.reservedUntil(instant), false
	case policy.Quarantine > 0:
		l.State, l.Until = Quarantined, instant.Add(time.Duration(policy.Quarantine))
	default:
		return Lease{}
	}
	return l
}

// dropByHand takes back what an operator has reserved.
func (l *Lease) dropByHand() { l.ByHand, l.ByHandAt, l.ByHandUntil = false, time.Time{}, time.Time{} }

// ReservedByHandAt says whether an operator's reservation of the address is in force. instant is the store's time
// (ClockAhead).
func (l Lease) ReservedByHandAt(instant time.Time) bool {
	return l.ByHand && (l.ByHandUntil.IsZero() || instant.Before(l.ByHandUntil))
}

// reservedUntil is when a reservation that begins now ends: at the end of the policy's time, of the
// operator's, or of the quarantine, whichever is latest.
func (l Lease) reservedUntil(instant time.Time) time.Time {
	policy := l.Last.Policy
	if l.ByHand && l.ByHandUntil.IsZero() || policy.Sticky && policy.Retain == 0 {
		return time.Time{}
	}
	until := instant.Add(time.Duration(policy.Quarantine))
	if policy.Sticky {
		until = latest(until, instant.Add(time.Duration(policy.Retain)))
	}
	return latest(until, l.ByHandUntil)
}

// unreserved is the lease after its reservation was ended: in quarantine if that is not over, else the zero Lease for free.
func (l Lease) unreserved(reason string, instant time.Time) Lease {
	until := l.ReleasedAt.Add(time.Duration(l.Last.Policy.Quarantine))
	if l.State != Reserved || !until.After(instant) {
		return Lease{}
	}
	l.dropByHand()
	l.Last.Policy.Sticky = false
	l.State, l.Until, l.Reason = Quarantined, until, reason
	return l
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
