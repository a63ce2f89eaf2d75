package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/pool"
)

// Refill implements pool.Agent.
func (nc *Controller) Refill(ctx context.Context, d pool.Demand) error {
	return nc.serve(ctx, d.Network, pool.AgentLimit, func(ctx context.Context, sc *storeController) error {
		nc.noteUse()
		if err := sc.store.SetPools(ctx, d.Pools); err != nil {
			return err
		}
		names, err := sc.choose(ctx, d.Pools)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := sc.supplyAddress(ctx, name, d.Probes); err != nil {
				return err
			}
		}
		return nil
	})
}

// fill takes what the store lacks of the pool: whole blocks, and then single addresses, until half a block is free. need is how many addresses ADDs
// wait for: only for these it takes what a dead node had, and asks other nodes. A store without a free address looks again soon.
func (sc *storeController) fill(ctx context.Context, name string, need int) error {
	s, err := sc.state(ctx)
	if err != nil {
		return err
	}
	st := s.poolState(name)
	pause := sc.Surplus
	if freeCount(st, pool.GrantedChars) == 0 {
		pause = min(pause, balanceInterval)
	}
	if need == 0 && sc.clock().Sub(sc.exhaustedAt[name]) < pause {
		return nil
	}
	v, err := sc.openPool(ctx, name, false)
	if err != nil {
		return err
	}
	lacks := max(pool.Target(v.layout.BlockSize, st.Used+need)-grantedCount(st), need-freeCount(st, pool.GrantedChars))
	search := search{view: v, tried: map[int64]bool{}}
	for lacks > 0 {
		n, err := sc.takeBlock(ctx, &search)
		if err != nil {
			return err
		}
		if n == 0 {
			sc.exhaustedAt[name] = sc.clock()
			break
		}
		lacks -= n
	}
	if s, err = sc.state(ctx); err != nil {
		return err
	}
	free := freeCount(s.poolState(name), pool.GrantedChars)
	reserve := max(need, min(v.layout.BlockSize/2, lacks))
	if reserve <= free {
		return nil
	}
	return sc.reclaimFrom(ctx, search.blocks, v, reserve-free, need-free)
}

// openPool reads the pool, and makes sure that this node may take of it. held says that a pod here has the address already: it may have it of a pool
// that is for other nodes, too.
func (sc *storeController) openPool(ctx context.Context, name string, held bool) (view, error) {
	v, err := sc.readView(ctx, name)
	if err != nil {
		return v, err
	}
	if reason := v.closedReason(false); reason != "" && (!held || reason != v.mismatch) {
		return v, v.closedError(reason)
	}
	if len(sc.fenced) > 0 {
		if err := sc.checkNotDead(ctx); err != nil {
			return v, err
		}
	}
	return v, sc.ensureFinalizer(ctx, v.Pool)
}

// closedError is the error for the reason. A pool that is not for this node is a mistake in the configuration, or in the labels.
func (v view) closedError(reason string) error {
	if reason == v.mismatch {
		return fmt.Errorf("%w: the pool %s %s: correct ipam.pool, spec.nodeSelector or the labels of the node", pool.ErrUnknown, v.layout.Name, reason)
	}
	return fmt.Errorf("the pool %s gives nothing new: %s", v.layout.Name, reason)
}

// ensureFinalizer makes sure that the pool stays as long as somebody has addresses of it.
func (nc *Controller) ensureFinalizer(ctx context.Context, p pool.Pool) error {
	if p.HasFinalizer() {
		return nil
	}
	return nc.updatePool(ctx, p.Metadata.Name, nc.API.UpdatePool, func(p pool.Pool) (pool.Pool, bool) {
		missing := !p.HasFinalizer()
		p.Metadata.Finalizers = append(slices.Clone(p.Metadata.Finalizers), pool.Finalizer)
		return p, missing
	})
}

// takeBlock makes one block of the pool, and returns how many addresses the store has got. It returns 0 if all blocks exist.
func (sc *storeController) takeBlock(ctx context.Context, search *search) (int, error) {
	s, err := sc.state(ctx)
	if err != nil {
		return 0, err
	}
	for {
		index, err := search.next(ctx, sc.API)
		if err != nil || index < 0 {
			return 0, err
		}
		n, err := sc.createBlock(ctx, search.view, index, s)
		if !errors.Is(err, pool.ErrExists) {
			return n, err
		}
		search.markExisting(index)
	}
}

// createBlock makes a block, and all its addresses are this node's.
func (sc *storeController) createBlock(ctx context.Context, v view, index int64, s state) (int, error) {
	b, _ := pool.NewBlock(v.layout, index, s.me, s.Boot) // v allows the block, so the pool has it.
	return sc.createCheckedBlock(ctx, v, b, s, false)
}

// createCheckedBlock makes the block, and reads the pool again. It deletes the block if the pool was deleted or closed since it was read, or if
// another pool has some of the block. After an unclear answer, it reads whether the API has made the block.
func (sc *storeController) createCheckedBlock(ctx context.Context, v view, b pool.Block, s state, importing bool) (int, error) {
	failpoint.Here("before a block is made")
	stored, err := sc.API.CreateBlock(ctx, b)
	switch {
	case err != nil && (isAnswer(err) || errors.Is(err, pool.ErrBusy)):
		return 0, err
	case err != nil:
		if stored, err = sc.API.Block(ctx, b.Metadata.Name); err != nil {
			return 0, err
		}
		if _, found := stored.Holder(s.me); !found || !s.grant(b.Spec.Pool, b.Spec.Index).Empty() { // Pods can have addresses of an older block.
			return 0, pool.ErrExists
		}
	}
	failpoint.Here("block made")
	current, err := sc.readView(ctx, v.layout.Name)
	if err != nil {
		return 0, err
	}
	if reason := current.closedReason(importing); reason != "" || current.Metadata.UID != v.Metadata.UID || !current.allowsBlock(b.Spec.Index) {
		reason = cmp.Or(reason, "it is another one, or another AddressPool has some of the block")
		return 0, errors.Join(fmt.Errorf("the pool %s has changed: %s", v.layout.Name, reason), sc.API.DeleteBlock(ctx, stored))
	}
	sc.comparedUID = stored.Metadata.UID
	if _, err := sc.reconcile(ctx, stored, 0); err != nil {
		return 0, err
	}
	s, err = sc.state(ctx)
	return s.grant(b.Spec.Pool, b.Spec.Index).Granted(), err
}
