package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

// ErrExhausted says that no address of a range set can be given now.
var ErrExhausted = errors.New("no address is free")

// ErrTaken says that the address that is asked for is somebody else's.
var ErrTaken = errors.New("not available")

// request is what an attachment asks for.
type request struct {
	attachment attachment.Key
	owner      attachment.Owner
	podUID     string
	sets       []RangeSet
	requested  []requested
	policy     Policy
}

// allocate gives the attachment one address of each set, or nothing. What it holds
// already it keeps.
func (l *leases) allocate(r request) ([]Lease, error) {
	if err := l.settle(); err != nil {
		return nil, err
	}
	held, err := l.heldBy(r.attachment)
	if err != nil {
		return nil, err
	}
	pending := slices.Clone(r.requested)
	var given []Lease
	for i, set := range r.sets {
		c := choice{leases: l, request: r, number: i, set: set}
		if n := slices.IndexFunc(pending, func(q requested) bool { _, ok := set.Find(q.address); return ok }); n >= 0 {
			c.wanted = &pending[n]
			pending = slices.Delete(slices.Clone(pending), n, n+1)
		}
		lease, err := c.choose(held)
		if err != nil {
			return nil, err
		}
		given = append(given, lease)
	}
	if len(pending) > 0 {
		return nil, pending[0].refuse("is in none of the range sets, or a set gives one address and is asked for two")
	}
	return given, nil
}

// choice is the choice of an address of one set.
type choice struct {
	*leases
	request
	number int
	set    RangeSet
	wanted *requested
}

// choose gives the address that is asked for, else the owner's, else the next.
func (c choice) choose(held []Lease) (Lease, error) {
	if i := slices.IndexFunc(held, func(h Lease) bool { _, ok := c.set.Find(h.Address); return ok }); i >= 0 {
		return c.keep(held[i])
	}
	if c.wanted != nil {
		return c.asked()
	}
	owned, origin, err := c.owned()
	if err != nil {
		return Lease{}, err
	}
	if origin != "" {
		return c.give(owned, origin)
	}
	return c.next()
}

// keep is for an ADD that is repeated: it gets what it got before, and changes nothing.
func (c choice) keep(held Lease) (Lease, error) {
	if c.wanted != nil && c.wanted.address != held.Address {
		return Lease{}, c.wanted.refuse(fmt.Sprintf("can't be given: %s holds %s already; DEL it first", c.attachment, held.Address))
	}
	return held, nil
}

// asked gives the address that is asked for, unless it is somebody else's.
func (c choice) asked() (Lease, error) {
	a := c.wanted.address
	r, _ := c.set.Find(a)
	if ok, why := r.Gives(a); !ok {
		return Lease{}, c.wanted.refuse("can't be given: " + why)
	}
	lease, leased, err := c.get(a)
	if err != nil {
		return Lease{}, err
	}
	switch {
	case !leased, lease.State == Quarantined, c.over(lease):
		return c.inTurn(Lease{Address: a}, Requested)
	case lease.State == Reserved && lease.Owner == c.owner && c.owner != (attachment.Owner{}):
		return c.give(lease, Requested)
	case c.succeeds(lease):
		return c.give(lease, TakenOver)
	}
	return Lease{}, fmt.Errorf("requested address %s is %w: it is %s", a, ErrTaken, lease.Whose())
}

// owned looks for an address of the set that waits for the owner, or that the owner's
// sandbox before holds still. No origin: there is none.
func (c choice) owned() (Lease, Origin, error) {
	if c.owner == (attachment.Owner{}) {
		return Lease{}, "", nil
	}
	all, err := c.ownedBy(c.owner)
	if err != nil {
		return Lease{}, "", err
	}
	// The one that the pod had last, if there are several.
	slices.SortStableFunc(all, func(a, b Lease) int { return b.ReleasedAt.Compare(a.ReleasedAt) })
	all = slices.DeleteFunc(all, func(l Lease) bool {
		r, ok := c.set.Find(l.Address)
		gives, _ := r.Gives(l.Address)
		return !ok || !gives
	})
	// A pod with two interfaces on a network gets each address back on the same one.
	for _, same := range []func(Lease) bool{
		func(l Lease) bool { return l.State == Reserved && l.Attachment.IfName == c.attachment.IfName },
		c.succeeds,
		func(l Lease) bool { return l.State == Reserved },
	} {
		if i := slices.IndexFunc(all, same); i >= 0 {
			if all[i].State == Held {
				return all[i], TakenOver, nil
			}
			return all[i], FromReservation, nil
		}
	}
	return Lease{}, "", nil
}

// succeeds says whether this attachment is the next one of the pod that holds the
// address: the same interface of another sandbox.
func (c choice) succeeds(l Lease) bool {
	return l.State == Held && (c.policy.Sticky || l.Policy.Sticky || l.byHand(c.now)) && c.owner != (attachment.Owner{}) && l.Owner == c.owner &&
		l.Attachment.IfName == c.attachment.IfName && l.Attachment.ContainerID != c.attachment.ContainerID
}

// next gives the next free address in turn, and if there is none the one whose
// quarantine is the first to end.
func (c choice) next() (Lease, error) {
	for _, t := range c.set.turns(c.lastGiven(c.number)) {
		if a := c.free(t); a.IsValid() {
			return c.inTurn(Lease{Address: a}, InTurn)
		}
	}
	lease, ok, err := c.longestReleased(c.set)
	if err != nil {
		return Lease{}, err
	}
	if ok {
		return c.inTurn(Lease{Address: lease.Address}, LongestReleased)
	}
	return Lease{}, c.exhausted(c.number, c.set)
}

// inTurn gives the address and has the next one come after it.
func (c choice) inTurn(lease Lease, origin Origin) (Lease, error) {
	if err := c.setLastGiven(c.number, lease.Address); err != nil {
		return Lease{}, err
	}
	return c.give(lease, origin)
}

// give makes the attachment the holder of the address.
func (c choice) give(was Lease, origin Origin) (Lease, error) {
	bootID, err := c.store.boot()
	if err != nil {
		return Lease{}, err
	}
	policy := c.policy
	if was.State == Held && was.Policy.Sticky && !policy.Sticky {
		policy = was.Policy // The sandbox before has it still, should this ADD fail.
	}
	lease := Lease{
		Address: was.Address, Attachment: c.attachment, Owner: c.owner, PodUID: c.podUID, State: Held, Origin: origin,
		Policy: policy, ByHand: was.ByHand, ByHandUntil: was.ByHandUntil, BootID: bootID, AcquiredAt: c.now,
	}
	return lease, c.put(lease)
}

// longestReleased returns the address of the set whose reservation or quarantine ends
// first, if it is one in quarantine or has ended. One that another host has waits for
// its end.
func (l *leases) longestReleased(set RangeSet) (Lease, bool, error) {
	cursor := l.ends.Cursor()
	for k, _ := cursor.First(); k != nil; k, _ = cursor.Next() {
		lease, leased, err := l.get(addressOf(k[len(timeKey(time.Time{})):]))
		if err != nil {
			return Lease{}, false, err
		}
		if !leased || !l.over(lease) && (lease.State != Quarantined || lease.Conflict) {
			continue
		}
		if r, ok := set.Find(lease.Address); ok {
			if gives, _ := r.Gives(lease.Address); gives {
				return lease, true, nil
			}
		}
	}
	return Lease{}, false, nil
}

// canGive says whether an address of the set can be given to anybody.
func (l *leases) canGive(set RangeSet) (bool, error) {
	for _, t := range set.turns(netip.Addr{}) {
		if l.free(t).IsValid() {
			return true, nil
		}
	}
	if _, ok, err := l.longestReleased(set); ok || err != nil {
		return ok, err
	}
	// A look changes nothing, so that an ADD may find more.
	earlier, err := l.ofEarlierBoots()
	return slices.ContainsFunc(earlier, func(lease Lease) bool {
		r, ok := set.Find(lease.Address)
		gives, _ := r.Gives(lease.Address)
		left, kept := lease.GivenUp("", l.now)
		return ok && gives && (!kept || left.State == Quarantined)
	}), err
}

// exhausted says what keeps every address of the set.
func (l *leases) exhausted(number int, set RangeSet) error {
	counts := map[State]int{}
	err := l.each(func(lease Lease) error {
		lease, leased := l.asOfNow(lease)
		if _, ok := set.Find(lease.Address); ok && leased {
			counts[lease.State]++
		}
		return nil
	})
	if err != nil {
		return err
	}
	return fmt.Errorf("range set %d (%s) of network %s: %w: %d held, %d reserved, %d in quarantine; relink ipam list says for whom",
		number, set, l.store.network, ErrExhausted, counts[Held], counts[Reserved], counts[Quarantined])
}
