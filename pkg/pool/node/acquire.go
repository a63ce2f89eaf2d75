package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// Acquire implements pool.Agent.
func (nc *Controller) Acquire(ctx context.Context, a pool.Acquisition) (found pool.Acquired, err error) {
	err = nc.serve(ctx, a.Network, pool.AgentLimit, func(ctx context.Context, sc *storeController) error {
		nc.noteUse()
		p, err := nc.pool(ctx, a.Pool)
		if err != nil {
			return err
		}
		l, err := nc.cacheLayout(p)
		if err != nil {
			return err
		}
		if err := checkClaimsKnown(p); err != nil {
			return err
		}
		address := a.Requested
		if !address.IsValid() {
			c, err := sc.ownerClaim(ctx, a)
			if address = c.Status.Address; err != nil || !l.Assignable(address) && !isSource(c, a) {
				return err // The owner has none, or one that nobody gives any more: it gets another one.
			}
		}
		if err = sc.checkSelected(ctx, p, a, address); err == nil {
			found, err = sc.awaitAddress(ctx, a, address)
		}
		return err
	})
	return found, err
}

// isSource says whether the owner's machine migrates from the pod that has the claim's address. It must keep the address then.
func isSource(c pool.Claim, a pool.Acquisition) bool {
	return c.Status.Active.PodUID != "" && slices.Contains(a.Siblings, c.Status.Active.PodUID)
}

// awaitAddress returns when the store can give the address to the owner, or when the owner's machine may migrate to this node.
func (sc *storeController) awaitAddress(ctx context.Context, a pool.Acquisition, address netip.Addr) (found pool.Acquired, err error) {
	holder := ""
	err = sc.await(ctx, func() (success bool, err error) {
		found, holder, err = sc.tryAcquire(ctx, a, address)
		return found.Address.IsValid(), err
	})
	if err == nil && !found.Address.IsValid() {
		err = fmt.Errorf("%s has %s of the pool %s, and has not handed it over: the owner's pod there must end first; if that node is dead, docs/pool-runbooks.md says what to do", holder, address, a.Pool)
	}
	return found, err
}

// tryAcquire makes one try, as the only one for this store. found has no address if it has not come. holder says who has it then.
func (sc *storeController) tryAcquire(ctx context.Context, a pool.Acquisition, address netip.Addr) (found pool.Acquired, holder string, err error) {
	release, err := sc.takeTurn(ctx)
	if err != nil {
		return found, "", err
	}
	defer release()
	s, err := sc.readyState(ctx, a.Pool)
	if err != nil {
		return found, "", err
	}
	policy := lease.Policy{Sticky: true, Retain: lease.Duration(a.Retain), ByOwner: a.Owner.UID != ""}
	err = sc.store.ReserveIncoming(ctx, address, a.Owner, a.IfName, policy, "the owner's pod starts on this node")
	switch elsewhere := errors.Is(err, lease.ErrTaken); {
	case err != nil && !elsewhere:
		return found, "", err
	case s.mayGive(a.Pool, address):
		found.Address = address // The lease decides who gets it.
		return found, "", nil
	case elsewhere:
		return found, "node " + sc.Node, nil
	}
	l, err := sc.layout(ctx, a.Pool)
	if err != nil {
		return found, "", err
	}
	index, _ := l.Index(address)
	if !l.Assignable(address) {
		return found, "", fmt.Errorf("%w: the pool %s does not give %s", pool.ErrUnknown, a.Pool, address)
	}
	arrived, holder, err := sc.obtainAddress(ctx, a, address, index)
	if arrived && err == nil {
		found = pool.Acquired{Address: address, Migrating: !sc.hasArrived(ctx, a.Pool, address)}
	}
	return found, holder, err
}

// mayGive says whether the store may give the address.
func (s state) mayGive(name string, a netip.Addr) bool {
	return slices.ContainsFunc(s.poolState(name).Grants, func(g pool.Grant) bool { return g.MayGive(a) })
}

// obtainAddress takes the address if no node has it, and otherwise asks its holder for it. usable says that the store may give it to the owner's pod:
// the address is here, or its holder keeps it for the pod to which the owner's machine migrates.
func (sc *storeController) obtainAddress(ctx context.Context, a pool.Acquisition, address netip.Addr, index int64) (usable bool, holder string, err error) {
	b, err := sc.API.Block(ctx, pool.BlockName(a.Pool, index))
	if err == nil {
		b, err = sc.reconcile(ctx, b, 0)
	}
	if errors.Is(err, pool.ErrNotFound) || err == nil && b.Metadata.Name == "" {
		return sc.obtainFromNewBlock(ctx, a, address, index)
	}
	if err != nil {
		return false, "", err
	}
	s, err := sc.state(ctx)
	if err != nil {
		return false, "", err
	}
	if b.IsFenced(s.me) {
		return false, "", fmt.Errorf("this node was declared dead, and is still in AddressBlock %s, which has %s: it leaves when no pod here has any of these addresses", b.Metadata.Name, address)
	}
	i := b.Offset(address)
	if err := b.Check(); err != nil || i < 0 {
		return false, "", cmp.Or(err, fmt.Errorf("AddressBlock %s does not have %s: delete it if no pod has any of its addresses", b.Metadata.Name, address))
	}
	h, held := b.HolderOf(i)
	switch {
	case held && h.SameParty(s.me):
		return sc.hasArrived(ctx, a.Pool, address), "node " + h.Node, nil
	case held && h.Fenced == "":
		accepted := a.Pod.UID != "" && slices.Contains(h.Accepted, a.Pod.UID)
		return accepted, "node " + h.Node, sc.requestOwned(ctx, b, a, pool.Want{Party: s.me, Address: address, Claim: a.ClaimName(), PodUID: a.Pod.UID, Sources: a.Siblings})
	case b.Status.Addresses[i] == pool.Excluded:
		return false, "", fmt.Errorf("%w: AddressBlock %s never gives %s", pool.ErrUnknown, b.Metadata.Name, address)
	}
	if claimed, err := sc.claimedByOther(ctx, a, address); claimed || err != nil {
		return false, "another owner's claim", err
	}
	v, err := sc.openPool(ctx, a.Pool, s.poolState(a.Pool).Leased[address].State == lease.Held)
	switch {
	case err != nil:
		return false, "", err
	case !v.allowsAddress(address):
		return false, "", sharedError(address.String())
	}
	n, err := sc.take(ctx, b, s, []int{i})
	return n > 0, "nobody", err
}

// requestOwned asks on the block for an owner's address, again only after half of the time in which its holder answers.
func (sc *storeController) requestOwned(ctx context.Context, b pool.Block, a pool.Acquisition, w pool.Want) error {
	asked := slices.ContainsFunc(b.Status.Want, func(o pool.Want) bool {
		return o.SameParty(w.Party) && o.Address == w.Address && o.Claim == w.Claim && o.PodUID == w.PodUID && slices.Equal(o.Sources, w.Sources)
	})
	if last := sc.asks[askKey{b.Metadata.Name, w.Address}]; asked && sc.clock().Sub(last.askedAt) < requestPeriod/2 {
		return nil
	}
	failpoint.Here("before an address is asked for")
	return sc.request(ctx, b, w, a.Owner)
}

// claimedByOther says whether another owner still has the address by a claim: a dead node had it.
func (sc *storeController) claimedByOther(ctx context.Context, a pool.Acquisition, address netip.Addr) (bool, error) {
	claims, err := sc.API.ClaimsAt(ctx, address)
	return slices.ContainsFunc(claims, func(c pool.Claim) bool { return c.Spec.Pool == a.Pool && c.Metadata.Name != a.ClaimName() }), err
}

// obtainFromNewBlock makes the block of the address.
func (sc *storeController) obtainFromNewBlock(ctx context.Context, a pool.Acquisition, address netip.Addr, index int64) (usable bool, holder string, err error) {
	v, err := sc.openPool(ctx, a.Pool, false)
	if err != nil {
		return false, "", err
	}
	if !v.allowsBlock(index) {
		return false, "", sharedError(fmt.Sprintf("AddressBlock %s, which has %s,", pool.BlockName(a.Pool, index), address))
	}
	s, err := sc.state(ctx)
	if err != nil {
		return false, "", err
	}
	_, err = sc.createBlock(ctx, v, index, s)
	return err == nil && sc.hasArrived(ctx, a.Pool, address), "nobody", ignore(err, pool.ErrExists)
}

// hasArrived is mayGive by a new look at the store.
func (sc *storeController) hasArrived(ctx context.Context, name string, a netip.Addr) bool {
	s, err := sc.state(ctx)
	return err == nil && s.mayGive(name, a)
}
