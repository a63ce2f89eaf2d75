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
	// Owner is for whom the address is kept, if Policy is sticky.
	Owner attachment.Owner
	// Also are further owners whose addresses the attachment may have: the pod by its name, under which an earlier policy
	// or an operator has kept an address.
	Also []attachment.Owner
	// Resolved is the pod's owner by the Kubernetes API, nobody if the API was not asked.
	Resolved attachment.Owner
	Pod      attachment.Pod
	// Namespace is the sandbox's, as far as it is known.
	Namespace attachment.Namespace
	Sets      []RangeSet
	// Pools are pools of the Kubernetes API. If there are any, the attachment gets one address of each, and there are no Sets.
	Pools []string
	// Probes says that the attachment can probe for an address of a pool before it uses it.
	Probes bool
	// Acquired are those of the pools for which relink-agent was asked for the owner's address. Sought are the addresses that it
	// was asked for.
	Acquired []string
	Sought   []netip.Addr
	// Owned are addresses of pools that are the owner's by the API: it gets no others.
	Owned []netip.Addr
	// Beside are those of Owned that a pod of the owner still has on another node. They are given without a grant.
	Beside []netip.Addr
	// Wanted are the addresses that the attachment asks for, at most one of each set.
	Wanted []netip.Addr
	// OneOf are addresses of which the attachment wants one of each set that has any of them: the one that is its
	// owner's already, or the first that nobody has.
	OneOf  []netip.Addr
	Policy Policy
}

// RefusedError says that no ADD can give the requested address.
type RefusedError struct {
	Address netip.Addr
	// Beside is the address of the same range set that is asked for, too. It is the zero Addr if that is not the reason.
	Beside netip.Addr
	// Why is for whoever asked.
	Why string
}

// Error returns the address and the reason.
func (e *RefusedError) Error() string { return e.Address.String() + " " + e.Why }

// Allocate gives the attachment one address of each set, or nothing. The attachment keeps what it holds
// already. ErrExhausted: a set has no free address; ErrTaken: a wanted address is somebody else's;
// *RefusedError: no ADD can give a wanted address. For pools also: ErrUnconfirmed; *ElsewhereError: the address may be on another
// node.
func (s *Store) Allocate(ctx context.Context, r Request) (given []Lease, err error) {
	s.remarks, s.from = nil, nil
	err = s.update(ctx, func(l *leases) (err error) {
		given, err = l.allocate(r)
		return err
	})
	if err != nil {
		s.from = nil
	}
	return given, err
}

// ofNetwork is the policy for all addresses of the network, without what is decided for each pod.
func (r Request) ofNetwork() Policy {
	p := r.Policy
	if p.ByOwner { // Each owner decides whether it is sticky.
		p.Sticky, p.Retain = false, 0
	}
	p.Shared, p.ByOwner = false, false
	return p
}

// Remarks returns what the last Allocate found wrong, and what to do about it, for people.
func (s *Store) Remarks() []string { return s.remarks }

func (l *leases) allocate(r Request) ([]Lease, error) {
	if err := l.settle(); err != nil {
		return nil, err
	}
	r.Owner, r.Resolved, r.Also = storable(r.Owner), storable(r.Resolved), slices.Clone(r.Also)
	for i := range r.Also {
		r.Also[i] = storable(r.Also[i])
	}
	held, err := l.heldBy(r.Attachment)
	if err != nil {
		return nil, err
	}
	if len(r.Pools) > 0 {
		return l.allocateFromPools(r, held)
	}
	return l.allocateFromSets(r, held)
}

// allocateFromSets is allocate for a request with ranges of its own. held is what the attachment has.
func (l *leases) allocateFromSets(r Request, held []Lease) (given []Lease, err error) {
	if err := l.remarkGateways(r.Sets); err != nil {
		return nil, err
	}
	wanted, left, err := r.asked(r.Sets)
	if err != nil {
		return nil, err
	}
	for i, set := range r.Sets {
		c := choice{leases: l, Request: r, number: i, set: set, whole: set, wanted: wanted[i]}
		lease, err := c.choose(held)
		if err != nil {
			return nil, err
		}
		given = append(given, lease)
	}
	if len(left) > 0 {
		return nil, leftOver(r.Sets, wanted, left[0])
	}
	return given, l.remember(Known{Sets: r.Sets, Policy: r.ofNetwork()})
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
	// whole is the set or, for a pool, all addresses of the pool. set are those of them that this node may give.
	whole RangeSet
	// pool is nil if the set is one of Request.Sets.
	pool *pooled
	// wanted is the address of this set that the attachment asks for, the zero Addr for none.
	wanted netip.Addr
}

// choose gives the requested address, else the owner's, else the next one.
func (c choice) choose(held []Lease) (Lease, error) {
	if lease, has := c.held(held); has {
		return c.keep(lease)
	}
	if c.pool != nil {
		return c.chooseOfPool()
	}
	if c.wanted.IsValid() {
		return c.asked(c.wanted)
	}
	if oneOf := c.oneOf(); len(oneOf) > 0 {
		return c.askedOneOf(oneOf)
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

// held returns which address of the set the attachment has already.
func (c choice) held(all []Lease) (Lease, bool) {
	if i := slices.IndexFunc(all, func(h Lease) bool { _, ok := c.whole.Find(h.Address); return ok }); i >= 0 {
		return all[i], true
	}
	return Lease{}, false
}

// keep is for a repeated ADD: it gets what the first one got. The attachment may have another sandbox by now,
// as after a container was stopped and started again. That sandbox is the holder then.
func (c choice) keep(held Lease) (Lease, error) {
	wanted := c.wanted
	if oneOf := c.oneOf(); !wanted.IsValid() && len(oneOf) > 0 && !slices.Contains(oneOf, held.Address) {
		wanted = oneOf[0]
	}
	if wanted.IsValid() && wanted != held.Address {
		return Lease{}, &RefusedError{Address: wanted, Why: fmt.Sprintf("cannot be given: %s holds %s already; DEL it first", c.Attachment, held.Address)}
	}
	i := slices.IndexFunc(held.Holders, func(h Holder) bool { return h.is(c.Attachment) })
	h, is := held.Holders[i], c.Namespace
	if !c.isThisPod(h.Pod) && c.besideAnother(held) {
		return Lease{}, fmt.Errorf("%s is %w to pod %s: it is %s; DEL %s first", held.Address, ErrTaken, c.Pod, held.Whose(), c.Attachment)
	}
	is.BootID = h.Namespace.BootID // A holder of an earlier boot is none any more.
	byThisName := h.Network == "" || h.Network == c.store.network
	if byThisName && (is.Inode == 0 || h.Namespace.Same(is) == nil && h.Pod.UID == c.Pod.UID) {
		return held, nil
	}
	h.Network, h.Pod, h.Owner, h.Since = "", c.Pod, c.Resolved, c.now
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
func (c choice) asked(a netip.Addr) (Lease, error) {
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
	case c.isMine(lease):
		return c.give(lease, Requested)
	}
	return Lease{}, fmt.Errorf("requested address %s is %w: it is %s", a, ErrTaken, lease.whoseFor(c.Owner))
}

// isMine says whether the address waits for the owner who asks, or is held by its sandbox before.
func (c choice) isMine(l Lease) bool {
	return !c.over(l) && (l.State == Reserved && c.isOwners(l) || c.succeeds(l, true))
}

// isOwners says whether the lease is on behalf of the owner who asks, or the last holder's pod was the owner's. What an
// operator has reserved is for whom the operator has said.
func (c choice) isOwners(l Lease) bool {
	if !l.owned() {
		return false
	}
	if l.Owner == c.Owner || slices.Contains(c.Also, l.Owner) {
		return true
	}
	return !l.byHand(c.now) && (c.isResolvedOwners(l) || c.isSamePods(l))
}

// isSamePods says whether the pod that asks had the address last. Its owner can have been made anew meanwhile.
func (c choice) isSamePods(l Lease) bool { return c.Pod.UID != "" && l.Newest().Pod.UID == c.Pod.UID }

// isResolvedOwners says whether the API has told of both pods that they are one owner's.
func (c choice) isResolvedOwners(l Lease) bool {
	return c.Resolved != (attachment.Owner{}) && l.Newest().Owner == c.Resolved
}

// owned looks for an address of the set that waits for the owner, or that another sandbox of the owner
// still holds.
func (c choice) owned() (_ Lease, ok bool, err error) {
	all, err := c.ownedByAny()
	if err != nil {
		return Lease{}, false, err
	}
	all = slices.DeleteFunc(all, func(l Lease) bool {
		gives, _ := c.set.Gives(l.Address)
		return !gives || c.over(l) || l.State == Held && !c.succeeds(l, false) || c.isInDoubt(l)
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
	case l.byHand(c.now) && (had == c.Attachment.IfName || had == ""), c.Policy.Shared && had == c.Attachment.IfName && c.isThisPod(l.Newest().Pod):
		return 0
	case l.State == Held: // By the owner's sandbox before, on the same interface: it has had this one last.
		return 1
	case l.State == Reserved && had == c.Attachment.IfName:
		return 2
	}
	return 3
}

// ownedByAny returns what is held or reserved for the owner, under any of its names.
func (c choice) ownedByAny() (all []Lease, err error) {
	for _, o := range append([]attachment.Owner{c.Owner}, c.Also...) {
		if o == (attachment.Owner{}) {
			continue
		}
		more, err := c.ownedBy(o)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

// succeeds says whether this attachment follows on one that holds the address: it is the same interface of
// the owner's next sandbox. asked says that it asks for this address: then no policy need keep it, if the API knows the
// owner. A pod's name alone does not tell whether two sandboxes are of one workload.
func (c choice) succeeds(l Lease, asked bool) bool {
	if l.State != Held || !c.isOwners(l) || c.besideAnother(l) {
		return false
	}
	keeps := asked && (c.isResolvedOwners(l) || c.isSamePods(l)) || c.Policy.Sticky || l.Newest().Policy.Sticky || l.byHand(c.now)
	return keeps && slices.ContainsFunc(l.Holders, func(h Holder) bool {
		return h.IfName == c.Attachment.IfName && h.ContainerID != c.Attachment.ContainerID
	})
}

// isThisPod says whether the pod is the one that asks, or one that was there before under its name: two pods of one name never
// run at the same time.
func (c choice) isThisPod(p attachment.Pod) bool {
	return c.Pod.UID != "" && p.UID == c.Pod.UID || c.Pod.Owner() != (attachment.Owner{}) && p.Owner() == c.Pod.Owner()
}

// besideAnother says that another pod of the owner may run with the address. It keeps the address then: only the next
// sandbox of the same pod follows on it.
func (c choice) besideAnother(l Lease) bool {
	shared := c.Policy.Shared || slices.ContainsFunc(l.Holders, func(h Holder) bool { return h.Policy.Shared })
	return shared && slices.ContainsFunc(l.Holders, func(h Holder) bool {
		return !h.is(c.Attachment) && !c.isThisPod(h.Pod)
	})
}
