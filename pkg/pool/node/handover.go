package node

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// handOverKey is a party that asks on a block, in an epoch of it.
type handOverKey struct {
	block, uid, store string
	epoch             int64
}

// handOverKeyOf returns the key of the request in handedOver. Others who change the block change no key. Only the party itself withdraws its
// request, and its agent can be away. A party that asks once more does so in another epoch.
func handOverKeyOf(b pool.Block, w pool.Want) handOverKey {
	return handOverKey{b.Metadata.Name, b.Metadata.UID, w.Store, w.Epoch}
}

// pruneHandedOver drops the counts of parties that do not ask on the block any more.
func (sc *storeController) pruneHandedOver(b pool.Block) {
	maps.DeleteFunc(sc.handedOver, func(k handOverKey, _ int) bool {
		asks := func(w pool.Want) bool { return w.Count > 0 && handOverKeyOf(b, w) == k }
		return k.block == b.Metadata.Name && !slices.ContainsFunc(b.Spec.Want, asks)
	})
}

// handOver marks the addresses that others ask for on the block and that the store can spare. It returns the store's grant of the block.
func (sc *storeController) handOver(ctx context.Context, b pool.Block, s state, g pool.Grant) (pool.Grant, error) {
	delete(sc.requestedBlocks, b.Metadata.Name)
	sc.pruneHandedOver(b)
	if _, holds := b.Holder(s.me); !holds {
		return g, nil
	}
	for _, w := range b.Spec.Want {
		if w.SameParty(s.me) || b.IsFenced(w.Party) { // A fenced party could not get it, and an owner's address would be nobody's.
			continue
		}
		sc.requestedBlocks[b.Metadata.Name] = b.Spec // Until the next look: what they want may be free then.
		var err error
		if w.Address.IsValid() {
			g, err = sc.handOverOwned(ctx, w, g)
		} else {
			g, err = sc.handOverFree(ctx, b, w, g)
		}
		if err != nil {
			return g, err
		}
	}
	return g, nil
}

// handOverFree marks free addresses of this block, and hands over those of other blocks if these are not enough. It keeps what ADDs of
// this node wait for.
func (sc *storeController) handOverFree(ctx context.Context, b pool.Block, w pool.Want, g pool.Grant) (pool.Grant, error) {
	s, err := sc.state(ctx)
	if err != nil {
		return g, err
	}
	p := s.poolState(b.Spec.Pool)
	limit := min(w.Count, freeCount(p)-sc.waitingCount(p.Name))
	if limit <= 0 {
		return g, nil
	}
	before := len(g.Offsets(string(pool.Marked)))
	if g, err = sc.store.MarkFree(ctx, p.Name, b.Spec.Index, min(limit, p.Free(g))); err != nil {
		return g, err
	}
	key := handOverKeyOf(b, w)
	limit = min(limit, w.Count-sc.handedOver[key]) - (len(g.Offsets(string(pool.Marked))) - before)
	for _, grant := range p.Grants {
		if limit > 0 && grant.Index != b.Spec.Index && p.Free(grant) > 0 {
			n, err := sc.handOverFrom(ctx, grant, min(limit, p.Free(grant)), w.Party)
			if err != nil {
				return g, err
			}
			limit -= n
			sc.handedOver[key] += n
		}
	}
	return g, nil
}

// handOverFrom gives free addresses of the block to another party. It returns how many.
func (sc *storeController) handOverFrom(ctx context.Context, g pool.Grant, limit int, recipient pool.Party) (int, error) {
	before := len(g.Offsets(string(pool.Marked)))
	g, err := sc.store.MarkFree(ctx, g.Pool, g.Index, limit)
	marked := g.Offsets(string(pool.Marked))
	if err != nil || len(marked) == before {
		return 0, err
	}
	b, err := sc.API.Block(ctx, g.Name())
	if errors.Is(err, pool.ErrNotFound) {
		return 0, sc.adoptDeletion(ctx, g.Pool, g.Index)
	}
	if err != nil {
		return 0, err
	}
	s, _, err := sc.adopt(ctx, b)
	if err != nil {
		return 0, err
	}
	if err = sc.writeBlock(ctx, b.HandOver(s.me, marked, recipient)); err != nil {
		return 0, pool.IgnoreChanged(err) // The next reconcile gives back what is marked.
	}
	return len(marked), nil
}

// handOverOwned marks the address that an owner's next pod needs on another node, if no pod of this node has it.
func (sc *storeController) handOverOwned(ctx context.Context, w pool.Want, g pool.Grant) (pool.Grant, error) {
	if !g.MayGive(w.Address) {
		return g, nil
	}
	s, err := sc.state(ctx)
	if err != nil {
		return g, err
	}
	var o attachment.Owner
	if l, leased := s.poolState(g.Pool).Leased[w.Address]; leased {
		if l.ClaimOf(g.Pool).ClaimName() != w.Claim {
			return g, sc.dropClaim(ctx, g.Pool, w, s.me)
		}
		if l.State == lease.Held {
			return g, sc.acceptMigration(ctx, w, l, s.me)
		}
		o = l.Owner
	}
	marked, err := sc.store.MarkAddress(ctx, g.Pool, w.Address, o)
	if errors.Is(err, lease.ErrHolderChanged) || errors.Is(err, lease.ErrTaken) {
		return g, nil // A pod of this node has it. Its DEL comes first.
	}
	return marked, err
}

// waitingCount is how many ADDs of this node wait for an address of the pool.
func (sc *storeController) waitingCount(name string) int {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return sc.waiting[name]
}
