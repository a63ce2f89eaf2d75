package keeper

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// Claim implements pool.Agent.
func (k *Keeper) Claim(ctx context.Context, c pool.Claimed) error {
	ctx, cancel := context.WithTimeout(ctx, pool.Limit)
	defer cancel()
	m, err := k.member(c.Network)
	if err != nil {
		return err
	}
	s, err := m.state(ctx)
	if err != nil {
		return unavailable(err)
	}
	return m.claim(ctx, c, s.me)
}

// claim makes the claim say what the owner has here, and tries again if somebody else changes it meanwhile.
func (m *member) claim(ctx context.Context, c pool.Claimed, me pool.Party) (err error) {
	for range mostTries {
		if err = m.tryClaim(ctx, c, me); !errors.Is(err, pool.ErrConflict) && !errors.Is(err, pool.ErrExists) && !errors.Is(err, pool.ErrNotThere) {
			break
		}
	}
	if err != nil {
		return unavailable(err)
	}
	return nil
}

// tryClaim makes the claim, or changes it from where the owner's pod was before. The policies let a node change the address and the
// time of a claim of its own only, so a claim that comes from another node takes two changes.
func (m *member) tryClaim(ctx context.Context, c pool.Claimed, me pool.Party) error {
	name := pool.ClaimName(c.Pool, c.IfName, c.Owner)
	want := pool.ClaimSpec{Pool: c.Pool, IfName: c.IfName, Owner: c.Owner, Address: c.Address, Epoch: 1, Active: pool.Place{Party: me, PodUID: c.Pod.UID}}
	if c.Retain > 0 {
		want.Retain = c.Retain.String()
	}
	now, err := m.API.Claim(ctx, name)
	if errors.Is(err, pool.ErrNotThere) {
		_, err = m.API.CreateClaim(ctx, pool.Claim{Metadata: pool.Meta{Name: name}, Spec: want})
		m.wrote(err)
		return err
	}
	if err == nil && !now.Spec.Active.Is(me) {
		now.Spec.Epoch, now.Spec.Active, now.Spec.Target, now.Spec.Accepted = now.Spec.Epoch+1, want.Active, nil, ""
		now, err = m.API.UpdateClaim(ctx, now)
		m.wrote(err)
	}
	if err != nil {
		return err
	}
	if now.Spec.Address == want.Address && now.Spec.Retain == want.Retain && now.Spec.Active.PodUID == want.Active.PodUID {
		return nil
	}
	now.Spec.Address, now.Spec.Retain, now.Spec.Active.PodUID = want.Address, want.Retain, want.Active.PodUID
	_, err = m.API.UpdateClaim(ctx, now)
	m.wrote(err)
	return err
}

// isKept says whether the API has a claim of the lease.
func isKept(l lease.Lease) bool {
	return l.Newest().Policy.KeptByAPI() && l.Owner.Name != "" && (l.State == lease.Held || l.State == lease.Reserved)
}

// claimAll claims what owners have here and the API does not know of: a machine that has come from another node, and an ADD that
// was killed.
func (m *member) claimAll(ctx context.Context, s state) error {
	var errs []error
	for _, p := range s.Pools {
		for a, l := range p.Leased {
			if l.Claimed || !isKept(l) || !m.has(s, p.Name, a) || s.Now.Sub(l.Newest().Since) < pool.Limit {
				continue // An ADD that goes on claims it itself.
			}
			errs = append(errs, m.claimLate(ctx, p.Name, l, s.me))
		}
	}
	return errors.Join(errs...)
}

// claimLate claims what no ADD has claimed. If the owner has another address on another node meanwhile, this one was for a pod that
// has never started: nobody would ever ask for it.
func (m *member) claimLate(ctx context.Context, name string, l lease.Lease, me pool.Party) error {
	c, err := m.API.Claim(ctx, pool.ClaimName(name, l.Newest().IfName, l.Owner))
	switch {
	case ignore(err, pool.ErrNotThere) != nil:
		return unavailable(err)
	case err == nil && c.Spec.Address != l.Address && !c.Spec.Active.Is(me):
		return m.endReservation(ctx, l, c)
	}
	if err := m.claim(ctx, l.ClaimOf(name), me); err != nil {
		return err
	}
	return m.store.MarkClaimed(ctx, l.Address, l.Owner)
}

// endReservation ends the reservation of an address whose owner has the claim's instead.
func (m *member) endReservation(ctx context.Context, l lease.Lease, c pool.Claim) error {
	if l.State != lease.Reserved || l.ByHand {
		return nil
	}
	why := fmt.Sprintf("the owner has %s instead, on node %s", c.Spec.Address, c.Spec.Active.Node)
	return ignore(m.store.EndReservation(ctx, l, why), lease.ErrNone, lease.ErrHolder)
}

// checkClaims compares the claims of this node with its leases. It deletes claims whose owners have no lease here any more: their
// time is over, or a person has released the address. It makes claims again that somebody has deleted.
func (m *member) checkClaims(ctx context.Context) error { return m.compareClaims(ctx, m.reclaim) }

// compareClaims calls differs for each lease of which the claims of this node do not tell.
func (m *member) compareClaims(ctx context.Context, differs func(context.Context, string, lease.Lease, pool.Party) error) error {
	s, err := m.state(ctx)
	if err != nil || s.ID == "" {
		return err
	}
	claims, err := m.API.ClaimsOf(ctx, m.Node)
	if err != nil {
		return unavailable(err)
	}
	if s, err = m.state(ctx); err != nil { // An ADD gets its address before it makes the claim. So each claim in the list has its lease by now.
		return err
	}
	is := map[string]netip.Addr{}
	for _, c := range claims {
		if c.Spec.Active.Is(s.me) {
			is[c.Metadata.Name] = c.Spec.Address
		}
	}
	errs := []error{m.dropClaims(ctx, s, claims)}
	for _, p := range s.Pools {
		for a, l := range p.Leased {
			if l.Claimed && isKept(l) && m.has(s, p.Name, a) && is[pool.ClaimName(p.Name, l.Newest().IfName, l.Owner)] != a {
				errs = append(errs, differs(ctx, p.Name, l, s.me))
			}
		}
	}
	return errors.Join(errs...)
}

// dropClaims deletes those of the claims whose owners have no lease here any more.
func (m *member) dropClaims(ctx context.Context, s state, claims []pool.Claim) error {
	var errs []error
	for _, c := range claims {
		if !c.Spec.Active.Is(s.me) {
			continue
		}
		l, leased := s.of(c.Spec.Pool).Leased[c.Spec.Address]
		if leased && pool.ClaimName(c.Spec.Pool, l.Newest().IfName, l.Owner) == c.Metadata.Name {
			continue
		}
		if !m.has(s, c.Spec.Pool, c.Spec.Address) {
			if nobodys, err := m.isNobodys(ctx, c); err != nil || !nobodys {
				errs = append(errs, err)
				continue
			}
		}
		if err := ignore(m.API.DeleteClaim(ctx, c), pool.ErrNotThere, pool.ErrConflict); err != nil {
			errs = append(errs, unavailable(err))
		}
	}
	return errors.Join(errs...)
}

// isNobodys says whether nobody has the address of the claim: the owner's time was over, and this node gave the address back.
func (m *member) isNobodys(ctx context.Context, c pool.Claim) (bool, error) {
	l, err := m.layout(ctx, c.Spec.Pool)
	if err != nil {
		return false, err
	}
	index, is := l.Index(c.Spec.Address)
	if !is {
		return false, nil
	}
	b, err := m.API.Block(ctx, pool.BlockName(c.Spec.Pool, index))
	if errors.Is(err, pool.ErrNotThere) {
		return true, nil
	}
	if err != nil {
		return false, unavailable(err)
	}
	i := b.Offset(c.Spec.Address)
	return i >= 0 && b.Spec.Addresses[i] == pool.Nobodys, nil
}

// reassert is for an API that has lost something. The lease is newer than a claim with another address.
func (m *member) reassert(ctx context.Context, name string, l lease.Lease, me pool.Party) error {
	c, err := m.API.Claim(ctx, pool.ClaimName(name, l.Newest().IfName, l.Owner))
	if err == nil && c.Spec.Address == l.Address {
		return nil // The block says who has it.
	}
	if ignore(err, pool.ErrNotThere) != nil {
		return unavailable(err)
	}
	return m.claim(ctx, l.ClaimOf(name), me)
}

// reclaim is for an owner's address of which the claims of this node do not tell. If the claim is gone, it is made again. If the
// owner has another address by now, nobody would ever ask for this one.
func (m *member) reclaim(ctx context.Context, name string, l lease.Lease, me pool.Party) error {
	c, err := m.API.Claim(ctx, pool.ClaimName(name, l.Newest().IfName, l.Owner))
	switch {
	case errors.Is(err, pool.ErrNotThere), err == nil && c.Spec.Address == l.Address && l.State == lease.Held:
		return m.claim(ctx, l.ClaimOf(name), me)
	case err != nil:
		return unavailable(err)
	case c.Spec.Address == l.Address:
		return nil
	}
	return m.endReservation(ctx, l, c)
}

// dropClaim deletes a claim of an address that the owner does not have any more: another owner has it here. The claim can be one of
// a node that was declared dead. Only its own node may delete a claim, so this node makes it its own first.
func (m *member) dropClaim(ctx context.Context, name string, w pool.Want, me pool.Party) error {
	if !pool.IsClaimName(name, w.Claim) {
		return nil
	}
	c, err := m.API.Claim(ctx, w.Claim)
	if err == nil && c.Spec.Address == w.Address && !c.Spec.Active.Is(me) {
		c.Spec.Epoch, c.Spec.Active, c.Spec.Target, c.Spec.Accepted = c.Spec.Epoch+1, pool.Place{Party: me}, nil, ""
		c, err = m.API.UpdateClaim(ctx, c)
	}
	if err != nil || c.Spec.Address != w.Address {
		return ignore(err, pool.ErrNotThere, pool.ErrConflict)
	}
	return ignore(m.API.DeleteClaim(ctx, c), pool.ErrNotThere, pool.ErrConflict)
}
