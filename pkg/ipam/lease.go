package ipam

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

// State is what keeps an address from being given.
type State string

const (
	// Held says that an attachment has it.
	Held State = "held"
	// Reserved says that no attachment has it, and it waits for its owner.
	Reserved State = "reserved"
	// Quarantined says that it is nobody's, and others may still believe it to be somebody's.
	Quarantined State = "quarantined"
)

// Origin is why an attachment was given the very address that it has.
type Origin string

const (
	// Requested says that the runtime or the configuration asked for it.
	Requested Origin = "requested"
	// FromReservation says that it was reserved for the owner.
	FromReservation Origin = "reserved for the owner"
	// TakenOver says that the owner's sandbox before held it still.
	TakenOver Origin = "taken over from the owner's sandbox before"
	// InTurn says that it was the next free one.
	InTurn Origin = "next in turn"
	// LongestReleased says that none was free, and its quarantine was the first to end.
	LongestReleased Origin = "released first, as none was free"
	// Imported says that host-local had given it.
	Imported Origin = "imported"
)

// Policy is what happens to an address when its attachment gives it up.
type Policy struct {
	// Sticky: it stays reserved for the owner.
	Sticky bool `json:"sticky,omitempty"`
	// Retain bounds the reservation; 0 is until somebody releases it.
	Retain time.Duration `json:"retain,omitempty"`
	// Quarantine is how long it is not given to another owner while one is free.
	Quarantine time.Duration `json:"quarantine,omitempty"`
}

// Lease is an address that is not free.
type Lease struct {
	Address netip.Addr `json:"address"`
	// Attachment holds the address, or did so last. A reservation by hand has the
	// network alone.
	Attachment attachment.Key `json:"attachment"`
	// Owner is on whose behalf it is held or for whom it is reserved, nobody when the
	// runtime named no pod.
	Owner attachment.Owner `json:"owner,omitzero"`
	// PodUID is that of the pod's incarnation that holds it or did so last.
	PodUID string `json:"podUID,omitempty"`
	State  State  `json:"state"`
	Origin Origin `json:"origin,omitempty"`
	// Why is for people: why it is quarantined or reserved.
	Why    string `json:"why,omitempty"`
	Policy Policy `json:"policy,omitzero"`
	// ByHand: an operator reserved it, so that it is reserved again whatever the
	// policy says.
	ByHand bool `json:"byHand,omitempty"`
	// ByHandUntil is when that ends; zero for never.
	ByHandUntil time.Time `json:"byHandUntil,omitzero"`
	// Conflict: another host has it, so that not even a lack of others gets it given.
	Conflict bool `json:"conflict,omitempty"`
	// BootID is that of the boot in which the attachment got it. No attachment
	// outlives its boot.
	BootID     string    `json:"bootID,omitempty"`
	AcquiredAt time.Time `json:"acquiredAt,omitzero"`
	ReleasedAt time.Time `json:"releasedAt,omitzero"`
	// Until is when a reservation or a quarantine ends; zero for never.
	Until time.Time `json:"until,omitzero"`
}

// HeldBy says whether the attachment holds the address. The network is that of the
// store.
func (l Lease) HeldBy(a attachment.Key) bool {
	return l.State == Held && l.Attachment.ContainerID == a.ContainerID && l.Attachment.IfName == a.IfName
}

// nobodys says whether the address is kept from being given without being anybody's.
func (l Lease) nobodys() bool {
	return l.State == Quarantined || l.State == Reserved && l.Owner == attachment.Owner{}
}

// Whose says in words who keeps the address from being given.
func (l Lease) Whose() string {
	switch l.State {
	case Held:
		if l.Owner == (attachment.Owner{}) {
			return "held by " + l.Attachment.String()
		}
		return fmt.Sprintf("held by %s (%s)", l.Attachment, l.Owner)
	case Reserved:
		if l.Owner == (attachment.Owner{}) {
			return "reserved: " + l.Why
		}
		return "reserved for " + l.Owner.String()
	}
	return "in quarantine: " + l.Why
}

// GivenUp returns the lease after it was given up: reserved, quarantined, or free,
// which is ok == false.
func (l Lease) GivenUp(why string, now time.Time) (_ Lease, ok bool) {
	if l.Conflict {
		why = l.Why
		l.Policy.Quarantine = max(l.Policy.Quarantine, DefaultQuarantine)
	}
	l.ReleasedAt, l.Why, l.BootID, l.Origin = now, why, "", ""
	if !l.byHand(now) {
		l.ByHand, l.ByHandUntil = false, time.Time{}
	}
	switch {
	case l.Owner != (attachment.Owner{}) && (l.ByHand || l.Policy.Sticky):
		l.State, l.Until, l.Conflict = Reserved, l.reservedUntil(now), false
		return l, true
	case l.Policy.Quarantine > 0:
		l.State, l.Until = Quarantined, now.Add(l.Policy.Quarantine)
		return l, true
	}
	return Lease{}, false
}

// byHand says whether an operator's reservation is in force.
func (l Lease) byHand(now time.Time) bool {
	return l.ByHand && (l.ByHandUntil.IsZero() || now.Before(l.ByHandUntil))
}

// reservedUntil is when a reservation ends that begins now: the latest of what the
// policy and what an operator says, and of the quarantine.
func (l Lease) reservedUntil(now time.Time) time.Time {
	if l.ByHand && l.ByHandUntil.IsZero() || l.Policy.Sticky && l.Policy.Retain == 0 {
		return time.Time{}
	}
	until := now.Add(l.Policy.Quarantine)
	if retained := now.Add(l.Policy.Retain); l.Policy.Sticky && retained.After(until) {
		until = retained
	}
	if l.ByHandUntil.After(until) {
		until = l.ByHandUntil
	}
	return until
}
