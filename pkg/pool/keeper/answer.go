package keeper

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// passing is a party that asks on a block.
type passing struct{ block, store string }

// passed is how many addresses of other blocks it has got for what it asked in that epoch of that block.
type passed struct {
	n     int
	uid   string
	epoch int64
}

// passedOn is what the party has got of other blocks for what it asks. Only the party itself takes back what it asks for, and its agent can
// be away. So others who change the block change nothing here. If the party asks once more, it does so in another epoch.
func (m *member) passedOn(b pool.Block, w pool.Want) passed {
	if p := m.passed[passing{b.Metadata.Name, w.Store}]; p.uid == b.Metadata.UID && p.epoch == w.Epoch {
		return p
	}
	return passed{uid: b.Metadata.UID, epoch: w.Epoch}
}

// forgetPassed forgets what parties have got that do not ask on the block any more.
func (m *member) forgetPassed(b pool.Block) {
	maps.DeleteFunc(m.passed, func(k passing, _ passed) bool {
		asks := func(w pool.Want) bool { return w.Store == k.store && w.Count > 0 }
		return k.block == b.Metadata.Name && !slices.ContainsFunc(b.Spec.Want, asks)
	})
}

// answer marks what the store can do without and others want on the block. It returns the store's part of this block.
func (m *member) answer(ctx context.Context, b pool.Block, s state, g pool.Grant) (pool.Grant, error) {
	delete(m.wanted, b.Metadata.Name)
	m.forgetPassed(b)
	if _, is := b.Holder(s.me); !is {
		return g, nil
	}
	for _, w := range b.Spec.Want {
		if b.IsFenced(w.Party) {
			continue // It could not get it, and an owner's address would be nobody's.
		}
		if !w.Is(s.me) {
			m.wanted[b.Metadata.Name] = b.Spec // Until the next look: what they want may be free then.
		}
		var err error
		switch {
		case w.Is(s.me):
		case w.Address.IsValid():
			g, err = m.answerOwner(ctx, b, w, g)
		case w.Count > 0:
			g, err = m.answerAny(ctx, b, w, g)
		}
		if err != nil {
			return g, err
		}
	}
	return g, nil
}

// answerAny marks free addresses of this block, and passes on those of other blocks if there are not enough. What ADDs of
// this node wait for stays here.
func (m *member) answerAny(ctx context.Context, b pool.Block, w pool.Want, g pool.Grant) (pool.Grant, error) {
	s, err := m.state(ctx)
	if err != nil {
		return g, err
	}
	p := s.of(b.Spec.Pool)
	most := min(w.Count, free(p)-m.waits(p.Name))
	if most <= 0 {
		return g, nil
	}
	before := len(g.Offsets(string(pool.Marked)))
	if g, err = m.store.MarkFree(ctx, p.Name, b.Spec.Index, min(most, p.Free(g))); err != nil {
		return g, err
	}
	got := m.passedOn(b, w)
	most = min(most, w.Count-got.n) - (len(g.Offsets(string(pool.Marked))) - before)
	for _, other := range p.Grants {
		if most > 0 && other.Index != b.Spec.Index && p.Free(other) > 0 {
			n, err := m.passOn(ctx, other, min(most, p.Free(other)), w.Party)
			if err != nil {
				return g, err
			}
			most -= n
			if got.n += n; n > 0 {
				m.passed[passing{b.Metadata.Name, w.Store}] = got
			}
		}
	}
	return g, nil
}

// passOn gives free addresses of the block to another party. It returns how many.
func (m *member) passOn(ctx context.Context, g pool.Grant, most int, to pool.Party) (int, error) {
	before := len(g.Offsets(string(pool.Marked)))
	g, err := m.store.MarkFree(ctx, g.Pool, g.Index, most)
	marked := g.Offsets(string(pool.Marked))
	if err != nil || len(marked) == before {
		return 0, err
	}
	b, err := m.API.Block(ctx, g.Name())
	if errors.Is(err, pool.ErrNotThere) {
		return 0, m.gone(ctx, g.Pool, g.Index)
	}
	if err != nil {
		return 0, unavailable(err)
	}
	s, _, err := m.adopt(ctx, b)
	if err != nil {
		return 0, err
	}
	err = m.write(ctx, b.GiveTo(s.me, marked, to))
	if err != nil { // The next visit gives back what is marked.
		return 0, ignore(err, pool.ErrConflict, pool.ErrNotThere)
	}
	return len(marked), nil
}

// answerOwner marks the address that an owner's next pod needs on another node, if no pod of this node has it.
func (m *member) answerOwner(ctx context.Context, b pool.Block, w pool.Want, g pool.Grant) (pool.Grant, error) {
	i := b.Offset(w.Address)
	if i < 0 || g.Offset(w.Address) < 0 {
		return g, nil
	}
	if gives, _ := g.May(i); !gives {
		return g, nil
	}
	s, err := m.state(ctx)
	if err != nil {
		return g, err
	}
	var o attachment.Owner
	if l, leased := s.of(g.Pool).Leased[w.Address]; leased {
		if pool.ClaimName(g.Pool, l.Newest().IfName, l.Owner) != w.Claim {
			return g, m.dropClaim(ctx, g.Pool, w, s.me)
		}
		if l.State == lease.Held {
			return g, m.letCome(ctx, w, l, s.me)
		}
		o = l.Owner
	}
	marked, err := m.store.MarkAddress(ctx, g.Pool, w.Address, o)
	if errors.Is(err, lease.ErrHolder) || errors.Is(err, lease.ErrTaken) {
		return g, nil // A pod of this node has it. Its DEL comes first.
	}
	return marked, err
}

// waits is how many ADDs of this node wait for an address of the pool.
func (m *member) waits(name string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.waiting[name]
}

// ignore drops the error if it is one of these.
func ignore(err error, these ...error) error {
	for _, e := range these {
		if errors.Is(err, e) {
			return nil
		}
	}
	return err
}
