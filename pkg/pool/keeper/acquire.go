package keeper

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// Acquire implements pool.Agent.
func (k *Keeper) Acquire(ctx context.Context, a pool.Acquisition) (pool.Acquired, error) {
	ctx, cancel := context.WithTimeout(ctx, pool.Limit)
	defer cancel()
	k.use.Do(func() { close(k.used) })
	m, err := k.member(a.Network)
	if err != nil {
		return pool.Acquired{}, err
	}
	if _, err := k.pool(ctx, a.Pool); err != nil {
		return pool.Acquired{}, err
	}
	address := a.Wanted
	if !address.IsValid() {
		c, err := k.API.Claim(ctx, pool.ClaimName(a.Pool, a.IfName, a.Owner))
		if errors.Is(err, pool.ErrNotThere) {
			return pool.Acquired{}, nil
		}
		if err != nil {
			return pool.Acquired{}, unavailable(err)
		}
		address = c.Spec.Address
	}
	if err := m.bring(ctx, a, address); err != nil {
		return pool.Acquired{}, err
	}
	return pool.Acquired{Address: address}, nil
}

// bring returns when the store can give the address to the owner.
func (m *member) bring(ctx context.Context, a pool.Acquisition, address netip.Addr) error {
	for {
		news := m.listen()
		here, has, err := m.tryBring(ctx, a, address)
		if here || err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			if err != nil {
				return err
			}
			return fmt.Errorf("%w: %s has %s of the pool %s, and has not handed it over: the owner's pod there must end first; if that node is dead, docs/pools.md says what to do", pool.ErrUnavailable, has, address, a.Pool)
		case <-news:
		case <-time.After(patience):
		}
	}
}

// tryBring makes one try, as the only one for this store. has says who has the address.
func (m *member) tryBring(ctx context.Context, a pool.Acquisition, address netip.Addr) (here bool, has string, err error) {
	done, err := m.begin(ctx)
	if err != nil {
		return false, "", err
	}
	defer done()
	s, err := m.ready(ctx, a.Pool)
	if err != nil {
		return false, "", err
	}
	policy := lease.Policy{Sticky: true, Retain: lease.Duration(a.Retain), ByOwner: a.Owner.UID != ""}
	err = m.store.Expect(ctx, address, a.Owner, a.IfName, policy, "the owner's pod starts on this node")
	if errors.Is(err, lease.ErrTaken) {
		return m.has(s, a.Pool, address), "node " + m.Node, nil // The lease decides who gets it.
	}
	if err != nil {
		return false, "", unavailable(err)
	}
	if m.has(s, a.Pool, address) {
		return true, "", nil
	}
	l, err := m.layout(ctx, a.Pool)
	if err != nil {
		return false, "", err
	}
	index, is := l.Index(address)
	if !is || l.Excluded(address) {
		return false, "", fmt.Errorf("%w: the pool %s does not give %s", pool.ErrUnknown, a.Pool, address)
	}
	return m.fetch(ctx, a, address, index)
}

// has says whether the store may give the address.
func (m *member) has(s state, name string, a netip.Addr) bool {
	return slices.ContainsFunc(s.of(name).Grants, func(g pool.Grant) bool {
		i := g.Offset(a)
		if i < 0 {
			return false
		}
		gives, _ := g.May(i)
		return gives
	})
}

// fetch takes the address if nobody has it, and otherwise asks who has it.
func (m *member) fetch(ctx context.Context, a pool.Acquisition, address netip.Addr, index int64) (here bool, has string, err error) {
	b, err := m.API.Block(ctx, pool.BlockName(a.Pool, index))
	if errors.Is(err, pool.ErrNotThere) {
		return m.fetchNew(ctx, a, address, index)
	}
	if err != nil {
		return false, "", unavailable(err)
	}
	s, _, err := m.adopt(ctx, b)
	if err != nil {
		return false, "", err
	}
	i := b.Offset(address)
	if b.Has(s.me, i) {
		return m.has(s, a.Pool, address) || m.hasNow(ctx, a.Pool, address), "node " + m.Node, nil
	}
	if next, n := b.Take(s.me, []int{i}); n == 1 {
		if _, err := m.open(ctx, a.Pool); err != nil {
			return false, "", err
		}
		err := m.write(ctx, next)
		return err == nil, "nobody", ignore(err, pool.ErrConflict, pool.ErrNotThere)
	}
	h, is := b.HolderOf(i)
	if !is {
		return false, "", fmt.Errorf("%w: AddressBlock %s never gives %s", pool.ErrUnknown, b.Metadata.Name, address)
	}
	w := pool.Want{Party: s.me, Address: address, Claim: pool.ClaimName(a.Pool, a.IfName, a.Owner)}
	if slices.Contains(b.Spec.Want, w) {
		return false, "node " + h.Node, nil
	}
	failpoint.Here("before an address is asked for")
	if err := m.ask(ctx, b, ask{block: b.Metadata.Name, want: w, owner: a.Owner}); err != nil {
		return false, "", unavailable(err)
	}
	return false, "node " + h.Node, nil
}

// fetchNew makes the block of the address.
func (m *member) fetchNew(ctx context.Context, a pool.Acquisition, address netip.Addr, index int64) (here bool, has string, err error) {
	v, err := m.open(ctx, a.Pool)
	if err != nil {
		return false, "", err
	}
	if !v.allows(index) {
		return false, "", unavailable(fmt.Errorf("%s is in another AddressPool, too", address))
	}
	s, err := m.state(ctx)
	if err != nil {
		return false, "", err
	}
	_, err = m.create(ctx, v, index, s)
	return err == nil && m.hasNow(ctx, a.Pool, address), "nobody", ignore(err, pool.ErrExists)
}

// hasNow is has by a new look at the store.
func (m *member) hasNow(ctx context.Context, name string, a netip.Addr) bool {
	s, err := m.state(ctx)
	return err == nil && m.has(s, name, a)
}

// Claim implements pool.Agent.
func (k *Keeper) Claim(ctx context.Context, c pool.Claimed) error {
	ctx, cancel := context.WithTimeout(ctx, pool.Limit)
	defer cancel()
	m, err := k.member(c.Network)
	if err != nil {
		return err
	}
	s, err := m.state(ctx)
	if err != nil {
		return unavailable(err)
	}
	for range mostTries {
		if err = m.claim(ctx, c, s.me); !errors.Is(err, pool.ErrConflict) && !errors.Is(err, pool.ErrExists) && !errors.Is(err, pool.ErrNotThere) {
			break
		}
	}
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// claim makes the claim, or changes it from where the owner's pod was before.
func (m *member) claim(ctx context.Context, c pool.Claimed, me pool.Party) error {
	name, active := pool.ClaimName(c.Pool, c.IfName, c.Owner), pool.Place{Party: me, PodUID: c.Pod.UID}
	now, err := m.API.Claim(ctx, name)
	if errors.Is(err, pool.ErrNotThere) {
		spec := pool.ClaimSpec{Pool: c.Pool, IfName: c.IfName, Owner: c.Owner, Address: c.Address, Epoch: 1, Active: active}
		if c.Retain > 0 {
			spec.Retain = c.Retain.String()
		}
		_, err = m.API.CreateClaim(ctx, pool.Claim{Metadata: pool.Meta{Name: name}, Spec: spec})
		m.wrote(err)
		return err
	}
	if err != nil {
		return err
	}
	moved := !now.Spec.Active.Is(me)
	if now.Spec.Address == c.Address && !moved && now.Spec.Active.PodUID == active.PodUID {
		return nil
	}
	if now.Spec.Address != c.Address && moved {
		return fmt.Errorf("%w: the owner has %s on node %s", pool.ErrUnavailable, now.Spec.Address, now.Spec.Active.Node)
	}
	if moved {
		now.Spec.Epoch++
	}
	now.Spec.Address, now.Spec.Active, now.Spec.Target = c.Address, active, nil
	_, err = m.API.UpdateClaim(ctx, now)
	m.wrote(err)
	return err
}

// dropClaims deletes the claims of this store whose owners have no lease here any more: their time is over, or a person has
// released the address.
func (m *member) dropClaims(ctx context.Context) error {
	s, err := m.state(ctx)
	if err != nil || s.ID == "" {
		return err
	}
	claims, err := m.API.ClaimsOf(ctx, m.Node)
	if err != nil {
		return unavailable(err)
	}
	for _, c := range claims {
		if !c.Spec.Active.Is(s.me) || !m.has(s, c.Spec.Pool, c.Spec.Address) {
			continue
		}
		l, leased := s.of(c.Spec.Pool).Leased[c.Spec.Address]
		if leased && pool.ClaimName(c.Spec.Pool, l.Newest().IfName, l.Owner) == c.Metadata.Name {
			continue
		}
		if err := ignore(m.API.DeleteClaim(ctx, c), pool.ErrNotThere, pool.ErrConflict); err != nil {
			return unavailable(err)
		}
	}
	return nil
}
