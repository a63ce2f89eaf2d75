package keeper

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
func (k *Keeper) Refill(ctx context.Context, d pool.Demand) error {
	ctx, cancel := context.WithTimeout(ctx, pool.Limit)
	defer cancel()
	k.use.Do(func() { close(k.used) })
	m, err := k.member(d.Network)
	if err != nil {
		return err
	}
	if err := m.store.WantPools(ctx, d.Pools); err != nil {
		return unavailable(err)
	}
	for _, name := range d.Pools {
		if err := m.supply(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// fill takes what the store lacks of the pool, whole blocks first. ADDs wait for need addresses: only for these it asks other
// nodes.
func (m *member) fill(ctx context.Context, name string, need int) error {
	if need == 0 && m.now().Sub(m.dry[name]) < m.Surplus {
		return nil
	}
	v, err := m.open(ctx, name)
	if err != nil {
		return err
	}
	s, err := m.state(ctx)
	if err != nil {
		return err
	}
	st := s.of(name)
	lacks := max(pool.Target(v.layout.BlockSize, st.Used+need)-ours(st), need-free(st))
	search := search{view: v}
	for lacks > 0 {
		n, err := m.takeBlock(ctx, &search)
		if err != nil {
			return err
		}
		if n == 0 {
			m.dry[name] = m.now()
			break
		}
		lacks -= n
	}
	if s, err = m.state(ctx); err != nil {
		return err
	}
	if need -= free(s.of(name)); need <= 0 {
		return nil
	}
	return m.scrape(ctx, search.seen, v, need)
}

// open reads the pool, and makes sure that this node may take of it.
func (m *member) open(ctx context.Context, name string) (view, error) {
	v, err := m.view(ctx, name)
	if err != nil {
		return v, err
	}
	if v.closed != "" {
		return v, unavailable(fmt.Errorf("the pool %s gives nothing new: %s", name, v.closed))
	}
	if len(m.fenced) > 0 {
		if err := m.notDead(ctx); err != nil {
			return v, err
		}
	}
	v.Pool, err = m.hold(ctx, v.Pool)
	return v, err
}

// hold makes sure that the pool stays as long as somebody has addresses of it.
func (m *member) hold(ctx context.Context, p pool.Pool) (pool.Pool, error) {
	if slices.Contains(p.Metadata.Finalizers, pool.Finalizer) {
		return p, nil
	}
	p.Metadata.Finalizers = append(slices.Clone(p.Metadata.Finalizers), pool.Finalizer)
	made, err := m.API.UpdatePool(ctx, p)
	if errors.Is(err, pool.ErrConflict) {
		made, err = m.API.Pool(ctx, p.Metadata.Name)
		if err == nil && !slices.Contains(made.Metadata.Finalizers, pool.Finalizer) {
			err = errors.New("AddressPool " + p.Metadata.Name + " changes all the time")
		}
	}
	if err != nil {
		return p, unavailable(err)
	}
	return made, nil
}

// takeBlock makes one block of the pool, and returns how many addresses the store has got. It returns 0 if all blocks exist.
func (m *member) takeBlock(ctx context.Context, search *search) (int, error) {
	s, err := m.state(ctx)
	if err != nil {
		return 0, err
	}
	for {
		index, err := search.next(ctx, m.API)
		if err != nil || index < 0 {
			return 0, err
		}
		n, err := m.create(ctx, search.view, index, s)
		if !errors.Is(err, pool.ErrExists) {
			return n, err
		}
		search.exists(index)
	}
}

// create makes a block of which all is this node's.
func (m *member) create(ctx context.Context, v view, index int64, s state) (int, error) {
	p := s.of(v.layout.Name)
	b, ok := pool.NewBlock(v.layout, index, s.me, p.Session)
	b, _ = b.Obey(s.me, p.FenceAfter)
	if !ok {
		return 0, unavailable(fmt.Errorf("the pool %s has no block %d", v.layout.Name, index))
	}
	return m.makeBlock(ctx, v, b, s, func(now view) string { return now.closed })
}

// makeBlock makes the block. The pool could have been deleted since it was read: its blocks count only if it is still there, and
// closed says nothing against it. An unclear answer is followed by a read.
func (m *member) makeBlock(ctx context.Context, v view, b pool.Block, s state, closed func(view) string) (int, error) {
	failpoint.Here("before a block is made")
	made, err := m.API.CreateBlock(ctx, b)
	switch {
	case errors.Is(err, pool.ErrExists), errors.Is(err, pool.ErrRefused):
		return 0, err
	case errors.Is(err, pool.ErrBusy):
		return 0, unavailable(err)
	case err != nil:
		if made, err = m.API.Block(ctx, b.Metadata.Name); err != nil {
			return 0, unavailable(err)
		}
		if _, is := made.Holder(s.me); !is {
			return 0, pool.ErrExists
		}
	}
	failpoint.Here("block made")
	now, err := m.view(ctx, v.layout.Name)
	if err != nil {
		return 0, err
	}
	if now.Metadata.UID != v.Metadata.UID || closed(now) != "" || !now.allows(b.Spec.Index) {
		why := fmt.Errorf("the pool %s has changed: %s", v.layout.Name, cmp.Or(closed(now), "it is another one, or another AddressPool has some of the block"))
		return 0, unavailable(errors.Join(why, m.API.DeleteBlock(ctx, made)))
	}
	m.wrote(nil)
	m.compared = made.Metadata.UID
	_, g, err := m.adopt(ctx, made)
	if err == nil {
		m.seen[made.Metadata.Name] = made.Metadata.ResourceVersion
	}
	return len(g.Offsets(pool.Ours)), err
}
