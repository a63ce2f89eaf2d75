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
	l, err := k.pool(ctx, a.Pool)
	if err != nil {
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
		if address = c.Spec.Address; !l.Has(address) && !isSource(c, a) {
			return pool.Acquired{}, nil // Nobody gives this address any more: the owner gets another one.
		}
	}
	return m.bring(ctx, a, address)
}

// isSource says whether the owner's machine migrates from the pod that has the claim's address. It must keep the address then.
func isSource(c pool.Claim, a pool.Acquisition) bool {
	return c.Spec.Active.PodUID != "" && slices.Contains(a.Siblings, c.Spec.Active.PodUID)
}

// bring returns when the store can give the address to the owner, or when the owner's machine may migrate to this node.
func (m *member) bring(ctx context.Context, a pool.Acquisition, address netip.Addr) (pool.Acquired, error) {
	for {
		news := m.listen()
		found, has, err := m.tryBring(ctx, a, address)
		if found.Address.IsValid() || err != nil && ctx.Err() == nil {
			return found, err
		}
		select {
		case <-ctx.Done():
			if err != nil {
				return found, err
			}
			return found, fmt.Errorf("%w: %s has %s of the pool %s, and has not handed it over: the owner's pod there must end first; if that node is dead, docs/pools.md says what to do", pool.ErrUnavailable, has, address, a.Pool)
		case <-news:
		case <-time.After(patience):
		}
	}
}

// tryBring makes one try, as the only one for this store. found has no address if it has not come. has says who has it then.
func (m *member) tryBring(ctx context.Context, a pool.Acquisition, address netip.Addr) (found pool.Acquired, has string, err error) {
	done, err := m.begin(ctx)
	if err != nil {
		return found, "", err
	}
	defer done()
	s, err := m.ready(ctx, a.Pool)
	if err != nil {
		return found, "", err
	}
	policy := lease.Policy{Sticky: true, Retain: lease.Duration(a.Retain), ByOwner: a.Owner.UID != ""}
	err = m.store.Expect(ctx, address, a.Owner, a.IfName, policy, "the owner's pod starts on this node")
	if errors.Is(err, lease.ErrTaken) {
		if m.has(s, a.Pool, address) {
			found.Address = address // The lease decides who gets it.
		}
		return found, "node " + m.Node, nil
	}
	if err != nil {
		return found, "", unavailable(err)
	}
	if m.has(s, a.Pool, address) {
		return pool.Acquired{Address: address}, "", nil
	}
	l, err := m.layout(ctx, a.Pool)
	if err != nil {
		return found, "", err
	}
	index, _ := l.Index(address)
	if !l.Has(address) {
		return found, "", fmt.Errorf("%w: the pool %s does not give %s", pool.ErrUnknown, a.Pool, address)
	}
	target, accepted, err := m.comes(ctx, a, address, s.me)
	if err != nil {
		return found, "", err
	}
	here, has, err := m.fetch(ctx, a, address, index, target)
	if here || accepted && err == nil {
		found = pool.Acquired{Address: address, Migrating: !here}
	}
	return found, has, err
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

// fetch takes the address if nobody has it, and otherwise asks who has it. target is the UID of the pod to which the owner's machine
// migrates, empty if it does not.
func (m *member) fetch(ctx context.Context, a pool.Acquisition, address netip.Addr, index int64, target string) (here bool, has string, err error) {
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
	if b.IsFenced(s.me) {
		return false, "", unavailable(fmt.Errorf("this node was declared dead, and is still in AddressBlock %s, which has %s: it leaves when no pod here has any of these addresses", b.Metadata.Name, address))
	}
	i := b.Offset(address)
	if b.Has(s.me, i) {
		return m.has(s, a.Pool, address) || m.hasNow(ctx, a.Pool, address), "node " + m.Node, nil
	}
	if next, n := b.Take(s.me, []int{i}); n == 1 {
		if h, others, err := m.others(ctx, a, b, i); others || err != nil {
			return false, h, err
		}
		v, err := m.open(ctx, a.Pool)
		switch {
		case err != nil:
			return false, "", err
		case !v.gives(address):
			return false, "", inAnother(address.String())
		}
		next, _ = s.says(next)
		err = m.write(ctx, next)
		return err == nil, "nobody", ignore(err, pool.ErrConflict, pool.ErrNotThere)
	}
	h, is := b.HolderOf(i)
	if !is {
		return false, "", fmt.Errorf("%w: AddressBlock %s never gives %s", pool.ErrUnknown, b.Metadata.Name, address)
	}
	w := pool.Want{Party: s.me, Address: address, Claim: pool.ClaimName(a.Pool, a.IfName, a.Owner), PodUID: target}
	if slices.Contains(b.Spec.Want, w) {
		return false, "node " + h.Node, nil
	}
	failpoint.Here("before an address is asked for")
	if err := m.ask(ctx, b, ask{block: b.Metadata.Name, want: w, owner: a.Owner}); err != nil {
		return false, "", unavailable(err)
	}
	return false, "node " + h.Node, nil
}

// others says whether a dead node has had the address for another owner, who still has it by a claim. has says which node that is.
func (m *member) others(ctx context.Context, a pool.Acquisition, b pool.Block, i int) (has string, others bool, err error) {
	h, is := b.HolderOf(i)
	if !is {
		return "", false, nil
	}
	claims, err := m.API.ClaimsAt(ctx, b.At(i))
	if err != nil {
		return "", false, unavailable(err)
	}
	own := pool.ClaimName(a.Pool, a.IfName, a.Owner)
	return "node " + h.Node + " (declared dead, for another owner)", slices.ContainsFunc(claims, func(c pool.Claim) bool { return c.Spec.Pool == a.Pool && c.Metadata.Name != own }), nil
}

// fetchNew makes the block of the address.
func (m *member) fetchNew(ctx context.Context, a pool.Acquisition, address netip.Addr, index int64) (here bool, has string, err error) {
	v, err := m.open(ctx, a.Pool)
	if err != nil {
		return false, "", err
	}
	if !v.allows(index) {
		return false, "", inAnother(fmt.Sprintf("AddressBlock %s, which has %s,", pool.BlockName(a.Pool, index), address))
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
