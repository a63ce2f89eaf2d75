package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

// ErrExhausted says that no address of a range set can be given now.
var ErrExhausted = errors.New("no address is free")

// ErrTaken says that the requested address is somebody else's.
var ErrTaken = errors.New("not available")

// Request is what an attachment asks for.
type Request struct {
	Attachment attachment.Key
	Owner      attachment.Owner
	PodUID     string
	// Namespace is the sandbox's, as far as it is known.
	Namespace attachment.Namespace
	Sets      []RangeSet
	// Wanted are the addresses that the attachment asks for, at most one of each set.
	Wanted []netip.Addr
	Policy Policy
}

// RefusedError says that no ADD can give the requested address.
type RefusedError struct {
	Address netip.Addr
	// Why is for whoever asked.
	Why string
}

// Error returns the address and the reason.
func (e *RefusedError) Error() string { return e.Address.String() + " " + e.Why }

// Allocate gives the attachment one address of each set, or nothing. The attachment keeps what it holds
// already. ErrExhausted: a set has no free address; ErrTaken: a wanted address is somebody else's;
// *RefusedError: no ADD can give a wanted address.
func (s *Store) Allocate(ctx context.Context, r Request) (given []Lease, err error) {
	s.remarks = nil
	err = s.update(ctx, func(l *leases) (err error) {
		given, err = l.allocate(r)
		return err
	})
	return given, err
}

// Remarks returns what the last Allocate found wrong, and what to do about it, for people.
func (s *Store) Remarks() []string { return s.remarks }

func (l *leases) allocate(r Request) ([]Lease, error) {
	if err := errors.Join(l.settle(), l.remarkGateways(r.Sets)); err != nil {
		return nil, err
	}
	r.Owner = storable(r.Owner)
	held, err := l.heldBy(r.Attachment)
	if err != nil {
		return nil, err
	}
	wanted, left := assign(r.Sets, r.Wanted)
	var given []Lease
	for i, set := range r.Sets {
		c := choice{leases: l, Request: r, number: i, set: set, wanted: wanted[i]}
		lease, err := c.choose(held)
		if err != nil {
			return nil, err
		}
		given = append(given, lease)
	}
	if len(left) > 0 {
		return nil, leftOver(left[0])
	}
	return given, l.remember(Known{Sets: r.Sets, Policy: r.Policy})
}

// assign returns the wanted address of each set, the zero Addr for none, and those that are left over.
func assign(sets []RangeSet, wanted []netip.Addr) (each, left []netip.Addr) {
	left = slices.Clone(wanted)
	for _, set := range sets {
		var one netip.Addr
		if n := slices.IndexFunc(left, func(a netip.Addr) bool { _, ok := set.Find(a); return ok }); n >= 0 {
			one = left[n]
			left = slices.Delete(left, n, n+1)
		}
		each = append(each, one)
	}
	return each, left
}

func leftOver(a netip.Addr) *RefusedError {
	return &RefusedError{a, "is in none of the range sets, or is the second address of a set that gives one"}
}

func notGiven(a netip.Addr, why string) *RefusedError {
	return &RefusedError{a, "cannot be given: " + why}
}

// CheckWanted returns an error for each wanted address that no Allocate of an attachment without addresses would give,
// whatever is leased.
func CheckWanted(sets []RangeSet, wanted []netip.Addr) []*RefusedError {
	var errs []*RefusedError
	each, left := assign(sets, wanted)
	for i, a := range each {
		if ok, why := sets[i].Gives(a); a.IsValid() && !ok {
			errs = append(errs, notGiven(a, why))
		}
	}
	for _, a := range left {
		errs = append(errs, leftOver(a))
	}
	return errs
}

// remarkGateways remarks on a gateway that is a pod's address: the configuration changed after the pod was
// attached. That is no reason to keep pods from starting: it may be meant.
func (l *leases) remarkGateways(sets []RangeSet) error {
	for _, set := range sets {
		for _, r := range set {
			lease, leased, err := l.get(r.Gateway)
			if err != nil {
				return err
			}
			if leased && lease.State == Held {
				l.store.remarks = append(l.store.remarks, gatewayRemark(r, lease))
			}
		}
	}
	return nil
}

// gatewayRemark says which pod has the gateway's address, and what to do.
func gatewayRemark(r Range, l Lease) string {
	return fmt.Sprintf("%s, the gateway of %s, is %s: the other pods send their traffic to that pod. "+
		"Delete that pod, and it gets another address. If its sandbox is gone, relink ipam reclaim --network %s frees the address",
		r.Gateway, r.Subnet, l.Whose(), l.Network)
}

// choice is the choice of an address of one set.
type choice struct {
	*leases
	Request
	number int
	set    RangeSet
	// wanted is the address of this set that the attachment asks for, the zero Addr for none.
	wanted netip.Addr
}

// choose gives the requested address, else the owner's, else the next one.
func (c choice) choose(held []Lease) (Lease, error) {
	if i := slices.IndexFunc(held, func(h Lease) bool { _, ok := c.set.Find(h.Address); return ok }); i >= 0 {
		return c.keep(held[i])
	}
	if c.wanted.IsValid() {
		return c.asked()
	}
	owned, ok, err := c.owned()
	if err != nil {
		return Lease{}, err
	}
	if ok {
		return c.give(owned, FromReservation)
	}
	return c.next()
}

// keep is for a repeated ADD: it gets what the first one got. The attachment may have another sandbox by now,
// as after a container was stopped and started again. That sandbox is the holder then.
func (c choice) keep(held Lease) (Lease, error) {
	if c.wanted.IsValid() && c.wanted != held.Address {
		return Lease{}, &RefusedError{c.wanted, fmt.Sprintf("cannot be given: %s holds %s already; DEL it first", c.Attachment, held.Address)}
	}
	i := slices.IndexFunc(held.Holders, func(h Holder) bool { return h.is(c.Attachment) })
	h, is := held.Holders[i], c.Namespace
	is.BootID = h.Namespace.BootID // A holder of an earlier boot is none any more.
	byThisName := h.Network == "" || h.Network == c.store.network
	if byThisName && (is.Inode == 0 || h.Namespace.Same(is) == nil && h.PodUID == c.PodUID) {
		return held, nil
	}
	h.Network, h.PodUID, h.Since = "", c.PodUID, c.now
	if is.Inode != 0 {
		h.Namespace = is
	}
	if h.Origin == Imported {
		h.Origin = Requested
	}
	held.Holders = slices.Clone(held.Holders)
	held.Holders[i] = h
	c.note(Event{What: Given, Why: "asked for again by another sandbox of the attachment", Then: Held}.of(held, h))
	return held, c.put(held)
}

// asked gives the requested address, unless it is somebody else's.
func (c choice) asked() (Lease, error) {
	a := c.wanted
	if ok, why := c.set.Gives(a); !ok {
		return Lease{}, notGiven(a, why)
	}
	lease, leased, err := c.get(a)
	if err != nil {
		return Lease{}, err
	}
	switch {
	case !leased, lease.State == Quarantined, c.over(lease):
		return c.inTurn(Lease{Address: a}, Requested)
	case lease.State == Reserved && c.isOwners(lease), c.succeeds(lease):
		return c.give(lease, Requested)
	}
	return Lease{}, fmt.Errorf("requested address %s is %w: it is %s", a, ErrTaken, lease.Whose())
}

// isOwners says whether the lease is on behalf of the owner who asks.
func (c choice) isOwners(l Lease) bool { return l.owned() && l.Owner == c.Owner }

// owned looks for an address of the set that waits for the owner, or that another sandbox of the owner
// still holds.
func (c choice) owned() (_ Lease, ok bool, err error) {
	if c.Owner == (attachment.Owner{}) {
		return Lease{}, false, nil
	}
	all, err := c.ownedBy(c.Owner)
	if err != nil {
		return Lease{}, false, err
	}
	all = slices.DeleteFunc(all, func(l Lease) bool {
		gives, _ := c.set.Gives(l.Address)
		return !gives || c.over(l) || l.State == Held && !c.succeeds(l)
	})
	if len(all) == 0 {
		return Lease{}, false, nil
	}
	return slices.MinFunc(all, c.compare), true, nil
}

// compare is less than 0 if the owner gets a before b. What an operator reserved goes first, and of these
// the newest. A pod with two interfaces on a network gets each address back on the same interface. Else
// the address that the pod had last goes first.
func (c choice) compare(a, b Lease) int {
	return cmp.Or(c.rank(a)-c.rank(b), c.byHandSince(b).Compare(c.byHandSince(a)), b.ReleasedAt.Compare(a.ReleasedAt),
		b.Newest().Since.Compare(a.Newest().Since), a.Address.Compare(b.Address))
}

// byHandSince is when an operator made the reservation that is in force. Zero stands for none.
func (c choice) byHandSince(l Lease) time.Time {
	if !l.byHand(c.now) {
		return time.Time{}
	}
	return l.ByHandAt
}

func (c choice) rank(l Lease) int {
	had := l.Newest().IfName
	switch {
	case l.byHand(c.now) && (had == c.Attachment.IfName || had == ""):
		return 0
	case l.State == Reserved && had == c.Attachment.IfName:
		return 1
	case l.State == Held:
		return 2
	}
	return 3
}

// succeeds says whether this attachment follows on one that holds the address: it is the same interface of
// the pod's next sandbox.
func (c choice) succeeds(l Lease) bool {
	if l.State != Held || !c.isOwners(l) {
		return false
	}
	keeps := c.Policy.Sticky || l.Newest().Policy.Sticky || l.byHand(c.now)
	return keeps && slices.ContainsFunc(l.Holders, func(h Holder) bool {
		return h.IfName == c.Attachment.IfName && h.ContainerID != c.Attachment.ContainerID
	})
}

// next gives the next free address in turn. If there is none, it gives the one whose quarantine ends
// first.
func (c choice) next() (Lease, error) {
	for _, t := range c.set.turns(c.lastGiven(c.number)) {
		if a := c.free(t); a.IsValid() {
			return c.inTurn(Lease{Address: a}, InTurn)
		}
	}
	a, err := c.longestReleased(c.set)
	if err != nil {
		return Lease{}, err
	}
	if a.IsValid() {
		return c.inTurn(Lease{Address: a}, LongestReleased)
	}
	return Lease{}, c.exhausted(c.number, c.set)
}

// inTurn gives the address, and lets the turn go on after it.
func (c choice) inTurn(lease Lease, origin Origin) (Lease, error) {
	if err := c.setLastGiven(c.number, lease.Address); err != nil {
		return Lease{}, err
	}
	return c.give(lease, origin)
}

// give makes the attachment a holder of the address: the only one, or one beside an earlier holder. The
// earlier one goes when it gives up the address, or when this ADD has succeeded. If this ADD fails, the
// earlier one has the address as before.
func (c choice) give(was Lease, origin Origin) (Lease, error) {
	bootID, err := c.store.boot()
	if err != nil {
		return Lease{}, err
	}
	lease := Lease{
		Address: was.Address, Network: c.store.network, Owner: c.Owner, State: Held, Holders: slices.Clone(was.Holders),
		ByHand: was.ByHand, ByHandAt: was.ByHandAt, ByHandUntil: was.ByHandUntil, unknown: was.unknown,
	}
	if was.State == Held {
		origin, lease.Conflict, lease.Why = TakenOver, was.Conflict, was.Why
	}
	h := Holder{
		ContainerID: c.Attachment.ContainerID, IfName: c.Attachment.IfName, PodUID: c.PodUID, Namespace: c.Namespace,
		Since: c.now, Origin: origin, Policy: c.Policy,
	}
	h.Namespace.BootID = bootID
	lease.Holders = append(lease.Holders, h)
	c.note(Event{What: Given, Why: string(origin), Then: Held}.of(lease, h))
	return lease, errors.Join(c.put(lease), c.letOthersGo(lease))
}

// letOthersGo ends what else the policy reserves for the owner in the set, for the same interface: nobody
// would ever ask for it again.
func (c choice) letOthersGo(given Lease) error {
	if !given.owned() {
		return nil
	}
	all, err := c.ownedBy(c.Owner)
	if err != nil {
		return err
	}
	for _, other := range all {
		_, in := c.set.Find(other.Address)
		if !in || other.State != Reserved || other.byHand(c.now) || other.Last.IfName != c.Attachment.IfName {
			continue
		}
		why := fmt.Sprintf("the owner has %s instead", given.Address)
		left, ok := other.unreserved(why, c.now)
		c.note(Event{What: Ended, Why: why, Then: left.State}.of(other, Holder{}))
		if err := c.leave(other, left, ok, nil, "", ""); err != nil {
			return err
		}
	}
	return nil
}
