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
		for _, name := range d.Pools {
			if err := sc.supplyAddress(ctx, name); err != nil {
				return err
			}
		}
		return nil
	})
}

// fill takes what the store lacks of the pool, whole blocks first. need is how many addresses ADDs wait for: only for these it asks other
// nodes.
func (sc *storeController) fill(ctx context.Context, name string, need int) error {
	if need == 0 && sc.clock().Sub(sc.exhaustedAt[name]) < sc.Surplus {
		return nil
	}
	v, err := sc.openPool(ctx, name)
	if err != nil {
		return err
	}
	s, err := sc.state(ctx)
	if err != nil {
		return err
	}
	st := s.poolState(name)
	lacks := max(pool.Target(v.layout.BlockSize, st.Used+need)-grantedCount(st), need-freeCount(st))
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
	if need -= freeCount(s.poolState(name)); need <= 0 {
		return nil
	}
	return sc.reclaimFrom(ctx, search.blocks, v, need)
}

// openPool reads the pool, and makes sure that this node may take of it.
func (sc *storeController) openPool(ctx context.Context, name string) (view, error) {
	v, err := sc.readView(ctx, name)
	if err != nil {
		return v, err
	}
	if reason := v.closedReason(false); reason != "" {
		return v, closedError(name, reason)
	}
	if len(sc.fenced) > 0 {
		if err := sc.checkNotDead(ctx); err != nil {
			return v, err
		}
	}
	return v, sc.ensureFinalizer(ctx, v.Pool)
}

func closedError(name, reason string) error {
	return fmt.Errorf("the pool %s gives nothing new: %s", name, reason)
}

// ensureFinalizer makes sure that the pool stays as long as somebody has addresses of it.
func (nc *Controller) ensureFinalizer(ctx context.Context, p pool.Pool) error {
	if p.HasFinalizer() {
		return nil
	}
	return nc.updatePool(ctx, p.Metadata.Name, func(p pool.Pool) (pool.Pool, bool) {
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
		if _, found := stored.Holder(s.me); !found {
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
	_, g, err := sc.adopt(ctx, stored)
	if err == nil {
		sc.handledVersions[stored.Metadata.Name] = stored.Metadata.ResourceVersion
	}
	return g.Granted(), err
}
