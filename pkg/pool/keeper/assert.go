package keeper

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

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
		if g := s.grant(name, b.Spec.Index); g.Asserts(b, s.me) || b.Check() == nil && len(m.freeOf(b, s)) > 0 {
			errs = append(errs, m.assert(ctx, g, s, asserted))
		}
	}
	for _, g := range s.of(name).Grants {
		if !there[g.Index] && (len(g.Offsets(pool.Ours)) > 0 || len(heldIn(g, s)) > 0) {
			errs = append(errs, m.assert(ctx, g, s, asserted))
		}
	}
	return errors.Join(append(errs, m.compareClaims(ctx, m.reassert))...)
}

// forget drops what the store has of a block of an earlier pool of the same name: a person has removed that pool, with all blocks.
func (m *member) forget(ctx context.Context, g pool.Grant, s state) error {
	held := strings.Join(heldIn(g, s), " ")
	m.Log.Error("this node had addresses of an earlier pool of this name, and the pool has others there: delete the pods that have any", "pool", g.Pool, "block", g.Name(), "addresses", g.Span().String(), "pods", held)
	gone, _ := g.Gone()
	return m.put(ctx, g, gone)
}

// ofAnotherPool says whether the store has the block of an earlier pool of the same name. It fails if the pool is the same, and no
// longer has these addresses there.
func ofAnotherPool(g pool.Grant, l pool.Layout) (bool, error) {
	switch span, is := l.Block(g.Index); {
	case g.Empty(), is && span == g.Span():
		return false, nil
	case g.PoolUID != "" && g.PoolUID != l.UID:
		return true, nil
	}
	return false, unavailable(fmt.Errorf("AddressBlock %s: this node has %s of it, and the pool does not have them there by now: write its ranges as they were", g.Name(), g.Span()))
}

// assert tells the API what the store has of a block.
func (m *member) assert(ctx context.Context, g pool.Grant, s state, asserted []string) error {
	l, err := m.layout(ctx, g.Pool)
	if err != nil {
		return err
	}
	if another, err := ofAnotherPool(g, l); err != nil {
		return err
	} else if another {
		return m.forget(ctx, g, s)
	}
	for range mostTries {
		b, err := m.API.Block(ctx, g.Name())
		there := err == nil
		switch {
		case errors.Is(err, pool.ErrNotThere):
			if b, _ = pool.NewBlock(l, g.Index, s.me, s.of(g.Pool).Session); g.Empty() && len(m.freeOf(b, s)) == 0 {
				return nil
			}
		case err != nil:
			return unavailable(err)
		case b.Check() != nil || !g.Empty() && g.Span() != b.Span():
			return unavailable(fmt.Errorf("AddressBlock %s has the addresses %s, and this node has %s of it: delete it if no pod has any of them", g.Name(), b.Span(), g.Span()))
		}
		if free := m.freeOf(b, s); len(free) > 0 {
			return freed(b, s, free)
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

// freeOf returns the addresses of the block that pods have here, and that would be nobody's when this node has asserted what it has. A
// node that is fenced there cannot take them. One that was fenced has lost them, also if the API has forgotten that. So the recovery must
// go on until the pods have ended, or until another node says that it has the addresses: afterwards anybody can take them.
func (m *member) freeOf(b pool.Block, s state) []string {
	return slices.DeleteFunc(heldOf(s.of(b.Spec.Pool), b), func(text string) bool {
		a := netip.MustParseAddr(text)
		h, has := b.HolderOf(b.Offset(a))
		if b.IsFenced(s.me) {
			return has
		}
		return has && !h.Is(s.me) || m.has(s, b.Spec.Pool, a)
	})
}

// freed says why the recovery goes on although this node has asserted all that it can.
func freed(b pool.Block, s state, free []string) error {
	why := "the API has forgotten that this node was declared dead and has lost"
	if b.IsFenced(s.me) {
		why = "the API has this node as declared dead there, as it was before, and has as nobody's"
	}
	return unavailable(fmt.Errorf("AddressBlock %s: %s %s: delete the pods here that have them", b.Metadata.Name, why, strings.Join(free, " ")))
}

// heldIn returns the addresses that pods have here of the block of which the store has a part.
func heldIn(g pool.Grant, s state) []string {
	return heldOf(s.of(g.Pool), pool.Block{Spec: pool.BlockSpec{First: g.First, Last: g.Last()}})
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
