package node

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// A virtual machine migrates from a pod to another one of the same run, on another node. Both pods have the address meanwhile. The
// block goes on saying that it is the source's. These are the steps:
//
//  1. The target's node makes itself the claim's target, and asks for the address on the block.
//  2. The source's node makes the address wait without a time limit when its pod ends. Then it accepts the target in the claim: from now
//     on nobody else gets the address.
//  3. The target's ADD gets the address beside the source. Nobody probes for it or announces it.
//  4. The source's pod ends. Its node hands the address over, as to any next pod of an owner.
//  5. The target's node has the address, and makes the claim its own.
//
// If the target's pod ends first, its node takes back what it has asked for.

// becomeTarget names the pod that is about to start as the target in the owner's claim, if the owner's machine migrates. target is the pod's UID
// then. accepted says that the source's node has accepted it.
func (sc *storeController) becomeTarget(ctx context.Context, a pool.Acquisition, address netip.Addr, me pool.Party) (target string, accepted bool, err error) {
	if len(a.Siblings) == 0 || a.Pod.UID == "" {
		return "", false, nil
	}
	c, err := sc.claim(ctx, a.ClaimName())
	if err != nil || c.Spec.Address != address || c.Spec.Active.SameParty(me) || !slices.Contains(a.Siblings, c.Spec.Active.PodUID) {
		return "", false, err
	}
	place := pool.Place{Party: me, PodUID: a.Pod.UID}
	if c.Spec.Target != nil && *c.Spec.Target == place {
		return place.PodUID, c.Spec.Accepted == place.PodUID, nil
	}
	c.Spec.Target, c.Spec.Accepted = &place, ""
	if _, err = sc.API.UpdateClaim(ctx, c); err != nil {
		return "", false, pool.IgnoreChanged(err) // The next try reads it again.
	}
	return place.PodUID, false, nil
}

// acceptMigration accepts in the claim that the machine of a pod of this node migrates to the party that wants its address. l is the pod's
// lease. A request without a pod is not for a target yet. Then acceptMigration writes the UID of the pod here into the claim, if an ADD that came
// back to this node has not: by this UID the other node knows the machine.
func (sc *storeController) acceptMigration(ctx context.Context, w pool.Want, l lease.Lease, me pool.Party) error {
	c, err := sc.claim(ctx, w.Claim)
	if err != nil || !c.Spec.Active.SameParty(me) || c.Spec.Address != w.Address {
		return err
	}
	uid := l.Newest().Pod.UID
	switch t := c.Spec.Target; {
	case w.PodUID == "" && (uid == "" || c.Spec.Active.PodUID == uid):
		return nil
	case w.PodUID == "":
		c.Spec.Active.PodUID = uid
	case t == nil || !t.SameParty(w.Party) || t.PodUID != w.PodUID || c.Spec.Accepted == t.PodUID:
		return nil
	default:
		if err := sc.store.KeepUntilClaimed(ctx, w.Address, l.Owner); err != nil {
			return err
		}
		c.Spec.Accepted = t.PodUID
	}
	_, err = sc.API.UpdateClaim(ctx, c)
	return pool.IgnoreChanged(err)
}

// reconcileMigrating looks at leases of owners' addresses that this node does not have. While a pod here has such an address, the store goes on
// asking for it. A reservation of one that does not come ends.
func (sc *storeController) reconcileMigrating(ctx context.Context, s state) error {
	var errs []error
	for _, p := range s.Pools {
		for a, l := range p.Leased {
			if l.Owner.Name == "" || s.mayGive(p.Name, a) {
				continue
			}
			switch l.State {
			case lease.Held:
				errs = append(errs, sc.requestMigrating(ctx, p, l, s.me))
			case lease.Reserved:
				errs = append(errs, sc.endIncoming(ctx, p, l, s))
			}
		}
	}
	return errors.Join(errs...)
}

// requestMigrating asks for the address of a machine that has come to this node. If the source's node was declared dead, this node takes the address.
func (sc *storeController) requestMigrating(ctx context.Context, p lease.PoolState, l lease.Lease, me pool.Party) error {
	c := l.ClaimOf(p.Name)
	claim, err := sc.claim(ctx, c.ClaimName())
	if t := claim.Spec.Target; err != nil || claim.Spec.Address != l.Address || t == nil || !t.SameParty(me) || t.PodUID != c.Pod.UID {
		return err
	}
	index, found := p.Layout.Index(l.Address)
	if !found {
		return nil
	}
	_, _, err = sc.obtainAddress(ctx, c.Acquisition, l.Address, index, c.Pod.UID)
	return err
}

// endIncoming ends a reservation of an address that this node does not have, unless the address is about to come. It first withdraws the node's
// request: otherwise the address could still come, and nobody would know here whose it is. If nobody has the address, and the claim still names
// it for the owner, this node takes it.
func (sc *storeController) endIncoming(ctx context.Context, p lease.PoolState, l lease.Lease, s state) error {
	index, found := p.Layout.Index(l.Address)
	if found {
		a := addressRequest{block: pool.BlockName(p.Name, index), want: pool.Want{Party: s.me, Address: l.Address}}
		if _, asked := sc.requested[a.key()]; asked && l.Last.ContainerID == "" {
			return nil // cancelUnneeded forgets it in time.
		}
		if err := sc.cancelRequest(ctx, a); err != nil {
			return ignore(err, pool.ErrConflict)
		}
		delete(sc.requested, a.key())
	}
	c, err := sc.claim(ctx, l.ClaimOf(p.Name).ClaimName())
	if err != nil {
		return err
	}
	if found && c.Spec.Address == l.Address {
		if waits, err := sc.reclaimReserved(ctx, c, index); waits || err != nil {
			return err
		}
	}
	if err := sc.clearTarget(ctx, c, s.me); err != nil {
		return ignore(err, pool.ErrConflict) // The next look goes on here.
	}
	return sc.store.CancelIncoming(ctx, p.Name, l.Address, l.Owner)
}

// clearTarget takes this node out of a claim that was just read, as the target of the machine. The error matches pool.ErrConflict if the claim
// changes at the same time. The caller must read it again then: otherwise the claim would name a target that never comes.
func (sc *storeController) clearTarget(ctx context.Context, c pool.Claim, me pool.Party) error {
	if t := c.Spec.Target; t == nil || !t.SameParty(me) {
		return nil
	}
	c.Spec.Target, c.Spec.Accepted = nil, ""
	_, err := sc.API.UpdateClaim(ctx, c)
	return ignore(err, pool.ErrNotFound)
}

// cancelMigration is clearTarget for the claim of that name.
func (sc *storeController) cancelMigration(ctx context.Context, claim string, me pool.Party) error {
	c, err := sc.claim(ctx, claim)
	if err != nil {
		return err
	}
	return sc.clearTarget(ctx, c, me)
}
