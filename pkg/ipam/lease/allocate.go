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
	// Owner is for whom the address is kept, if Policy is sticky. Its texts, and those of the other owners, are UTF-8: in JSON there is nothing
	// else, and the index would have another owner than the lease.
	Owner attachment.Owner
	// AlternateOwner is another owner whose addresses the attachment may have, nobody for none: the pod by its name, under which an earlier policy
	// or an operator has kept an address.
	AlternateOwner attachment.Owner
	// APIOwner is the pod's owner by the Kubernetes API, nobody if the API was not asked.
	APIOwner attachment.Owner
	Pod      attachment.Pod
	// Namespace is the sandbox's, as far as it is known.
	Namespace attachment.Namespace
	Sets      []RangeSet
	// Pools are pools of the Kubernetes API, or choices of them (pool.Choice). If there are any, the attachment gets one address of each, and there are no Sets.
	Pools []string
	// Probes says that the attachment can probe for an address of a pool before it uses it.
	Probes bool
	// QueriedPools are those of the pools for which relink-agent was asked for the owner's address. QueriedAddresses are the addresses that it
	// was asked for.
	QueriedPools     []string
	QueriedAddresses []netip.Addr
	// OwnerAddresses are addresses of pools that are the owner's by the API: it gets no others.
	OwnerAddresses []netip.Addr
	// MigratingAddresses are those of OwnerAddresses that a pod of the owner still has on another node. They are given without a grant.
	MigratingAddresses []netip.Addr
	// RequestedAddresses are the addresses that the attachment asks for, at most one of each set.
	RequestedAddresses []netip.Addr
	// CandidateAddresses are addresses of which the attachment wants one of each set that has any of them: that of its number among them, or
	// without a number the one that is its owner's already, or the first that nobody has.
	CandidateAddresses []netip.Addr
	Replica            *int
	Policy             Policy
}

// RefusedError says that no ADD can give the requested address.
type RefusedError struct {
	Address netip.Addr
	// Reason is for whoever asked.
	Reason string
}

// Error returns the address and the reason.
func (e *RefusedError) Error() string { return e.Address.String() + " " + e.Reason }

// Allocate gives the attachment one address of each set, or nothing. The attachment keeps what it holds
// already. ErrExhausted: a set has no free address; ErrTaken: a wanted address is somebody else's;
// *RefusedError: no ADD can give a wanted address. For pools also: ErrUnconfirmed; ErrUnchosen; *ElsewhereError: the address may be on another
// node.
func (s *Store) Allocate(ctx context.Context, r Request) (leases []Lease, err error) {
	s.remarks, s.poolAddresses = nil, nil
	err = s.update(ctx, func(l *leaseTx) (err error) {
		leases, err = l.allocate(r)
		return err
	})
	if err != nil {
		s.poolAddresses = nil
	}
	return leases, err
}

// Remarks returns what the last Allocate found wrong, and what to do about it, for people.
func (s *Store) Remarks() []string { return s.remarks }

func (l *leaseTx) allocate(r Request) (leases []Lease, err error) {
	if err := l.freeExpired(); err != nil {
		return nil, err
	}
	held, err := l.heldBy(r.Attachment)
	if err != nil {
		return nil, err
	}
	if len(r.Pools) > 0 {
		if err := l.setPools(r.Pools); err != nil && !errors.Is(err, errUnchanged) {
			return nil, err
		}
	}
	names, err := l.resolvePools(r.Pools)
	if err != nil {
		return nil, err
	}
	requested := RequestedRanges{Sets: r.Sets, Pools: names}
	sets, err := l.addressSets(requested)
	if err != nil {
		return nil, err
	}
	if l.store.remarks, err = l.remarkGateways(sets); err != nil {
		return nil, err
	}
	var choices []choice
	for _, set := range sets {
		c := choice{leaseTx: l, Request: r, addressSet: set}
		if !r.Probes {
			c.gives = c.ready
		}
		if err := c.checkPool(held); err != nil {
			return nil, err
		}
		choices = append(choices, c)
	}
	wishes, refused := r.assign(sets.ranges())
	if len(refused) > 0 {
		return nil, refused[0]
	}
	for i, c := range choices {
		c.wish = wishes[i]
		lease, err := c.choose(held)
		if err != nil {
			return nil, err
		}
		if leases = append(leases, lease); c.isPool() {
			l.store.poolAddresses = append(l.store.poolAddresses, PoolAddress{c.poolLayout, c.needsProbe.Has(lease.Address), !sets[i].gives.Has(lease.Address)})
		}
	}
	return leases, l.putLastRequested(requested)
}

// remarkGateways remarks on a gateway that is a pod's address: the configuration changed after the pod was
// attached. That is no reason to keep pods from starting: it may be meant.
func (l *leaseTx) remarkGateways(sets addressSets) (remarks []string, err error) {
	for _, set := range sets {
		for _, r := range set.members {
			lease, err := l.find(r.Gateway)
			if err != nil {
				return nil, err
			}
			if lease.State == Held {
				remarks = append(remarks, gatewayRemark(r, lease))
			}
		}
	}
	return remarks, nil
}

// gatewayRemark says which pod has the gateway's address, and what to do.
func gatewayRemark(r Range, l Lease) string {
	return fmt.Sprintf("%s, the gateway of %s, is %s: the other pods send their traffic to that pod. "+
		"Delete that pod, and it gets another address. If its sandbox is gone, relink gc --leases --network %s frees the address",
		r.Gateway, r.Subnet, l.Describe(), l.Network)
}

// choice is the choice of an address of one set.
type choice struct {
	*leaseTx
	Request
	addressSet
	wish
}

// choose gives the requested address, else the owner's, else the next one.
func (c choice) choose(held []Lease) (Lease, error) {
	if lease, ok := c.heldInSet(held); ok {
		return c.keepHeld(lease)
	}
	switch a := c.firstOf(c.MigratingAddresses); {
	case a.IsValid():
		return c.giveMigrating(a)
	case c.requested.IsValid():
		return c.giveRequested([]netip.Addr{c.requested})
	case !c.isPool() && len(c.choices) > 0:
		return c.giveRequested(c.choices)
	}
	owned, ok, err := c.ownerLease()
	if err != nil {
		return Lease{}, err
	}
	wants := func(a netip.Addr) bool { return len(c.choices) == 0 || slices.Contains(c.choices, a) }
	if ok && wants(owned.Address) {
		return c.give(owned, FromReservation)
	}
	if !ok && c.isKeptByAPI() && !c.isPoolQueried() {
		return Lease{}, &ElsewhereError{Pool: c.poolLayout.Name}
	}
	if a := c.firstOf(c.OwnerAddresses); a.IsValid() && wants(a) {
		return Lease{}, fmt.Errorf("%s of pool %s is %w: the Kubernetes API has it for the owner, and this node has not got it", a, c.poolLayout.Name, ErrTaken)
	}
	if len(c.choices) > 0 {
		return c.giveRequested(c.choices)
	}
	return c.giveNext()
}

// heldInSet returns which address of the set the attachment has already.
func (c choice) heldInSet(leases []Lease) (Lease, bool) {
	if i := slices.IndexFunc(leases, func(l Lease) bool { return c.members.Has(l.Address) }); i >= 0 {
		return leases[i], true
	}
	return Lease{}, false
}

// keepHeld is for a repeated ADD: it gets what the first one got. The attachment may have another sandbox by now,
// as after a container was stopped and started again. That sandbox is the holder then.
func (c choice) keepHeld(held Lease) (Lease, error) {
	wanted := c.requested
	if !wanted.IsValid() && len(c.choices) > 0 && !slices.Contains(c.choices, held.Address) {
		wanted = c.choices[0]
	}
	if wanted.IsValid() && wanted != held.Address {
		return Lease{}, &RefusedError{Address: wanted, Reason: fmt.Sprintf("cannot be given: %s holds %s already; DEL it first", c.Attachment, held.Address)}
	}
	i := slices.IndexFunc(held.Holders, func(h Holder) bool { return h.IsAttachment(c.Attachment) })
	h, namespace := held.Holders[i], c.Namespace
	if !c.isRequestingPod(h.Pod) && c.heldByOtherPod(held) {
		return Lease{}, fmt.Errorf("%s is %w to pod %s: it is %s; DEL %s first", held.Address, ErrTaken, c.Pod, held.Describe(), c.Attachment)
	}
	namespace.BootID = h.Namespace.BootID // A holder of an earlier boot is none any more.
	if h.Key(c.store.network) == c.Attachment && (namespace.Inode == 0 || h.Namespace.Same(namespace) == nil && h.Pod.UID == c.Pod.UID) {
		return held, nil
	}
	h.Network, h.Pod, h.Owner, h.Since = c.networkOf(c.Attachment), c.Pod, c.APIOwner, c.instant
	if namespace.Inode != 0 {
		h.Namespace = namespace
	}
	if h.Origin == Imported {
		h.Origin = Requested
	}
	held.Holders = slices.Clone(held.Holders)
	held.Holders[i] = h
	return held, c.record(held, h, Given, "asked for again by another sandbox of the attachment", held)
}

// belongsToRequester says whether the address waits for the owner who asks, or is held by its sandbox before.
func (c choice) belongsToRequester(l Lease) bool {
	return !c.hasEnded(l) && (l.State == Reserved && c.isOwnerLease(l) || c.canTakeOver(l, true))
}

// isOwnerLease says whether the lease is on behalf of the owner who asks, or the last holder's pod was the owner's. What an
// operator has reserved is only for the owner that the operator named.
func (c choice) isOwnerLease(l Lease) bool {
	if !l.hasOwner() {
		return false
	}
	if l.Owner == c.Owner || l.Owner == c.AlternateOwner {
		return true
	}
	return !l.ReservedByHandAt(c.instant) && (c.isAPIOwnerLease(l) || c.isPodLease(l))
}

// isPodLease says whether the pod that asks had the address last. Its owner can have been made anew meanwhile.
func (c choice) isPodLease(l Lease) bool { return c.Pod.UID != "" && l.Newest().Pod.UID == c.Pod.UID }

// isAPIOwnerLease says whether the API has told of both pods that they are one owner's.
func (c choice) isAPIOwnerLease(l Lease) bool {
	return c.APIOwner != (attachment.Owner{}) && l.Newest().Owner == c.APIOwner
}

// ownerLease looks for an address of the set that waits for the owner, or that another sandbox of the owner
// still holds.
func (c choice) ownerLease() (_ Lease, ok bool, err error) {
	leases, err := c.ownerLeases()
	if err != nil {
		return Lease{}, false, err
	}
	leases = slices.DeleteFunc(leases, func(l Lease) bool {
		gives, _ := c.gives.Gives(l.Address)
		return !gives || c.hasEnded(l) || l.State == Held && !c.canTakeOver(l, false) || c.isInDoubt(l)
	})
	if len(leases) == 0 {
		return Lease{}, false, nil
	}
	return slices.MinFunc(leases, c.compare), true, nil
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
	if !l.ReservedByHandAt(c.instant) {
		return time.Time{}
	}
	return l.ByHandAt
}

func (c choice) rank(l Lease) int {
	ifName := l.Newest().IfName
	switch {
	case l.ReservedByHandAt(c.instant) && (ifName == c.Attachment.IfName || ifName == ""), c.Policy.Shared && ifName == c.Attachment.IfName && c.isRequestingPod(l.Newest().Pod):
		return 0
	case l.State == Held: // By an earlier sandbox of the owner, on the same interface: the owner had this one last.
		return 1
	case l.State == Reserved && ifName == c.Attachment.IfName:
		return 2
	}
	return 3
}

// ownerLeases returns what is held or reserved for the owner, under any of its names.
func (c choice) ownerLeases() (leases []Lease, err error) {
	for _, o := range []attachment.Owner{c.Owner, c.AlternateOwner} {
		if o == (attachment.Owner{}) {
			continue
		}
		found, err := c.ownedBy(o)
		if err != nil {
			return nil, err
		}
		leases = append(leases, found...)
	}
	return leases, nil
}

// canTakeOver says whether this attachment follows on one that holds the address: it is the same interface of the owner's
// next sandbox. asked says that it asks for this address: then the address needs no sticky policy, if the API knows the
// owner. A pod's name alone does not tell whether two sandboxes are of one workload.
func (c choice) canTakeOver(l Lease, asked bool) bool {
	if l.State != Held || !c.isOwnerLease(l) || c.heldByOtherPod(l) {
		return false
	}
	keeps := asked && (c.isAPIOwnerLease(l) || c.isPodLease(l)) || c.Policy.Sticky || l.Newest().Policy.Sticky || l.ReservedByHandAt(c.instant)
	return keeps && slices.ContainsFunc(l.Holders, func(h Holder) bool {
		return h.IfName == c.Attachment.IfName && h.ContainerID != c.Attachment.ContainerID
	})
}

// isRequestingPod says whether the pod is the one that asks, or one that was there before under its name: two pods of one name never
// run at the same time.
func (c choice) isRequestingPod(p attachment.Pod) bool {
	return c.Pod.UID != "" && p.UID == c.Pod.UID || c.Pod.Owner() != (attachment.Owner{}) && p.Owner() == c.Pod.Owner()
}

// heldByOtherPod says that another pod of the owner may run with the address. It keeps the address then: only the next
// sandbox of the same pod follows on it.
func (c choice) heldByOtherPod(l Lease) bool {
	shared := c.Policy.Shared || slices.ContainsFunc(l.Holders, func(h Holder) bool { return h.Policy.Shared })
	return shared && slices.ContainsFunc(l.Holders, func(h Holder) bool {
		return !h.IsAttachment(c.Attachment) && !c.isRequestingPod(h.Pod)
	})
}
