package keeper

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// recoverPool asserts what all stores of this node have of the pool, and then says so. It says nothing while a pod has an address
// that another node has in the API and may still give up.
func (k *Keeper) recoverPool(ctx context.Context, name string, r pool.Recovery) error {
	if _, missing := r.Asserts(k.Node); !missing {
		return nil
	}
	all, err := k.all()
	if err != nil {
		return err
	}
	err = assertAll(ctx, all, name, r.Asserted)
	if errors.Is(err, errWaits) { // A store of this node may have had what another one has given up now.
		err = assertAll(ctx, all, name, append(slices.Clone(r.Asserted), k.Node))
	}
	if err != nil {
		return err
	}
	return k.hasAsserted(ctx, name)
}

func assertAll(ctx context.Context, all []*member, name string, asserted []string) error {
	var errs []error
	for _, m := range all {
		errs = append(errs, m.assertPool(ctx, name, asserted))
	}
	return errors.Join(errs...)
}

// hasAsserted notes in the pool that this node has asserted what it has.
func (k *Keeper) hasAsserted(ctx context.Context, name string) error {
	for range mostTries {
		p, err := k.API.Pool(ctx, name)
		if err != nil || p.Recovery() == nil {
			return err
		}
		next, missing := p.Recovery().Asserts(k.Node)
		if !missing {
			return nil
		}
		if _, err = k.API.UpdatePool(ctx, p.WithRecovery(&next)); !errors.Is(err, pool.ErrConflict) {
			return err
		}
	}
	return pool.ErrConflict
}

// errWaits says that another node has to assert first.
var errWaits = errors.New("this node waits for another node's part in the recovery")

// assertPool tells the API all that the store has of the pool, and that it has nothing else. asserted are the nodes that have done
// so: what one of these has, it has not given up.
func (m *member) assertPool(ctx context.Context, name string, asserted []string) error {
	done, err := m.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	s, err := m.state(ctx)
	if err != nil || s.ID == "" {
		return ignore(err, lease.ErrNone)
	}
	blocks, err := m.API.Blocks(ctx, name)
	if err != nil {
		return unavailable(err)
	}
	there := map[int64]bool{}
	var errs []error
	for _, b := range blocks {
		there[b.Spec.Index] = true
		if g := s.grant(name, b.Spec.Index); g.Asserts(b, s.me) {
			errs = append(errs, m.assert(ctx, g, s, asserted))
		}
	}
	for _, g := range s.of(name).Grants {
		if !there[g.Index] && len(g.Offsets(pool.Ours)) > 0 {
			errs = append(errs, m.assert(ctx, g, s, asserted))
		}
	}
	return errors.Join(append(errs, m.compareClaims(ctx, m.reassert))...)
}

// assert tells the API what the store has of a block.
func (m *member) assert(ctx context.Context, g pool.Grant, s state, asserted []string) error {
	for range mostTries {
		b, err := m.API.Block(ctx, g.Name())
		there := err == nil
		if errors.Is(err, pool.ErrNotThere) {
			if g.Empty() {
				return nil
			}
			l, err := m.layout(ctx, g.Pool)
			if err != nil {
				return err
			}
			b, _ = pool.NewBlock(l, g.Index, s.me, s.of(g.Pool).Session)
		} else if err != nil {
			return unavailable(err)
		}
		next, others := g.Assert(b, s.me)
		next, _ = next.Obey(s.me, s.of(g.Pool).FenceAfter)
		var made pool.Block
		if there {
			made, err = m.API.UpdateBlock(ctx, next)
		} else {
			made, err = m.API.CreateBlock(ctx, next)
		}
		if errors.Is(err, pool.ErrConflict) || errors.Is(err, pool.ErrExists) || errors.Is(err, pool.ErrNotThere) {
			continue
		}
		if err != nil {
			return unavailable(err)
		}
		m.wrote(nil)
		waits, waiting := m.othersHave(made, s, others, asserted)
		kept, err := g.Asserted(made, s.me, waits)
		if err != nil {
			return err
		}
		return errors.Join(m.put(ctx, s.grant(g.Pool, g.Index), kept), waiting)
	}
	return unavailable(pool.ErrConflict)
}

// othersHave returns those of the addresses that pods of this node have, and that another node may give up: it has not asserted
// so far. What no pod has, the other one may keep.
func (m *member) othersHave(b pool.Block, s state, others []netip.Addr, asserted []string) (waits []netip.Addr, waiting error) {
	for _, a := range others {
		if _, leased := s.of(b.Spec.Pool).Leased[a]; !leased {
			continue
		}
		h, _ := b.HolderOf(b.Offset(a))
		if !slices.Contains(asserted, h.Node) {
			waits = append(waits, a)
			waiting = unavailable(fmt.Errorf("%w: the API has %s of AddressBlock %s as of node %s, and this node has it: %s must assert what it has, or be declared dead", errWaits, a, b.Metadata.Name, h.Node, h.Node))
			continue
		}
		m.Log.Error("another node has an address that this node has, too: the API had lost it. Look at both nodes' pods", "address", a.String(), "block", b.Metadata.Name, "node", h.Node)
	}
	return waits, waiting
}
