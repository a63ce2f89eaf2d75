package node

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
func (nc *Controller) recoverPool(ctx context.Context, name string, r pool.Recovery) error {
	if _, missing := r.WithAsserted(nc.Node); !missing {
		return nil
	}
	stores, err := nc.allStores()
	if err != nil {
		return err
	}
	err = assertAll(ctx, stores, name, r)
	if errors.Is(err, errAwaitsNode) { // A store of this node may have had what another one has given up now.
		r.Asserted = append(slices.Clone(r.Asserted), nc.Node)
		err = assertAll(ctx, stores, name, r)
	}
	if err != nil {
		return err
	}
	return nc.updatePool(ctx, name, nc.API.UpdatePoolStatus, func(p pool.Pool) (pool.Pool, bool) {
		current := p.Status.Recovery
		if current == nil {
			return p, false
		}
		next, missing := current.WithAsserted(nc.Node)
		return p.WithRecovery(&next), missing
	})
}

// assertAll asserts what the stores have.
func assertAll(ctx context.Context, stores []*storeController, name string, r pool.Recovery) (err error) {
	for _, sc := range stores {
		err = errors.Join(err, sc.withTurn(ctx, func(ctx context.Context) error {
			s, err := sc.state(ctx)
			if err != nil || s.ID == "" || !slices.ContainsFunc(s.Pools, func(p lease.PoolState) bool { return p.Name == name }) {
				return err
			}
			return sc.assertPool(ctx, name, r, s)
		}))
	}
	return err
}

// errAwaitsNode says that another node has to assert first.
var errAwaitsNode = errors.New("this node waits for another node's part in the recovery")

// assertPool tells the API all that the store has of the pool, and that it has nothing else. An address that the API has for a node that
// has asserted, that node keeps.
func (sc *storeController) assertPool(ctx context.Context, name string, r pool.Recovery, s state) error {
	blocks, err := sc.API.Blocks(ctx, name)
	if err != nil {
		return err
	}
	present := map[int64]bool{}
	var errs []error
	for _, b := range blocks {
		present[b.Spec.Index] = true
		if g := s.grant(name, b.Spec.Index); g.NeedsAssert(b, s.me) || b.Check() == nil && len(sc.unassertedHeld(b, s)) > 0 {
			errs = append(errs, sc.assertBlock(ctx, g, s, r.Asserted))
		}
	}
	for _, g := range s.poolState(name).Grants {
		if !present[g.Index] && (g.Granted() > 0 || len(heldInGrant(g, s)) > 0) {
			errs = append(errs, sc.assertBlock(ctx, g, s, r.Asserted))
		}
	}
	claims, err := sc.API.ClaimsOf(ctx, sc.Node)
	if err == nil {
		err = sc.reconcileClaims(ctx, claims, true)
	}
	return errors.Join(append(errs, err)...)
}

// dropForeignGrant drops what the store has of a block of an earlier pool of the same name: a person has removed that pool, with all blocks.
func (sc *storeController) dropForeignGrant(ctx context.Context, g pool.Grant, s state) error {
	held := joined(heldInGrant(g, s))
	sc.Log.Error("this node had addresses of an earlier pool of this name, and the pool has others there: delete the pods that have any", "pool", g.Pool, "block", g.Name(), "addresses", g.Span().String(), "pods", held)
	emptied, _ := g.BlockDeleted()
	return sc.storeGrant(ctx, g, emptied)
}

// assertBlock tells the API what the store has of a block. The store can have it of an earlier pool of the same name.
func (sc *storeController) assertBlock(ctx context.Context, g pool.Grant, s state, asserted []string) error {
	l, err := sc.layout(ctx, g.Pool)
	if err != nil {
		return err
	}
	switch span, ok := l.Block(g.Index); {
	case g.Empty(), ok && span == g.Span():
		return retry("AddressBlock "+g.Name(), func() error { return sc.tryAssert(ctx, l, g, s, asserted) })
	case g.PoolUID != "" && g.PoolUID != l.UID:
		return sc.dropForeignGrant(ctx, g, s)
	}
	return fmt.Errorf("AddressBlock %s: this node has %s of it, and the pool does not have them there by now: write its ranges as they were", g.Name(), g.Span())
}

// tryAssert makes one try. The error matches one of package pool's if the block must be read again.
func (sc *storeController) tryAssert(ctx context.Context, l pool.Layout, g pool.Grant, s state, asserted []string) error {
	b, err := sc.API.Block(ctx, g.Name())
	write := sc.API.UpdateBlock
	switch {
	case errors.Is(err, pool.ErrNotFound):
		write = sc.API.CreateBlock
		without := l
		without.Exclude, without.Gateway = nil, netip.Addr{} // The assertion is of what it has, also if the pool excludes that by now.
		if b, _ = pool.NewBlock(without, g.Index, s.me, s.Boot); g.Empty() && len(sc.unassertedHeld(b, s)) == 0 {
			return nil
		}
	case err != nil:
		return err
	case b.Check() != nil || !g.Empty() && g.Span() != b.Span():
		return fmt.Errorf("AddressBlock %s has the addresses %s, and this node has %s of it: delete it if no pod has any of them", g.Name(), b.Span(), g.Span())
	}
	if free := sc.unassertedHeld(b, s); len(free) > 0 {
		return unassertedError(b, s, free)
	}
	next, conflicts := g.Assert(b, s.me)
	stored, err := write(ctx, next)
	if err != nil {
		return err
	}
	waits, waiting := sc.heldConflicts(stored, s, conflicts, asserted)
	kept, err := g.AdoptAsserted(stored, s.me, waits)
	if err != nil {
		return err
	}
	return errors.Join(sc.storeGrant(ctx, s.grant(g.Pool, g.Index), kept), waiting)
}

// unassertedHeld returns the addresses of the block that pods have here and that this node cannot assert. A node that is fenced there cannot
// assert any. A node that was fenced has lost them, also if the API has forgotten that. The recovery goes on until these pods have ended, or
// until another node asserts the addresses: after the recovery, anybody can take an address that nobody has.
func (sc *storeController) unassertedHeld(b pool.Block, s state) []netip.Addr {
	return slices.DeleteFunc(heldAddresses(s.poolState(b.Spec.Pool), b.Span()), func(a netip.Addr) bool {
		h, held := b.HolderOf(b.Offset(a))
		if b.IsFenced(s.me) {
			return held
		}
		return held && !h.SameParty(s.me) || s.mayGive(b.Spec.Pool, a)
	})
}

// unassertedError says why the recovery goes on although this node has asserted all that it can.
func unassertedError(b pool.Block, s state, free []netip.Addr) error {
	reason := "the API has forgotten that this node was declared dead and has lost"
	if b.IsFenced(s.me) {
		reason = "the API has this node as declared dead there, as it was before, and has as nobody's"
	}
	return fmt.Errorf("AddressBlock %s: %s %s: delete the pods here that have them", b.Metadata.Name, reason, joined(free))
}

// heldInGrant returns the addresses of the grant's block that pods have here.
func heldInGrant(g pool.Grant, s state) []netip.Addr {
	return heldAddresses(s.poolState(g.Pool), g.Span())
}

// heldConflicts returns those of the addresses that pods of this node have and that another node may still give up: it has not asserted
// yet. The other node may keep the addresses that no pod here has.
func (sc *storeController) heldConflicts(b pool.Block, s state, conflicts []netip.Addr, asserted []string) (waits []netip.Addr, waiting error) {
	for _, a := range conflicts {
		if _, leased := s.poolState(b.Spec.Pool).Leased[a]; !leased {
			continue
		}
		h, _ := b.HolderOf(b.Offset(a))
		if !slices.Contains(asserted, h.Node) {
			waits = append(waits, a)
			waiting = fmt.Errorf("%w: the API has %s of AddressBlock %s as of node %s, and this node has it: %s must assert what it has, or be declared dead", errAwaitsNode, a, b.Metadata.Name, h.Node, h.Node)
			continue
		}
		sc.Log.Error("another node has an address that this node has, too: the API had lost it. Look at both nodes' pods", "address", a.String(), "block", b.Metadata.Name, "node", h.Node)
	}
	return waits, waiting
}
