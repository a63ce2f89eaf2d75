package node

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// sync reads all blocks of the store, and brings the store and the API together. Afterwards the store gives addresses in this boot.
func (sc *storeController) sync(ctx context.Context) error {
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
	grants, err := sc.unreconciled(ctx, s)
	if err != nil {
		return err
	}
	var errs, ignored []error
	for _, g := range grants {
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
	sc.logOnce("a block that does not count", errors.Join(ignored...))
	if err := errors.Join(errs...); err != nil {
		return err // What one pool has lost must not hide what another one has.
	}
	return sc.store.Confirm(ctx)
}

// unreconciled returns the blocks whose current version the store has not handled. No step can begin with this list: the step before it can
// have changed the block.
func (sc *storeController) unreconciled(ctx context.Context, s state) (grants []pool.Grant, err error) {
	blocks, err := sc.API.BlocksOf(ctx, sc.Node)
	if err != nil {
		return nil, err
	}
	listed := map[string]bool{}
	for _, b := range blocks {
		if !sc.concerns(s, b) {
			continue
		}
		listed[b.Metadata.Name] = true
		if sc.restoreRequests(s, b); !sc.isReconciled(s, b) {
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
	return grants, nil
}

// isReconciled says whether the store has handled this version of the block. A fenced store has not: its fence can end at any time, with its
// last pod.
func (sc *storeController) isReconciled(s state, b pool.Block) bool {
	h, _ := b.Holder(s.me)
	return s.Confirmed && h.Fenced == "" && sc.handledVersions[b.Metadata.Name] == b.Metadata.ResourceVersion
}

// checkNotDead fails if a person has declared this node dead, and has not taken that back.
func (sc *storeController) checkNotDead(ctx context.Context) error {
	n, err := sc.API.Node(ctx, sc.Node)
	if err == nil && n.OutOfService {
		err = errors.New("node " + sc.Node + " has the taint node.kubernetes.io/out-of-service, which declares it dead: remove the taint")
	}
	return ignore(err, pool.ErrNotFound)
}

// restoreRequests notes what an earlier process has asked for. Nobody waits for that any more.
func (sc *storeController) restoreRequests(s state, b pool.Block) {
	for _, w := range b.Spec.Want {
		a := addressRequest{block: b.Metadata.Name, want: w}
		if _, found := sc.requested[a.key()]; w.SameParty(s.me) && !found {
			sc.requested[a.key()] = a
		}
	}
}

// requestPeriod is how long a store goes on asking for an owner's address if no ADD waits. The runtime tries an ADD again within that
// time. It asks for any address only while an ADD waits: what comes too late would be missing elsewhere.
const requestPeriod = 2 * time.Minute

// concerns says whether the store has something of the block, or asks for something.
func (sc *storeController) concerns(s state, b pool.Block) bool {
	_, holds := b.Holder(s.me)
	return holds || !s.grant(b.Spec.Pool, b.Spec.Index).Empty() || slices.ContainsFunc(b.Spec.Want, func(w pool.Want) bool { return w.SameParty(s.me) })
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
	for _, blocks := range []map[string]pool.BlockSpec{sc.requestedBlocks, sc.fenced} {
		for _, b := range blocks {
			errs = append(errs, sc.reconcileBlock(ctx, b.Pool, b.Index))
		}
	}
	for _, p := range s.Pools {
		errs = append(errs, sc.balancePool(ctx, p))
	}
	return errors.Join(append(errs, sc.cancelUnneeded(ctx, s), sc.reconcileOwners(ctx))...)
}

// reconcileOwners goes on with migrations, and claims what owners have here.
func (sc *storeController) reconcileOwners(ctx context.Context) error {
	s, err := sc.state(ctx)
	if err != nil {
		return err
	}
	return errors.Join(sc.reconcileMigrating(ctx, s), sc.claimMissing(ctx, s))
}

func (sc *storeController) balancePool(ctx context.Context, p lease.PoolState) error {
	if err := sc.releaseMarked(ctx, p); err != nil {
		return err
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
	for _, g := range p.Grants {
		if len(g.Offsets(string(pool.Marked))) > 0 {
			if err := sc.reconcileBlock(ctx, g.Pool, g.Index); err != nil {
				return err
			}
		}
	}
	return nil
}

// releaseSurplus gives back blocks of which nobody has an address, with at most surplus addresses in all. Addresses that the pool excludes by
// now do not count.
func (sc *storeController) releaseSurplus(ctx context.Context, p lease.PoolState, surplus int) error {
	for _, g := range p.Grants {
		n := p.Gives(g)
		if n > surplus || !isUnused(p, g) {
			continue
		}
		marked, err := sc.store.MarkFree(ctx, g.Pool, g.Index, len(g.Addresses))
		if err != nil {
			return err
		}
		if err := sc.reconcileBlock(ctx, g.Pool, g.Index); err != nil {
			return err
		}
		surplus -= n - p.Gives(marked)
	}
	return nil
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

// cancelUnneeded withdraws the requests that the store does not need any more. Nobody waits for what an earlier process has asked
// for.
func (sc *storeController) cancelUnneeded(ctx context.Context, s state) error {
	for key, a := range sc.requested {
		name, _, _ := pool.ParseBlockName(a.block)
		waits := sc.waitingCount(name) > 0
		if waits || a.want.Address.IsValid() && (sc.clock().Sub(a.requestedAt) < requestPeriod || s.poolState(name).Leased[a.want.Address].State == lease.Held) {
			continue
		}
		err := sc.cancelRequest(ctx, a)
		if err == nil && a.owner != (attachment.Owner{}) {
			err = sc.cancelMigration(ctx, a.want.Claim, s.me)
		}
		switch {
		case errors.Is(err, pool.ErrConflict):
			continue // The next look goes on here.
		case err != nil:
			return err
		case a.owner != (attachment.Owner{}):
			if err := sc.store.CancelIncoming(ctx, name, a.want.Address, a.owner); err != nil {
				return err
			}
		}
		delete(sc.requested, key)
	}
	return nil
}

// cancelRequest withdraws a request from a block. If the addresses have come meanwhile, the store has them afterwards. The error matches
// pool.ErrConflict if the block changes at the same time.
func (sc *storeController) cancelRequest(ctx context.Context, a addressRequest) error {
	b, err := sc.API.Block(ctx, a.block)
	switch {
	case err != nil:
	case slices.ContainsFunc(b.Spec.Want, func(w pool.Want) bool { return w.SameParty(a.want.Party) && w.Address == a.want.Address }):
		err = sc.writeBlock(ctx, b.Request(pool.Want{Party: a.want.Party, Address: a.want.Address}))
	default:
		_, _, err = sc.adopt(ctx, b)
	}
	return ignore(err, pool.ErrNotFound)
}
