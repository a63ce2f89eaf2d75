package keeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// patience is how long a node that was asked for addresses has for its answer, before the next one is asked.
const patience = 200 * time.Millisecond

// askedAtOnce is how many nodes are asked at a time.
const askedAtOnce = 2

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

// supply returns when the store has an address of the pool to give.
func (m *member) supply(ctx context.Context, name string) error {
	m.wait(name, 1)
	defer m.wait(name, -1)
	for {
		news := m.listen()
		enough, err := m.trySupply(ctx, name)
		if enough || err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			none := fmt.Errorf("%w: no address of the pool %s is free, and no other node has given one in time", pool.ErrUnavailable, name)
			return errors.Join(none, err)
		case <-news:
		case <-time.After(patience):
		}
	}
}

// goesOn is how long a try goes on at most.
const goesOn = 30 * time.Second

// trySupply makes one try, as the only one for this store. If the ADD does not wait any more, the try goes on: the next ADD needs
// what it brings, and a busy API would have worked in vain.
func (m *member) trySupply(ctx context.Context, name string) (enough bool, err error) {
	done, err := m.begin(ctx)
	if err != nil {
		return false, err
	}
	type result struct {
		enough bool
		err    error
	}
	made := make(chan result, 1)
	go func() {
		defer done()
		ctx, cancel := m.goOn(ctx)
		defer cancel()
		enough, err := m.supplyNow(ctx, name)
		made <- result{enough, err}
	}()
	select {
	case r := <-made:
		return r.enough, r.err
	case <-ctx.Done():
		return false, unavailable(ctx.Err())
	}
}

// goOn returns a context for what goes on after the end of ctx. It ends with Run.
func (k *Keeper) goOn(ctx context.Context) (context.Context, context.CancelFunc) {
	k.mu.Lock()
	defer k.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goesOn)
	stop := context.AfterFunc(k.life, cancel)
	return ctx, func() { stop(); cancel() }
}

// rest ends what goes on, and waits for its end: it has the turn of its store.
func (k *Keeper) rest() {
	k.mu.Lock()
	k.die()
	k.life, k.die = context.WithCancel(context.Background())
	all := slices.Collect(maps.Values(k.members))
	k.mu.Unlock()
	for _, m := range all {
		m.turn <- struct{}{}
		<-m.turn
	}
}

// supplyNow is trySupply for who has the turn.
func (m *member) supplyNow(ctx context.Context, name string) (enough bool, err error) {
	s, err := m.ready(ctx, name)
	if err != nil {
		return false, err
	}
	if free(s.of(name)) > 0 {
		return true, nil
	}
	if m.now().Sub(m.filled[name]) < patience/2 {
		return false, nil // Another ADD has just looked for all that wait.
	}
	err = m.fill(ctx, name, m.waits(name))
	if m.filled[name] = m.now(); err != nil {
		return false, err
	}
	if s, err = m.state(ctx); err != nil {
		return false, unavailable(err)
	}
	return free(s.of(name)) > 0, nil
}

// free is how many addresses of the pool the store can give now.
func free(p lease.PoolState) int { return ours(p) - p.Used }

// wait notes that n more ADDs wait for the pool.
func (m *member) wait(name string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting[name] += n
}

// listen returns what is closed when the store gets addresses.
func (m *member) listen() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.news
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
	return m.scrape(ctx, search.seen, name, need)
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
		why := fmt.Errorf("the pool %s has changed: %s", v.layout.Name, cmp.Or(closed(now), "it is another one, or shares addresses with one"))
		return 0, unavailable(errors.Join(why, m.API.DeleteBlock(ctx, made)))
	}
	m.wrote(nil)
	_, g, err := m.adopt(ctx, made)
	if err == nil {
		m.seen[made.Metadata.Name] = made.Metadata.ResourceVersion
	}
	return len(g.Offsets(pool.Ours)), err
}

// scrape looks for single addresses: those that are nobody's, those of fenced nodes, and those that other nodes have too much.
func (m *member) scrape(ctx context.Context, blocks []pool.Block, name string, need int) (err error) {
	if blocks == nil {
		if blocks, err = m.API.Blocks(ctx, name); err != nil {
			return unavailable(err)
		}
	}
	s, err := m.state(ctx)
	if err != nil {
		return err
	}
	l, err := m.layout(ctx, name)
	if err != nil {
		return err
	}
	blocks = slices.DeleteFunc(slices.Clone(blocks), func(b pool.Block) bool { return b.Check() != nil || !isOf(l, b) })
	if need, err = m.takeSingle(ctx, blocks, s, need, l, pool.Block.Free); err != nil || need <= 0 {
		return err
	}
	if need, err = m.takeOfDead(ctx, blocks, s, need, l); err != nil || need <= 0 {
		return err
	}
	for range askedAtOnce {
		if need > 0 && err == nil {
			err = m.askNext(ctx, blocks, s.me, need)
		}
	}
	return err
}

// takeSingle takes some of those addresses of the blocks, but none that the pool excludes by now. It returns how many are still needed.
func (m *member) takeSingle(ctx context.Context, blocks []pool.Block, s state, need int, l pool.Layout, offsets func(pool.Block) []int) (int, error) {
	for _, b := range blocks {
		if need <= 0 {
			break
		}
		all := slices.DeleteFunc(offsets(b), func(i int) bool { return l.Excluded(b.At(i)) })
		next, n := b.Take(s.me, all[:min(need, len(all))])
		if n == 0 {
			continue
		}
		next, _ = s.says(next)
		switch err := m.write(ctx, next); {
		case errors.Is(err, pool.ErrConflict), errors.Is(err, pool.ErrNotThere):
		case err != nil:
			return need, unavailable(err)
		default:
			need -= n
		}
	}
	return need, nil
}

// takeOfDead takes addresses of fenced nodes. Those that owners have stay for the owners.
func (m *member) takeOfDead(ctx context.Context, blocks []pool.Block, s state, need int, l pool.Layout) (int, error) {
	if !slices.ContainsFunc(blocks, func(b pool.Block) bool { return len(b.Fenced()) > 0 }) {
		return need, nil
	}
	claims, err := m.API.Claims(ctx, l.Name)
	if err != nil {
		return need, unavailable(err)
	}
	owned := map[netip.Addr]bool{}
	for _, c := range claims {
		owned[c.Spec.Address] = true
	}
	return m.takeSingle(ctx, blocks, s, need, l, func(b pool.Block) []int {
		return slices.DeleteFunc(b.Fenced(), func(i int) bool { return owned[b.At(i)] })
	})
}

// askNext asks one more node for addresses: the one that has the most, of those that were not asked.
func (m *member) askNext(ctx context.Context, blocks []pool.Block, me pool.Party, need int) error {
	has, where, asked := map[string]int{}, map[string]pool.Block{}, map[string]bool{}
	for _, b := range blocks {
		if before, is := m.asked[b.Metadata.Name]; is && m.now().Sub(before.at) < pool.Limit {
			for _, h := range b.Spec.Holders {
				asked[h.Store] = true
			}
		}
		for i := range len(b.Spec.Addresses) {
			if h, is := b.HolderOf(i); is && !h.Is(me) && h.Fenced == "" && !b.IsFenced(me) {
				has[h.Store]++
				where[h.Store] = b
			}
		}
	}
	best := ""
	for store, n := range has {
		if !asked[store] && (best == "" || n > has[best]) {
			best = store
		}
	}
	if best == "" {
		return nil
	}
	b, w := where[best], pool.Want{Party: me, Count: need}
	return m.ask(ctx, b, ask{block: b.Metadata.Name, want: w})
}

// ask asks the API to note on the block what the store wants. If somebody else changes the block at the same time, nothing is asked. Who
// asks for any addresses begins a new epoch: the holder hears by it that the store needs as many once more.
func (m *member) ask(ctx context.Context, b pool.Block, a ask) error {
	if a.want.Count > 0 {
		b.Spec.Epoch++
		a.want.Epoch = b.Spec.Epoch
	}
	_, err := m.API.UpdateBlock(ctx, b.Ask(a.want))
	m.wrote(err)
	if err != nil {
		return ignore(err, pool.ErrConflict, pool.ErrNotThere)
	}
	a.at = m.now()
	m.asked[a.key()] = a
	return nil
}
