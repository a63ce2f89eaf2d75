package node

import (
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
		l, err := nc.readPool(ctx, a.Pool)
		if err != nil {
			return err
		}
		address := a.Requested
		if !address.IsValid() {
			c, err := nc.claim(ctx, a.ClaimName())
			if address = c.Spec.Address; err != nil || !l.Assignable(address) && !isSource(c, a) {
				return err // The owner has none, or one that nobody gives any more: it gets another one.
			}
		}
		found, err = sc.awaitAddress(ctx, a, address)
		return err
	})
	return found, err
}

// isSource says whether the owner's machine migrates from the pod that has the claim's address. It must keep the address then.
func isSource(c pool.Claim, a pool.Acquisition) bool {
	return c.Spec.Active.PodUID != "" && slices.Contains(a.Siblings, c.Spec.Active.PodUID)
}

// awaitAddress returns when the store can give the address to the owner, or when the owner's machine may migrate to this node.
func (sc *storeController) awaitAddress(ctx context.Context, a pool.Acquisition, address netip.Addr) (found pool.Acquired, err error) {
	holder := ""
	err = sc.await(ctx, func() (success bool, err error) {
		found, holder, err = sc.tryAcquire(ctx, a, address)
		return found.Address.IsValid(), err
	})
	if err == nil && !found.Address.IsValid() {
		err = fmt.Errorf("%s has %s of the pool %s, and has not handed it over: the owner's pod there must end first; if that node is dead, docs/pools.md says what to do", holder, address, a.Pool)
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

// mayGive says whether the store may give the address.
func (s state) mayGive(name string, a netip.Addr) bool {
	return slices.ContainsFunc(s.poolState(name).Grants, func(g pool.Grant) bool { return g.MayGive(a) })
}

// obtainAddress takes the address if nobody has it, and otherwise asks its holder for it. target is the UID of the pod to which the owner's machine
// migrates, empty if it does not.
func (sc *storeController) obtainAddress(ctx context.Context, a pool.Acquisition, address netip.Addr, index int64, target string) (arrived bool, holder string, err error) {
	b, err := sc.API.Block(ctx, pool.BlockName(a.Pool, index))
	if errors.Is(err, pool.ErrNotFound) {
		return sc.obtainFromNewBlock(ctx, a, address, index)
	}
	if err != nil {
		return false, "", err
	}
	s, _, err := sc.adopt(ctx, b)
	if err != nil {
		return false, "", err
	}
	if b.IsFenced(s.me) {
		return false, "", fmt.Errorf("this node was declared dead, and is still in AddressBlock %s, which has %s: it leaves when no pod here has any of these addresses", b.Metadata.Name, address)
	}
	i := b.Offset(address)
	h, held := b.HolderOf(i)
	holder = "node " + h.Node
	switch {
	case held && h.SameParty(s.me):
		return sc.hasArrived(ctx, a.Pool, address), holder, nil
	case held && h.Fenced == "":
		return false, holder, sc.requestOwned(ctx, b, a, pool.Want{Party: s.me, Address: address, Claim: a.ClaimName(), PodUID: target})
	case held:
		if claimed, err := sc.claimedByOther(ctx, a, address); claimed || err != nil {
			return false, holder + " (declared dead, for another owner)", err
		}
	case b.Spec.Addresses[i] == pool.Excluded:
		return false, "", fmt.Errorf("%w: AddressBlock %s never gives %s", pool.ErrUnknown, b.Metadata.Name, address)
	}
	v, err := sc.openPool(ctx, a.Pool)
	switch {
	case err != nil:
		return false, "", err
	case !v.allowsAddress(address):
		return false, "", sharedError(address.String())
	}
	n, err := sc.take(ctx, b, s, []int{i})
	return n > 0, "nobody", err
}

// requestOwned asks on the block for an owner's address, once.
func (sc *storeController) requestOwned(ctx context.Context, b pool.Block, a pool.Acquisition, w pool.Want) error {
	if slices.Contains(b.Spec.Want, w) {
		return nil
	}
	failpoint.Here("before an address is asked for")
	return sc.requestAddresses(ctx, b, addressRequest{block: b.Metadata.Name, want: w, owner: a.Owner})
}

// claimedByOther says whether another owner still has the address by a claim: a dead node had it.
func (sc *storeController) claimedByOther(ctx context.Context, a pool.Acquisition, address netip.Addr) (bool, error) {
	claims, err := sc.API.ClaimsAt(ctx, address)
	return slices.ContainsFunc(claims, func(c pool.Claim) bool { return c.Spec.Pool == a.Pool && c.Metadata.Name != a.ClaimName() }), err
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
	return err == nil && sc.hasArrived(ctx, a.Pool, address), "nobody", ignore(err, pool.ErrExists)
}

// hasArrived is mayGive by a new look at the store.
func (sc *storeController) hasArrived(ctx context.Context, name string, a netip.Addr) bool {
	s, err := sc.state(ctx)
	return err == nil && s.mayGive(name, a)
}
