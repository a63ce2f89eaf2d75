package node

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
func (nc *Controller) Acquire(ctx context.Context, a pool.Acquisition) (pool.Acquired, error) {
	ctx, cancel := context.WithTimeout(ctx, pool.AgentLimit)
	defer cancel()
	nc.usedOnce.Do(func() { close(nc.poolsUsed) })
	sc, err := nc.storeController(a.Network)
	if err != nil {
		return pool.Acquired{}, err
	}
	l, err := nc.readPool(ctx, a.Pool)
	if err != nil {
		return pool.Acquired{}, err
	}
	address := a.Requested
	if !address.IsValid() {
		c, err := nc.API.Claim(ctx, pool.ClaimName(a.Pool, a.IfName, a.Owner))
		if errors.Is(err, pool.ErrNotFound) {
			return pool.Acquired{}, nil
		}
		if err != nil {
			return pool.Acquired{}, unavailable(err)
		}
		if address = c.Spec.Address; !l.Assignable(address) && !isSource(c, a) {
			return pool.Acquired{}, nil // Nobody gives this address any more: the owner gets another one.
		}
	}
	return sc.awaitAddress(ctx, a, address)
}

// isSource says whether the owner's machine migrates from the pod that has the claim's address. It must keep the address then.
func isSource(c pool.Claim, a pool.Acquisition) bool {
	return c.Spec.Active.PodUID != "" && slices.Contains(a.Siblings, c.Spec.Active.PodUID)
}

// awaitAddress returns when the store can give the address to the owner, or when the owner's machine may migrate to this node.
func (sc *storeController) awaitAddress(ctx context.Context, a pool.Acquisition, address netip.Addr) (pool.Acquired, error) {
	for {
		news := sc.arrivalSignal()
		found, holder, err := sc.tryAcquire(ctx, a, address)
		if found.Address.IsValid() || err != nil && ctx.Err() == nil {
			return found, err
		}
		select {
		case <-ctx.Done():
			if err != nil {
				return found, err
			}
			return found, fmt.Errorf("%w: %s has %s of the pool %s, and has not handed it over: the owner's pod there must end first; if that node is dead, docs/pools.md says what to do", pool.ErrUnavailable, holder, address, a.Pool)
		case <-news:
		case <-time.After(answerTimeout):
		}
	}
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
	if errors.Is(err, lease.ErrTaken) {
		if sc.hasAddress(s, a.Pool, address) {
			found.Address = address // The lease decides who gets it.
		}
		return found, "node " + sc.Node, nil
	}
	if err != nil {
		return found, "", unavailable(err)
	}
	if sc.hasAddress(s, a.Pool, address) {
		return pool.Acquired{Address: address}, "", nil
	}
	l, err := sc.layout(ctx, a.Pool)
	if err != nil {
		return found, "", err
	}
	index, _ := l.Index(address)
	if !l.Assignable(address) {
		return found, "", fmt.Errorf("%w: the pool %s does not give %s", pool.ErrUnknown, a.Pool, address)
	}
	target, accepted, err := sc.becomeTarget(ctx, a, address, s.me)
	if err != nil {
		return found, "", err
	}
	arrived, holder, err := sc.obtainAddress(ctx, a, address, index, target)
	if arrived || accepted && err == nil {
		found = pool.Acquired{Address: address, Migrating: !arrived}
	}
	return found, holder, err
}

// hasAddress says whether the store may give the address.
func (sc *storeController) hasAddress(s state, name string, a netip.Addr) bool {
	return slices.ContainsFunc(s.poolState(name).Grants, func(g pool.Grant) bool {
		i := g.Offset(a)
		if i < 0 {
			return false
		}
		assignable, _ := g.Assignable(i)
		return assignable
	})
}

// obtainAddress takes the address if nobody has it, and otherwise asks who has it. target is the UID of the pod to which the owner's machine
// migrates, empty if it does not.
func (sc *storeController) obtainAddress(ctx context.Context, a pool.Acquisition, address netip.Addr, index int64, target string) (arrived bool, holder string, err error) {
	b, err := sc.API.Block(ctx, pool.BlockName(a.Pool, index))
	if errors.Is(err, pool.ErrNotFound) {
		return sc.obtainFromNewBlock(ctx, a, address, index)
	}
	if err != nil {
		return false, "", unavailable(err)
	}
	s, _, err := sc.adopt(ctx, b)
	if err != nil {
		return false, "", err
	}
	if b.IsFenced(s.me) {
		return false, "", unavailable(fmt.Errorf("this node was declared dead, and is still in AddressBlock %s, which has %s: it leaves when no pod here has any of these addresses", b.Metadata.Name, address))
	}
	i := b.Offset(address)
	if b.HeldBy(s.me, i) {
		return sc.hasAddress(s, a.Pool, address) || sc.hasAddressNow(ctx, a.Pool, address), "node " + sc.Node, nil
	}
	if next, n := b.Take(s.me, []int{i}); n == 1 {
		if h, claimed, err := sc.claimedByOther(ctx, a, b, i); claimed || err != nil {
			return false, h, err
		}
		v, err := sc.openPool(ctx, a.Pool)
		switch {
		case err != nil:
			return false, "", err
		case !v.allowsAddress(address):
			return false, "", sharedError(address.String())
		}
		next, _ = s.withHolderState(next)
		err = sc.writeBlock(ctx, next)
		return err == nil, "nobody", ignore(err, pool.ErrConflict, pool.ErrNotFound)
	}
	h, found := b.HolderOf(i)
	if !found {
		return false, "", fmt.Errorf("%w: AddressBlock %s never gives %s", pool.ErrUnknown, b.Metadata.Name, address)
	}
	w := pool.Want{Party: s.me, Address: address, Claim: pool.ClaimName(a.Pool, a.IfName, a.Owner), PodUID: target}
	if slices.Contains(b.Spec.Want, w) {
		return false, "node " + h.Node, nil
	}
	failpoint.Here("before an address is asked for")
	if err := sc.requestAddresses(ctx, b, addressRequest{block: b.Metadata.Name, want: w, owner: a.Owner}); err != nil {
		return false, "", unavailable(err)
	}
	return false, "node " + h.Node, nil
}

// claimedByOther says whether a dead node had the address for another owner, who still has it by a claim. holder says which node that is.
func (sc *storeController) claimedByOther(ctx context.Context, a pool.Acquisition, b pool.Block, i int) (holder string, claimed bool, err error) {
	h, found := b.HolderOf(i)
	if !found {
		return "", false, nil
	}
	claims, err := sc.API.ClaimsAt(ctx, b.Address(i))
	if err != nil {
		return "", false, unavailable(err)
	}
	ownClaim := pool.ClaimName(a.Pool, a.IfName, a.Owner)
	return "node " + h.Node + " (declared dead, for another owner)", slices.ContainsFunc(claims, func(c pool.Claim) bool { return c.Spec.Pool == a.Pool && c.Metadata.Name != ownClaim }), nil
}

// obtainFromNewBlock makes the block of the address.
func (sc *storeController) obtainFromNewBlock(ctx context.Context, a pool.Acquisition, address netip.Addr, index int64) (arrived bool, holder string, err error) {
	v, err := sc.openPool(ctx, a.Pool)
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
	return err == nil && sc.hasAddressNow(ctx, a.Pool, address), "nobody", ignore(err, pool.ErrExists)
}

// hasAddressNow is has by a new look at the store.
func (sc *storeController) hasAddressNow(ctx context.Context, name string, a netip.Addr) bool {
	s, err := sc.state(ctx)
	return err == nil && sc.hasAddress(s, name, a)
}
