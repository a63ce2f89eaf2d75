package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// Claim implements pool.Agent.
func (nc *Controller) Claim(ctx context.Context, c pool.ClaimedAddress) error {
	return nc.serve(ctx, c.Network, pool.AgentLimit, func(ctx context.Context, sc *storeController) error {
		s, err := sc.state(ctx)
		if err != nil {
			return err
		}
		if err := sc.writeClaim(ctx, c, s.me); err != nil {
			return err
		}
		before, err := sc.siblingClaim(ctx, s, c.Acquisition)
		if err != nil || before.Metadata.Name == "" {
			return err
		}
		return sc.dropClaim(ctx, before.Spec.Pool, pool.Want{Claim: before.Metadata.Name, Address: before.Status.Address}, s.me)
	})
}

// claim returns the claim of that name, the zero Claim if there is none.
func (nc *Controller) claim(ctx context.Context, name string) (pool.Claim, error) {
	c, err := nc.API.Claim(ctx, name)
	if err != nil {
		return pool.Claim{}, ignore(err, pool.ErrNotFound)
	}
	return c, nil
}

// writeClaim makes the claim say what the owner has here.
func (sc *storeController) writeClaim(ctx context.Context, c pool.ClaimedAddress, me pool.Party) (err error) {
	return retry("AddressClaim "+c.ClaimName(), func() error { return sc.tryWriteClaim(ctx, c, me) })
}

// tryWriteClaim makes the claim, or changes the one that exists. The policies let a node change the address and the time only in a claim of
// its own, so a claim that comes from another node takes two changes.
func (sc *storeController) tryWriteClaim(ctx context.Context, c pool.ClaimedAddress, me pool.Party) error {
	place, retain := pool.Place{Party: me, PodUID: c.Pod.UID}, ""
	if c.Retain > 0 {
		retain = c.Retain.String()
	}
	current, err := sc.claim(ctx, c.ClaimName())
	switch {
	case err != nil:
		return err
	case current.Metadata.Name == "":
		_, err = sc.API.CreateClaim(ctx, pool.Claim{Metadata: pool.Meta{Name: c.ClaimName()}, Spec: pool.ClaimSpec{
			Pool: c.Pool, IfName: c.IfName, Owner: c.Owner,
		}, Status: pool.ClaimStatus{Address: c.Address, Epoch: 1, Active: place, Retain: retain}})
		return err
	case !current.Status.Active.SameParty(me):
		if current, err = sc.API.UpdateClaim(ctx, current.MovedTo(place)); err != nil {
			return err
		}
	}
	next := current
	next.Status.Address, next.Status.Retain, next.Status.Active.PodUID = c.Address, retain, c.Pod.UID
	if next.Status == current.Status {
		return nil
	}
	_, err = sc.API.UpdateClaim(ctx, next)
	return err
}

// claimMissing claims what owners have here and the API does not know of: a machine that has come from another node, and an ADD that
// was killed.
func (sc *storeController) claimMissing(ctx context.Context, s state) error {
	var errs []error
	for _, p := range s.Pools {
		for a, l := range p.Leased {
			if l.Claimed || !l.IsClaimable() || !s.mayGive(p.Name, a) || s.Time.Sub(l.Newest().Since) < pool.AgentLimit {
				continue // An ADD that goes on claims it itself.
			}
			errs = append(errs, sc.reconcileClaim(ctx, p.Name, l, s, false))
		}
	}
	return errors.Join(errs...)
}

// reconcileClaim writes the claim of a lease that has none: nobody has written it so far, or somebody has deleted it. If the owner's claim names
// another address by now, or the owner has one of another pool of the choice, it ends the reservation: nobody would ever ask for this one.
// recovers is for an API that has lost something: the lease is newer than a claim.
func (sc *storeController) reconcileClaim(ctx context.Context, name string, l lease.Lease, s state, recovers bool) error {
	request := l.ClaimOf(name)
	c, err := sc.claim(ctx, request.ClaimName())
	if err == nil && c.Metadata.Name == "" && !recovers {
		c, err = sc.siblingClaim(ctx, s, request.Acquisition)
	}
	matches := c.Spec.Pool == name && c.Status.Address == l.Address
	switch {
	case err != nil, matches && l.Claimed && (recovers || l.State != lease.Held):
		return err
	case c.Metadata.Name != "" && !matches && !recovers && (l.Claimed || !c.Status.Active.SameParty(s.me)):
		return sc.endReservation(ctx, l, c)
	}
	if err := sc.writeClaim(ctx, request, s.me); err != nil || l.Claimed {
		return err
	}
	return sc.store.MarkClaimed(ctx, l.Address, l.Owner)
}

// endReservation ends the reservation of an address whose owner has the claim's instead.
func (sc *storeController) endReservation(ctx context.Context, l lease.Lease, c pool.Claim) error {
	if l.State != lease.Reserved || l.ByHand {
		return nil
	}
	reason := fmt.Sprintf("the owner has %s instead, on node %s", c.Status.Address, c.Status.Active.Node)
	return ignore(sc.store.End(ctx, l, reason), lease.ErrNotLeased, lease.ErrHolderChanged)
}

// reconcileClaims compares the claims of this node, which were just read, with its leases. It deletes claims whose owners have no lease here any
// more: their time is over, or a person has released the address. It makes claims again that somebody has deleted. recovers is as that of reconcileClaim.
func (sc *storeController) reconcileClaims(ctx context.Context, claims []pool.Claim, recovers bool) error {
	s, err := sc.state(ctx) // An ADD gets its address before it makes the claim. So each claim in the list has its lease by now.
	if err != nil || s.ID == "" {
		return err
	}
	addressOf := map[string]netip.Addr{}
	for _, c := range claims {
		if c.Status.Active.SameParty(s.me) {
			addressOf[c.Metadata.Name] = c.Status.Address
		}
	}
	errs := []error{sc.dropClaims(ctx, s, claims)}
	for _, p := range s.Pools {
		for a, l := range p.Leased {
			if l.Claimed && l.IsClaimable() && s.mayGive(p.Name, a) && addressOf[l.ClaimOf(p.Name).ClaimName()] != a {
				errs = append(errs, sc.reconcileClaim(ctx, p.Name, l, s, recovers))
			}
		}
	}
	return errors.Join(errs...)
}

// dropClaims deletes those of the claims whose owners have no lease here any more.
func (sc *storeController) dropClaims(ctx context.Context, s state, claims []pool.Claim) error {
	var errs []error
	for _, c := range claims {
		if !c.Status.Active.SameParty(s.me) {
			continue
		}
		l, leased := s.poolState(c.Spec.Pool).Leased[c.Status.Address]
		if leased && l.ClaimOf(c.Spec.Pool).ClaimName() == c.Metadata.Name {
			continue
		}
		if !s.mayGive(c.Spec.Pool, c.Status.Address) {
			if nobodys, err := sc.isUnassigned(ctx, c); err != nil || !nobodys {
				errs = append(errs, err)
				continue
			}
		}
		errs = append(errs, pool.IgnoreChanged(sc.API.DeleteClaim(ctx, c)))
	}
	return errors.Join(errs...)
}

// isUnassigned says whether nobody has the address of the claim: the owner's time was over, and this node gave the address back.
func (sc *storeController) isUnassigned(ctx context.Context, c pool.Claim) (bool, error) {
	l, err := sc.layout(ctx, c.Spec.Pool)
	if err != nil {
		return false, err
	}
	index, found := l.Index(c.Status.Address)
	if !found {
		return false, nil
	}
	b, err := sc.API.Block(ctx, pool.BlockName(c.Spec.Pool, index))
	if err != nil {
		return errors.Is(err, pool.ErrNotFound), ignore(err, pool.ErrNotFound)
	}
	i := b.Offset(c.Status.Address)
	return i >= 0 && b.Status.Addresses[i] == pool.Unassigned, nil
}

// dropClaim deletes a claim of an address that the owner does not have any more: another owner has it here. The claim can be one of
// a node that was declared dead. Only its own node may delete a claim, so this node makes it its own first.
func (sc *storeController) dropClaim(ctx context.Context, name string, w pool.Want, me pool.Party) error {
	if !pool.IsClaimName(name, w.Claim) {
		return nil
	}
	c, err := sc.claim(ctx, w.Claim)
	if err == nil && c.Status.Address == w.Address && !c.Status.Active.SameParty(me) {
		c, err = sc.API.UpdateClaim(ctx, c.MovedTo(pool.Place{Party: me}))
	}
	if err != nil || c.Status.Address != w.Address {
		return pool.IgnoreChanged(err)
	}
	return pool.IgnoreChanged(sc.API.DeleteClaim(ctx, c))
}
