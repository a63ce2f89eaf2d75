package lease

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/pool"
)

// ErrUnconfirmed says that the agent has not read the Kubernetes API since the node's boot. While the node was away, others
// may have got what it had of its pools.
var ErrUnconfirmed = errors.New("this node has not read its address pools since its boot")

// ErrUnchosen says that relink-agent has not said yet which pool of a choice selects this node.
var ErrUnchosen = errors.New("this node does not know which of these pools it takes")

// ElsewhereError says that another node may have what the attachment is to get: relink-agent must be asked first.
type ElsewhereError struct {
	Pool string
	// Addresses are the addresses that the attachment asks for. It needs one of them. If there is none, it is about the address
	// that its owner has.
	Addresses []netip.Addr
}

// Error names the pool and the addresses.
func (e *ElsewhereError) Error() string {
	if len(e.Addresses) == 0 {
		return fmt.Sprintf("another node may have the owner's address of pool %s", e.Pool)
	}
	return fmt.Sprintf("this node has none of %v of pool %s", e.Addresses, e.Pool)
}

// PoolAddress says of an address that was given from which pool it is.
type PoolAddress struct {
	Layout pool.Layout
	// Probe says that a pod of a dead node may still answer for the address.
	Probe bool
	// Migrating says that this node does not have the address: a pod of the owner uses it on another node.
	Migrating bool
}

// PoolAddresses returns what the last Allocate gave from pools, in the order of the addresses. It is empty if the request named no
// pool.
func (s *Store) PoolAddresses() []PoolAddress { return s.poolAddresses }

// poolSet reads what the store has of a pool.
func (l *leaseTx) poolSet(name string) (set addressSet, err error) {
	if set.poolLayout, err = l.layout(name); err != nil {
		return set, err
	}
	set.poolLayout.Name = name
	part := Range{Subnet: set.poolLayout.Subnet, Gateway: set.poolLayout.Gateway, Excluded: set.poolLayout.Exclude}
	for _, r := range set.poolLayout.Ranges {
		part.Span = r
		set.members = append(set.members, part)
	}
	err = l.eachGrant(name, func(g pool.Grant) { set.add(g, part) })
	set.gives = slices.Concat(set.ready, set.needsProbe)
	return set, err
}

// add adds the addresses of a grant. part is a range of the pool.
func (p *addressSet) add(g pool.Grant, part Range) {
	a := g.First
	for i := range len(g.Addresses) {
		switch part.Span = (Span{First: a, Last: a}); g.Addresses[i] {
		case pool.GrantedMark:
			p.ready = p.ready.appendRange(part)
		case pool.GrantedUnproven:
			p.needsProbe = p.needsProbe.appendRange(part)
		}
		if i < len(g.Addresses)-1 {
			a = a.Next()
		}
	}
	// A pool can have lost a range of which nodes still have addresses.
	if r, found := p.members.Find(g.First); !found || !r.Contains(a) {
		part.Span = Span{First: g.First, Last: a}
		p.members = append(p.members, part)
	}
}

// appendRange returns the set with the range, which becomes a part of the last one if it follows on that.
func (s RangeSet) appendRange(r Range) RangeSet {
	if n := len(s); n > 0 && s[n-1].Last.Next() == r.First {
		s[n-1].Last = r.Last
		return s
	}
	return append(s, r)
}

// checkPool says why the attachment gets nothing of the pool, whatever it asks for, nil if it may get something.
func (c choice) checkPool(held []Lease) error {
	if _, ok := c.heldInSet(held); ok || !c.isPool() {
		return nil
	}
	if !c.isConfirmed() {
		return fmt.Errorf("pool %s of network %s: %w: relink-agent reads them as soon as the Kubernetes API answers", c.poolLayout.Name, c.store.network, ErrUnconfirmed)
	}
	if len(c.poolLayout.Ranges) == 0 {
		return c.exhaustedOfPool()
	}
	return nil
}

// giveMigrating gives an address that the owner's pod on another node still has.
func (c choice) giveMigrating(a netip.Addr) (Lease, error) {
	lease, err := c.get(a)
	switch {
	case err != nil:
		return Lease{}, err
	case lease.isFree(), lease.State == Quarantined, c.hasEnded(lease):
		lease = Lease{Address: a}
	case !c.belongsToRequester(lease):
		return Lease{}, fmt.Errorf("address %s is %w: it is %s", a, ErrTaken, lease.describeFor(c.Owner))
	}
	return c.give(lease, FromReservation)
}

// isKeptByAPI says whether the API knows which address of the pool the owner has. It does not if the owner has several pods at a time:
// their addresses wait on the node where they were.
func (c choice) isKeptByAPI() bool {
	return c.isPool() && c.Policy.KeptByAPI() && c.Owner != (attachment.Owner{})
}

// isInDoubt says whether the owner can have another address on another node by now: the API does not know of this one, and the agent was
// not asked, or has told of the other one.
func (c choice) isInDoubt(l Lease) bool {
	if !c.isKeptByAPI() || l.Claimed || l.ReservedByHandAt(c.instant) {
		return false
	}
	a := c.firstOf(c.OwnerAddresses)
	return !c.isPoolQueried() || a.IsValid() && a != l.Address
}

// isPoolQueried says whether the agent was asked for the owner's address of the pool.
func (c choice) isPoolQueried() bool { return slices.Contains(c.QueriedPools, c.poolLayout.Name) }

// firstOf returns the first of the addresses that the set has, the zero Addr for none.
func (c choice) firstOf(addresses []netip.Addr) netip.Addr {
	return append(c.members.Among(addresses), netip.Addr{})[0]
}

// exhaustedOfPool says why the store has no address of the pool to give.
func (c choice) exhaustedOfPool() error {
	begins := fmt.Sprintf("pool %s of network %s", c.poolLayout.Name, c.store.network)
	ranges := slices.Concat(c.ready, c.needsProbe)
	switch {
	case len(ranges) == 0:
		return fmt.Errorf("%s: %w: no address of it is granted to this node", begins, ErrExhausted)
	case len(c.gives) == 0:
		return fmt.Errorf("%s: %w: this node has %s that must be probed for, which relink-ipam cannot do as a program of its own", begins, ErrExhausted, ranges.size())
	}
	return fmt.Errorf("%s: %w of the %s that this node has: %s", begins, ErrExhausted, ranges.size(), c.describeStates(ranges))
}
