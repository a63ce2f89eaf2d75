package keeper

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/pool"
)

// askedAtOnce is how many nodes are asked at a time.
const askedAtOnce = 2

// scrape looks for single addresses: those that are nobody's, those of fenced nodes, and those that other nodes have too much.
func (m *member) scrape(ctx context.Context, blocks []pool.Block, v view, need int) (err error) {
	if blocks == nil {
		if blocks, err = m.API.Blocks(ctx, v.layout.Name); err != nil {
			return unavailable(err)
		}
	}
	s, err := m.state(ctx)
	if err != nil {
		return err
	}
	blocks = slices.DeleteFunc(slices.Clone(blocks), func(b pool.Block) bool { return b.Check() != nil || !isOf(v.layout, b) })
	if need, err = m.takeSingle(ctx, blocks, s, need, v, pool.Block.Free); err != nil || need <= 0 {
		return err
	}
	if need, err = m.takeOfDead(ctx, blocks, s, need, v); err != nil || need <= 0 {
		return err
	}
	for range askedAtOnce {
		if need > 0 && err == nil {
			err = m.askNext(ctx, blocks, s.me, need)
		}
	}
	return err
}

// takeSingle takes some of those addresses of the blocks, but none that the pool excludes by now or that another pool has. It returns how many are still needed.
func (m *member) takeSingle(ctx context.Context, blocks []pool.Block, s state, need int, v view, offsets func(pool.Block) []int) (int, error) {
	for _, b := range blocks {
		if need <= 0 {
			break
		}
		all := slices.DeleteFunc(offsets(b), func(i int) bool { return !v.gives(b.At(i)) })
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
func (m *member) takeOfDead(ctx context.Context, blocks []pool.Block, s state, need int, v view) (int, error) {
	if !slices.ContainsFunc(blocks, func(b pool.Block) bool { return len(b.Fenced()) > 0 }) {
		return need, nil
	}
	claims, err := m.API.Claims(ctx, v.layout.Name)
	if err != nil {
		return need, unavailable(err)
	}
	owned := map[netip.Addr]bool{}
	for _, c := range claims {
		owned[c.Spec.Address] = true
	}
	return m.takeSingle(ctx, blocks, s, need, v, func(b pool.Block) []int {
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
