package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// unfence takes this node out of a block from which it was fenced. It waits until no pod here has any of the block's addresses, and until the
// node is not declared dead any more. Then the node takes back the addresses that claims still name for owners and nobody has taken: these owners
// have had no pod since. If there are any, unfence also waits until the node may take something of the pool.
func (sc *storeController) unfence(ctx context.Context, b pool.Block, s state) error {
	_, alreadyFenced := sc.fenced[b.Metadata.Name]
	sc.fenced[b.Metadata.Name] = b.Spec // Nobody else tells when the node can leave.
	if held := heldAddresses(s.poolState(b.Spec.Pool), b.Span()); len(held) > 0 {
		if h, _ := b.Holder(s.me); !alreadyFenced {
			sc.Log.Warn("this node was declared dead, and pods still have addresses that others may have by now", "block", b.Metadata.Name, "addresses", strings.Join(held, " "), "why", h.Fenced)
		}
		return nil
	}
	if err := sc.checkNotDead(ctx); err != nil {
		return err // It would be fenced from all that it takes.
	}
	owned, wait, err := sc.ownedClaims(ctx, b, s)
	if wait || err != nil {
		return err
	}
	if owned, err = sc.reserveOwned(ctx, owned); err != nil {
		return err
	}
	delete(sc.fenced, b.Metadata.Name)
	next := b.Unfence(s.me)
	if next.Unused() && len(owned) == 0 {
		return sc.deleteBlock(ctx, b)
	}
	if err := sc.writeBlock(ctx, next); err != nil || len(owned) == 0 {
		return err
	}
	failpoint.Here("block left")
	return sc.takeOwned(ctx, b.Metadata.Name, owned)
}

// ownedClaims returns the claims of addresses of the block that this node had and nobody has taken. Such a claim can still name the node that
// handed the address over. wait is as that of takeable.
func (sc *storeController) ownedClaims(ctx context.Context, b pool.Block, s state) (owned []pool.Claim, wait bool, err error) {
	claims, err := sc.API.Claims(ctx, b.Spec.Pool)
	if err != nil {
		return nil, false, err
	}
	h, _ := b.Holder(s.me)
	return sc.takeable(ctx, b.Spec.Pool, claimsOf(b, h.ID[0], claims...))
}

// claimsOf returns the claims whose address has the character in the block.
func claimsOf(b pool.Block, char byte, claims ...pool.Claim) []pool.Claim {
	return slices.DeleteFunc(claims, func(c pool.Claim) bool {
		i := b.Offset(c.Spec.Address)
		return i < 0 || b.Spec.Addresses[i] != char
	})
}

// takeable returns the claims whose addresses the pool still gives. wait says that there are some, but the node may take nothing of the pool
// now. A pool that is gone or being deleted gives nothing any more.
func (sc *storeController) takeable(ctx context.Context, name string, claims []pool.Claim) (_ []pool.Claim, wait bool, err error) {
	if len(claims) == 0 {
		return nil, false, nil
	}
	v, err := sc.readView(ctx, name)
	if err != nil || v.Metadata.DeletionTimestamp != "" {
		return nil, false, ignore(err, pool.ErrUnknown)
	}
	claims = slices.DeleteFunc(claims, func(c pool.Claim) bool { return !v.allowsAddress(c.Spec.Address) })
	return claims, len(claims) > 0 && v.closedReason(false) != "", nil
}

// reserveOwned reserves the addresses of the claims for their owners. It returns the claims whose address it could reserve.
func (sc *storeController) reserveOwned(ctx context.Context, owned []pool.Claim) (expected []pool.Claim, err error) {
	for _, c := range owned {
		retain, _ := time.ParseDuration(c.Spec.Retain) // Nothing else is for as long as the owner lives.
		p := lease.Policy{Sticky: true, Retain: lease.Duration(retain), ByOwner: c.Spec.Owner.UID != ""}
		err := sc.store.ReserveIncoming(ctx, c.Spec.Address, c.Spec.Owner, c.Spec.IfName, p, "this node was declared dead, and is back")
		switch {
		case err == nil:
			expected = append(expected, c)
		case !errors.Is(err, lease.ErrTaken):
			return nil, err
		}
	}
	return expected, nil
}

// takeOwned takes those of the claims' addresses that nobody has. If the agent ends before that, endIncoming takes them later.
func (sc *storeController) takeOwned(ctx context.Context, block string, owned []pool.Claim) error {
	b, err := sc.API.Block(ctx, block)
	if err != nil {
		return ignore(err, pool.ErrNotFound)
	}
	s, err := sc.state(ctx)
	if err != nil {
		return err
	}
	var offsets []int
	for _, c := range claimsOf(b, pool.Unassigned, owned...) {
		offsets = append(offsets, b.Offset(c.Spec.Address))
	}
	_, err = sc.take(ctx, b, s, offsets)
	return err
}

// reclaimReserved takes an address that waits here for its owner and that nobody has: the agent ended between unfence and takeOwned. waits says
// that the reservation goes on: the address is here again, or the node can take nothing now.
func (sc *storeController) reclaimReserved(ctx context.Context, claim pool.Claim, index int64) (waits bool, err error) {
	b, err := sc.API.Block(ctx, pool.BlockName(claim.Spec.Pool, index))
	if err != nil {
		return false, ignore(err, pool.ErrNotFound)
	}
	owned, wait, err := sc.takeable(ctx, claim.Spec.Pool, claimsOf(b, pool.Unassigned, claim))
	if wait || err != nil || len(owned) == 0 {
		return wait, err
	}
	return true, sc.takeOwned(ctx, b.Metadata.Name, owned)
}

// heldAddresses returns the addresses of the span that pods have here.
func heldAddresses(p lease.PoolState, span pool.Span) (addresses []string) {
	for a, l := range p.Leased {
		if span.Contains(a) && l.State == lease.Held {
			addresses = append(addresses, a.String())
		}
	}
	slices.Sort(addresses)
	return addresses
}
