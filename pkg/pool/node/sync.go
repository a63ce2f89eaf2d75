package node

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// sync reads all blocks of the node, and brings the store and the API together. Afterwards the store gives addresses in this boot.
func (sc *storeController) sync(ctx context.Context) error {
	blocks, err := sc.API.BlocksOf(ctx, sc.Node)
	if err != nil {
		return err
	}
	return sc.syncBlocks(ctx, blocks)
}

// syncBlocks is sync for blocks that were just read.
func (sc *storeController) syncBlocks(ctx context.Context, blocks []pool.Block) error {
	s, err := sc.state(ctx)
	if err != nil || s.ID == "" { // The network has no pool.
		return err
	}
	// In a new boot, whoever reads the taint may give the node's addresses to others.
	if !s.Confirmed {
		if err := sc.checkNotDead(ctx); err != nil {
			return err
		}
	}
	var errs, ignored []error
	for _, g := range sc.unreconciled(s, blocks) {
		err := sc.reconcileBlock(ctx, g.Pool, g.Index)
		// Such a block does not keep the store from giving addresses.
		if errors.Is(err, errForeignBlock) || errors.Is(err, errOverlaps) || errors.Is(err, pool.ErrUnknown) && !s.poolState(g.Pool).Named {
			ignored = append(ignored, err)
		} else {
			errs = append(errs, err)
		}
		if !sc.apiReachable() {
			return errors.Join(errs...)
		}
	}
	sc.logOnce("ignored "+sc.network, "a block that does not count", errors.Join(ignored...))
	if err := errors.Join(errs...); err != nil {
		return err // What one pool has lost must not hide what another one has.
	}
	return sc.store.Confirm(ctx)
}

// unreconciled returns those of the blocks whose version the store has not handled, and those of its own that are not among them. No step can
// begin with this list: the step before it can have changed the block.
func (sc *storeController) unreconciled(s state, blocks []pool.Block) (grants []pool.Grant) {
	listed := map[string]bool{}
	for _, b := range blocks {
		if !sc.concerns(s, b) {
			continue
		}
		listed[b.Metadata.Name] = true
		if !sc.isReconciled(s, b) {
			grants = append(grants, s.grant(b.Spec.Pool, b.Spec.Index))
		}
	}
	for _, p := range s.Pools {
		for _, g := range p.Grants {
			if !listed[g.Name()] && !g.Empty() {
				grants = append(grants, g)
			}
		}
	}
	return grants
}

// isReconciled says whether the store has handled this version of the block. A fenced store has not: its fence can end at any time, with its
// last pod. Nor has one with unproven addresses: a pod can have probed since.
func (sc *storeController) isReconciled(s state, b pool.Block) bool {
	h, _ := b.Holder(s.me)
	provable := slices.ContainsFunc(b.Status.Unproven, func(a netip.Addr) bool { return s.mayGive(b.Spec.Pool, a) })
	return s.Confirmed && b.HasNodeUID(s.me) && h.Fenced == "" && !provable && sc.handledVersions[b.Metadata.Name] == b.Metadata.ResourceVersion
}

// checkNotDead fails if a person has declared this node dead, and has not taken that back.
func (sc *storeController) checkNotDead(ctx context.Context) error {
	n, err := sc.API.Node(ctx, sc.Node)
	if err == nil && n.OutOfService {
		err = errors.New("node " + sc.Node + " has the taint node.kubernetes.io/out-of-service, which declares it dead: remove the taint")
	}
	return ignore(err, pool.ErrNotFound)
}

// concerns says whether the store has something of the block, or asks for something.
func (sc *storeController) concerns(s state, b pool.Block) bool {
	_, holds := b.Holder(s.me)
	return holds || !s.grant(b.Spec.Pool, b.Spec.Index).Empty() || slices.ContainsFunc(b.Status.Want, func(w pool.Want) bool { return w.SameParty(s.me) })
}

// balance takes what the store lacks, and gives back what it has had too much of for a while.
func (sc *storeController) balance(ctx context.Context) error {
	s, err := sc.state(ctx)
	if err != nil || s.ID == "" {
		return ignore(err, lease.ErrNotLeased)
	}
	if !s.Confirmed {
		if err := sc.sync(ctx); err != nil {
			return err
		}
	}
	var errs []error
	for _, block := range slices.Concat(slices.Sorted(maps.Keys(sc.unmet)), slices.Sorted(maps.Keys(sc.fenced))) {
		name, index, _ := pool.ParseBlockName(block)
		errs = append(errs, sc.reconcileBlock(ctx, name, index))
	}
	for _, p := range s.Pools {
		errs = append(errs, sc.releaseMarked(ctx, p), sc.balancePool(ctx, p))
	}
	return errors.Join(append(errs, sc.withdraw(ctx, s), sc.reconcileOwners(ctx))...)
}

// reconcileOwners goes on with migrations, and claims what owners have here.
func (sc *storeController) reconcileOwners(ctx context.Context) error {
	s, err := sc.state(ctx)
	if err != nil {
		return err
	}
	return errors.Join(sc.reconcileIncoming(ctx, s), sc.claimMissing(ctx, s))
}

func (sc *storeController) balancePool(ctx context.Context, p lease.PoolState) error {
	if sc.node().LeaveReason() != "" {
		return sc.releaseAll(ctx, p)
	}
	target, granted := 0, grantedCount(p)
	if p.Named {
		l, err := sc.layout(ctx, p.Name)
		if err != nil {
			return err
		}
		p.Layout = l
		target = p.Target()
	}
	surplus := granted - target
	if surplus < 0 || surplus == 0 && !hasExcludedBlock(p) {
		if delete(sc.surplusSince, p.Name); surplus == 0 {
			return nil
		}
		return sc.fill(ctx, p.Name, 0)
	}
	since, found := sc.surplusSince[p.Name]
	if !found {
		since = sc.clock()
		sc.surplusSince[p.Name] = since
	}
	if sc.clock().Sub(since) < sc.Surplus {
		return nil
	}
	return sc.releaseSurplus(ctx, p, surplus)
}

// releaseMarked gives back what an earlier process has marked.
func (sc *storeController) releaseMarked(ctx context.Context, p lease.PoolState) error {
	return sc.eachGrant(p, func(g pool.Grant) error {
		if len(g.Offsets(string(pool.Marked))) == 0 {
			return nil
		}
		return sc.reconcileBlock(ctx, g.Pool, g.Index)
	})
}

// releaseAll gives back all that no pod has: the node leaves. It asks the API about no block of which pods have everything.
func (sc *storeController) releaseAll(ctx context.Context, p lease.PoolState) error {
	return sc.eachGrant(p, func(g pool.Grant) error {
		releasable := func(i int) bool { return p.Leased[g.Address(i)].State != lease.Held }
		if !slices.ContainsFunc(g.Offsets(pool.GrantedChars), releasable) {
			return nil
		}
		return sc.reconcileOne(ctx, g.Pool, g.Index, len(g.Addresses))
	})
}

// eachGrant calls f for the grants of the pool, as long as the API answers. One block's failure does not stop the others.
func (sc *storeController) eachGrant(p lease.PoolState, f func(pool.Grant) error) (err error) {
	for _, g := range p.Grants {
		if err = errors.Join(err, f(g)); !sc.apiReachable() {
			break
		}
	}
	return err
}

// releaseSurplus gives back blocks of which nobody has an address, with at most surplus addresses in all. Addresses that the pool excludes by
// now do not count.
func (sc *storeController) releaseSurplus(ctx context.Context, p lease.PoolState, surplus int) error {
	return sc.eachGrant(p, func(g pool.Grant) error {
		n := p.Gives(g)
		if n > surplus || !isUnused(p, g) {
			return nil
		}
		err := sc.reconcileOne(ctx, g.Pool, g.Index, len(g.Addresses))
		if err == nil {
			surplus -= n
		}
		return err
	})
}

// hasExcludedBlock says whether the node has a block of which the pool excludes all by now, and no pod has any of it. The
// node gives it back, also if it has no surplus.
func hasExcludedBlock(p lease.PoolState) bool {
	return slices.ContainsFunc(p.Grants, func(g pool.Grant) bool { return p.Gives(g) == 0 && isUnused(p, g) })
}

// isUnused says whether the node has addresses of the grant, and none of the block has a lease.
func isUnused(p lease.PoolState, g pool.Grant) bool {
	for a := range p.Leased {
		if g.Offset(a) >= 0 {
			return false
		}
	}
	return g.Granted() > 0
}
