package lease

import (
	"context"
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

// EventType is what happened to an address.
type EventType string

// The values of EventType.
const (
	// Given: an attachment has the address, maybe beside an earlier holder.
	Given EventType = "given"
	// GaveUp: a holder gave it up.
	GaveUp EventType = "given up"
	// ReservedByHand and ReleasedByHand: an operator did that.
	ReservedByHand EventType = "reserved by hand"
	ReleasedByHand EventType = "released by hand"
	// Ended: a reservation or a quarantine is over.
	Ended EventType = "ended"
	// InConflict: another host uses it.
	InConflict EventType = "in conflict"
	// LeaseImported: the lease comes from another IPAM plugin.
	LeaseImported EventType = "taken in"
	// Awaited: the address waits for an owner, and comes from another node. HandedOver: it goes to another node.
	Awaited    EventType = "awaited"
	HandedOver EventType = "handed over"
	// ClockReset: an operator set the time of the store. It concerns no address.
	ClockReset EventType = "clock reset"
)

// Event is what happened to an address, and who it happened to.
type Event struct {
	Time    time.Time  `json:"at"`
	Address netip.Addr `json:"address,omitzero"`
	Type    EventType  `json:"what"`
	Reason  string     `json:"why,omitzero"`
	// StateAfter is what the address is afterwards, empty for free.
	StateAfter State `json:"then,omitzero"`
	// ContainerID, IfName and PodUID are the holder's, empty if there is none.
	ContainerID string           `json:"containerID,omitzero"`
	IfName      string           `json:"ifName,omitzero"`
	PodUID      string           `json:"podUID,omitzero"`
	Owner       attachment.Owner `json:"owner,omitzero"`
}

// withLease returns the event with the address and owner of the lease, and the holder.
func (e Event) withLease(l Lease, h Holder) Event {
	e.Address, e.Owner = l.Address, l.Owner
	e.ContainerID, e.IfName, e.PodUID = h.ContainerID, h.IfName, h.Pod.UID
	return e
}

// How many events a store keeps. A quarter more may be there: they are deleted together.
const (
	maxEvents  = 4096
	moreEvents = maxEvents / 4
)

// addEvent has the event recorded when the change ends. If one change makes more events than a store keeps,
// the oldest are not even encoded.
func (l *leaseTx) addEvent(e Event) {
	e.Time = l.instant
	if len(l.newEvents) >= maxEvents+moreEvents {
		l.newEvents = append(l.newEvents[:0], l.newEvents[moreEvents:]...)
	}
	l.newEvents = append(l.newEvents, e)
}

// writeEvents records what was noted, and deletes the oldest.
func (l *leaseTx) writeEvents() error {
	for _, e := range l.newEvents {
		n, err := l.events.NextSequence()
		if err != nil {
			return err
		}
		if err := l.events.Put(eventKey(n), encode(&e)); err != nil {
			return err
		}
	}
	l.newEvents = nil
	return l.trimEvents()
}

// trimEvents deletes the oldest events once a store has a quarter more than it keeps. They are numbered without a
// gap.
func (l *leaseTx) trimEvents() error {
	cursor := l.events.Cursor()
	oldest, _ := cursor.First()
	if oldest == nil || l.events.Sequence()-numberOf(oldest) < maxEvents+moreEvents {
		return nil
	}
	for ; oldest != nil && l.events.Sequence()-numberOf(oldest) >= maxEvents; oldest, _ = cursor.First() {
		if err := cursor.Delete(); err != nil {
			return err
		}
	}
	return nil
}

func eventKey(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// numberOf returns the number that eventKey has written.
func numberOf(key []byte) (n uint64) {
	for _, b := range key {
		n = n<<8 | uint64(b)
	}
	return n
}

// History returns what happened to the address, the oldest first, as far as the store
// remembers it. ErrNotLeased: nothing was ever given.
func (s *Store) History(ctx context.Context, a netip.Addr) ([]Event, error) {
	return result(ctx, s.view, func(l *leaseTx) (events []Event, err error) {
		err = l.eachEvent(func(e Event) {
			if e.Address == a {
				events = append(events, e)
			}
		})
		return events, err
	})
}

// eachEvent calls f for every event, the oldest first.
func (l *leaseTx) eachEvent(f func(Event)) error {
	return l.events.ForEach(func(_, b []byte) error {
		var e Event
		err := decode(b, "event", &e)
		if err == nil {
			f(e)
		}
		return err
	})
}
