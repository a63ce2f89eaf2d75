package lease

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/pool"
)

// ErrUnconfirmed says that the agent has not read the Kubernetes API since the node's boot. While the node was away, others
// may have got what it had of its pools.
var ErrUnconfirmed = errors.New("this node has not read its address pools since its boot")

// ElsewhereError says that another node may have what the attachment is to get: relink-agent must be asked first.
type ElsewhereError struct {
	Pool string
	// Wanted are the addresses that the attachment asks for. It needs one of them. If there is none, it is about the address
	// that its owner has.
	Wanted []netip.Addr
}

// Error names the pool and the addresses.
func (e *ElsewhereError) Error() string {
	if len(e.Wanted) == 0 {
		return fmt.Sprintf("another node may have the owner's address of pool %s", e.Pool)
	}
	return fmt.Sprintf("this node has none of %s of pool %s", listOf(e.Wanted), e.Pool)
}

// FromPool says of an address that was given from which pool it is.
type FromPool struct {
	Layout pool.Layout
	// Probe says that a pod of a dead node may still answer for the address.
	Probe bool
	// Beside says that this node does not have the address: a pod of the owner uses it on another node.
	Beside bool
}

// FromPools returns what the last Allocate gave from pools, in the order of the addresses. It is empty if the request named no
// pool.
func (s *Store) FromPools() []FromPool { return s.from }

// pooled is what the store has of a pool.
type pooled struct {
	layout pool.Layout
	// stops says why the store gives nothing new of it, nil if it does.
	stops error
	// sure and doubtful are what the store may give, doubtful only after a probe. Each range is a run of addresses.
	sure, doubtful RangeSet
	// whole has all addresses of the pool, and all of the store's grants.
	whole RangeSet
}

// pools reads what the store has of the pools.
func (l *leases) pools(names []string) (all []*pooled, err error) {
	if _, err := l.wantPools(names); err != nil {
		return nil, err
	}
	for _, name := range names {
		p, err := l.pooled(name)
		if err != nil {
			return nil, err
		}
		if p.stops = l.stops(name); p.stops != nil && !errors.Is(p.stops, ErrUnconfirmed) {
			return nil, p.stops
		}
		all = append(all, p)
	}
	return all, nil
}

func (l *leases) pooled(name string) (*pooled, error) {
	layout, err := l.layout(name)
	if err != nil {
		return nil, err
	}
	layout.Name = name
	p := &pooled{layout: layout}
	part := Range{Subnet: layout.Subnet, Gateway: layout.Gateway, Excluded: layout.Exclude}
	for _, r := range layout.Ranges {
		part.Span = r
		p.whole = append(p.whole, part)
	}
	err = l.eachGrant(name, func(g pool.Grant) { p.add(g, part) })
	return p, err
}

// add adds the addresses of a grant. part is a range of the pool.
func (p *pooled) add(g pool.Grant, part Range) {
	a := g.First
	for i := range len(g.Addresses) {
		switch part.Span = (Span{First: a, Last: a}); g.Addresses[i] {
		case pool.Gives:
			p.sure = p.sure.joined(part)
		case pool.GivesProbed:
			p.doubtful = p.doubtful.joined(part)
		}
		if i < len(g.Addresses)-1 {
			a = a.Next()
		}
	}
	// A pool can have lost a range of which nodes still have addresses.
	if r, in := p.whole.Find(g.First); !in || !r.Contains(a) {
		part.Span = Span{First: g.First, Last: a}
		p.whole = append(p.whole, part)
	}
}

// joined returns the set with the range, which becomes a part of the last one if it follows on that.
func (s RangeSet) joined(r Range) RangeSet {
	if n := len(s); n > 0 && s[n-1].Last.Next() == r.First {
		s[n-1].Last = r.Last
		return s
	}
	return append(s, r)
}

// gives are the addresses that the attachment can be given: the sure ones, and the others if it can probe.
func (p *pooled) gives(probes bool) RangeSet {
	if p.stops != nil {
		return nil
	}
	if !probes {
		return p.sure
	}
	return slices.Concat(p.sure, p.doubtful)
}

// has says whether the node has the address.
func (p *pooled) has(a netip.Addr) bool {
	_, sure := p.sure.Find(a)
	_, doubtful := p.doubtful.Find(a)
	return sure || doubtful
}

// wholes are all addresses of the pools.
func wholes(all []*pooled) (sets []RangeSet) {
	for _, p := range all {
		sets = append(sets, p.whole)
	}
	return sets
}

// allocateFromPools is allocate for a request that names pools.
func (l *leases) allocateFromPools(r Request, held []Lease) (given []Lease, err error) {
	all, err := l.pools(r.Pools)
	if err != nil {
		return nil, err
	}
	sets := wholes(all)
	if err := l.remarkGateways(sets); err != nil {
		return nil, err
	}
	wanted, left, err := l.assignOfPools(r, all, held)
	if err != nil {
		return nil, err
	}
	var from []FromPool
	for i, p := range all {
		c := choice{leases: l, Request: r, number: i, set: p.gives(r.Probes), whole: p.whole, pool: p, wanted: wanted[i]}
		lease, err := c.choose(held)
		if err != nil {
			return nil, err
		}
		_, doubtful := p.doubtful.Find(lease.Address)
		given, from = append(given, lease), append(from, FromPool{p.layout, doubtful, !p.has(lease.Address)})
	}
	if len(left) > 0 {
		refused := leftOver(wholes(all), wanted, left[0])
		if !refused.Beside.IsValid() {
			refused.Why = "is not of pool " + strings.Join(r.Pools, " or ")
		}
		return nil, refused
	}
	l.store.from = from
	return given, l.remember(Known{Pools: r.Pools, Policy: r.ofNetwork()})
}

// assignOfPools is assign for pools. It refuses an address only by pools that the store knows.
func (l *leases) assignOfPools(r Request, all []*pooled, held []Lease) (each, left []netip.Addr, err error) {
	for _, p := range all {
		c := choice{leases: l, Request: r, pool: p, whole: p.whole}
		if _, has := c.held(held); has {
			continue
		}
		if p.stops != nil {
			return nil, nil, p.stops
		}
		if len(p.layout.Ranges) == 0 {
			return nil, nil, c.exhaustedOfPool()
		}
	}
	return r.asked(wholes(all))
}

// chooseOfPool is the choice of an address of a pool, for an attachment that has none so far.
func (c choice) chooseOfPool() (Lease, error) {
	oneOf := c.oneOf()
	if a := c.first(c.Beside); a.IsValid() {
		return c.besideAnotherNode(a)
	}
	if c.wanted.IsValid() {
		return c.askedOfPool(c.wanted)
	}
	owned, ok, err := c.owned()
	if err != nil {
		return Lease{}, err
	}
	wants := func(a netip.Addr) bool { return len(oneOf) == 0 || slices.Contains(oneOf, a) }
	if ok && wants(owned.Address) {
		return c.give(owned, FromReservation)
	}
	if !ok && c.isKept() && !c.isAcquired() {
		return Lease{}, &ElsewhereError{Pool: c.pool.layout.Name}
	}
	if a := c.first(c.Owned); a.IsValid() && wants(a) {
		return Lease{}, fmt.Errorf("%s of pool %s is %w: the Kubernetes API has it for the owner, and this node has not got it", a, c.pool.layout.Name, ErrTaken)
	}
	if len(oneOf) > 0 {
		return c.askedOneOfPool(oneOf)
	}
	return c.next()
}

// isKept says whether the API knows which address the owner has. Of an owner with several pods at a time it does not:
// their addresses wait on the node where they were.
func (c choice) isKept() bool { return c.Policy.KeptByAPI() && c.Owner != (attachment.Owner{}) }

// isInDoubt says whether the owner can have another address on another node by now: the API does not know of this one, and the agent was
// not asked, or has told of the other one.
func (c choice) isInDoubt(l Lease) bool {
	if c.pool == nil || !c.isKept() || l.Claimed || l.byHand(c.now) {
		return false
	}
	a := c.first(c.Owned)
	return !c.isAcquired() || a.IsValid() && a != l.Address
}

// isAcquired says whether the agent was asked for the owner's address of the pool.
func (c choice) isAcquired() bool { return slices.Contains(c.Acquired, c.pool.layout.Name) }

// unsought returns those of the addresses that this node does not have, and for which the agent was not asked.
func (c choice) unsought(all []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(all), func(a netip.Addr) bool { return c.isHere(a) || slices.Contains(c.Sought, a) })
}

// isHere says whether this node may give the address.
func (c choice) isHere(a netip.Addr) bool {
	_, here := c.set.Find(a)
	return here
}

// first returns the first of the addresses that is of the pool, the zero Addr for none.
func (c choice) first(all []netip.Addr) netip.Addr {
	for _, a := range all {
		if _, in := c.whole.Find(a); in {
			return a
		}
	}
	return netip.Addr{}
}

// besideAnotherNode gives an address that the owner's pod on another node still has.
func (c choice) besideAnotherNode(a netip.Addr) (Lease, error) {
	lease, leased, err := c.get(a)
	switch {
	case err != nil:
		return Lease{}, err
	case !leased, lease.State == Quarantined, c.over(lease):
		return c.give(Lease{Address: a}, FromReservation)
	case c.isMine(lease):
		return c.give(lease, FromReservation)
	}
	return Lease{}, fmt.Errorf("address %s is %w: it is %s", a, ErrTaken, lease.whoseFor(c.Owner))
}

// askedOfPool gives the requested address, if this node has it.
func (c choice) askedOfPool(a netip.Addr) (Lease, error) {
	if c.isHere(a) {
		return c.asked(a)
	}
	if ok, why := c.whole.Gives(a); !ok {
		return Lease{}, notGiven(a, why)
	}
	if unsought := c.unsought([]netip.Addr{a}); len(unsought) > 0 {
		return Lease{}, &ElsewhereError{Pool: c.pool.layout.Name, Wanted: unsought}
	}
	return Lease{}, fmt.Errorf("requested address %s of pool %s is %w: it is %w", a, c.pool.layout.Name, ErrTaken, ErrNotGranted)
}

// askedOneOfPool gives one of the addresses that this node has. If it can give none of them, others may be elsewhere.
func (c choice) askedOneOfPool(list []netip.Addr) (Lease, error) {
	here := slices.DeleteFunc(slices.Clone(list), func(a netip.Addr) bool { return !c.isHere(a) })
	none := fmt.Errorf("each of the requested addresses %s of pool %s is %w: they are %w", listOf(list), c.pool.layout.Name, ErrTaken, ErrNotGranted)
	if len(here) > 0 {
		lease, err := c.askedOneOf(here)
		if err == nil || !errors.Is(err, ErrTaken) {
			return lease, err
		}
		none = err
	}
	if unsought := c.unsought(list); len(unsought) > 0 {
		return Lease{}, &ElsewhereError{Pool: c.pool.layout.Name, Wanted: unsought}
	}
	return Lease{}, none
}

// parts are the addresses that can be given, in the order in which they are tried: those that need no probe come first.
func (c choice) parts() []RangeSet {
	if c.pool == nil || !c.Probes || len(c.pool.doubtful) == 0 {
		return []RangeSet{c.set}
	}
	return []RangeSet{c.pool.sure, c.pool.doubtful}
}

// exhaustedOfPool says why the store has no address of the pool to give.
func (c choice) exhaustedOfPool() error {
	begins := fmt.Sprintf("pool %s of network %s", c.pool.layout.Name, c.store.network)
	all := slices.Concat(c.pool.sure, c.pool.doubtful)
	switch {
	case len(all) == 0:
		return fmt.Errorf("%s: %w: no address of it is granted to this node", begins, ErrExhausted)
	case len(c.set) == 0:
		return fmt.Errorf("%s: %w: this node has %s that must be probed for, which relink-ipam cannot do as a program of its own", begins, ErrExhausted, all.size())
	}
	counts, err := c.counts(all)
	if err != nil {
		return err
	}
	return fmt.Errorf("%s: %w of the %s that this node has: %d held, %d reserved, %d in quarantine; relink ipam list says for whom",
		begins, ErrExhausted, all.size(), counts[Held], counts[Reserved], counts[Quarantined])
}

// PoolSets returns all addresses of each pool. The set of a pool that the agent has not read so far is empty. ErrNone: there is
// no store.
func (s *Store) PoolSets(ctx context.Context, names []string) (sets []RangeSet, err error) {
	err = s.view(ctx, func(l *leases) error {
		for _, name := range names {
			p, err := l.pooled(name)
			if err != nil {
				return err
			}
			sets = append(sets, p.whole)
		}
		return nil
	})
	return sets, err
}
