package keeper

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// leave tells the API that this node knows of its fence. It waits until no pod has any of the addresses. What claims of this node have
// for owners, and nobody has taken, it takes back: these owners have had no pod since.
func (m *member) leave(ctx context.Context, b pool.Block, s state) error {
	h, _ := b.Holder(s.me)
	if held := heldOf(s.of(b.Spec.Pool), b); len(held) > 0 {
		if _, known := m.fenced[b.Metadata.Name]; !known {
			m.Log.Warn("this node was declared dead, and pods still have addresses that others may have by now", "block", b.Metadata.Name, "addresses", strings.Join(held, " "), "why", h.Fenced)
		}
		m.fenced[b.Metadata.Name] = b.Spec // Nobody else tells when the pods end.
		return nil
	}
	owned, err := m.ownedBy(ctx, b, s.me)
	if err != nil {
		return err
	}
	delete(m.fenced, b.Metadata.Name)
	next := b.Leave(s.me)
	if next.Unused() && len(owned) == 0 {
		return m.remove(ctx, b)
	}
	if err := m.write(ctx, next); err != nil || len(owned) == 0 {
		return err
	}
	return m.takeOwned(ctx, b.Metadata.Name, owned, s.me)
}

// ownedBy returns the claims of this node of which it had the address in the block, and nobody has taken it. There are none if the
// pool gives nothing now.
func (m *member) ownedBy(ctx context.Context, b pool.Block, me pool.Party) (owned []pool.Claim, err error) {
	claims, err := m.API.ClaimsOf(ctx, m.Node)
	if err != nil {
		return nil, unavailable(err)
	}
	h, _ := b.Holder(me)
	for _, c := range claims {
		if i := b.Offset(c.Spec.Address); i >= 0 && c.Spec.Pool == b.Spec.Pool && c.Spec.Active.Is(me) && b.Spec.Addresses[i] == h.ID[0] {
			owned = append(owned, c)
		}
	}
	if len(owned) == 0 {
		return nil, nil
	}
	v, err := m.view(ctx, b.Spec.Pool)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(owned, func(c pool.Claim) bool { return v.closed != "" || v.layout.Excluded(c.Spec.Address) }), nil
}

// takeOwned takes the addresses of the claims that are nobody's, and reserves them for the owners before.
func (m *member) takeOwned(ctx context.Context, block string, owned []pool.Claim, me pool.Party) error {
	b, err := m.API.Block(ctx, block)
	if err != nil {
		return ignore(err, pool.ErrNotThere)
	}
	var offsets []int
	for _, c := range owned {
		retain, _ := time.ParseDuration(c.Spec.Retain) // Nothing else is for as long as the owner lives.
		p := lease.Policy{Sticky: true, Retain: lease.Duration(retain), ByOwner: c.Spec.Owner.UID != ""}
		err := m.store.Expect(ctx, c.Spec.Address, c.Spec.Owner, c.Spec.IfName, p, "this node was declared dead, and is back")
		switch {
		case err == nil:
			offsets = append(offsets, b.Offset(c.Spec.Address))
		case !errors.Is(err, lease.ErrTaken):
			return err
		}
	}
	next, n := b.Take(me, slices.DeleteFunc(offsets, func(i int) bool { return b.Spec.Addresses[i] != pool.Nobodys }))
	if n == 0 {
		return nil
	}
	return m.write(ctx, next)
}

// heldOf returns the addresses of the block that pods have here.
func heldOf(p lease.PoolState, b pool.Block) (all []string) {
	for a, l := range p.Leased {
		if b.Offset(a) >= 0 && l.State == lease.Held {
			all = append(all, a.String())
		}
	}
	slices.Sort(all)
	return all
}
