package node

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/pool"
)

// maxRequests is how many nodes are asked at a time.
const maxRequests = 2

// reclaimFrom takes single addresses that nobody has, as many as the reserve lacks. If these are less than ADDs need, it takes those of fenced nodes,
// and asks other nodes for the rest.
func (sc *storeController) reclaimFrom(ctx context.Context, blocks []pool.Block, v view, reserve, need int) (err error) {
	if blocks == nil {
		if blocks, err = sc.API.Blocks(ctx, v.layout.Name); err != nil {
			return err
		}
	}
	s, err := sc.state(ctx)
	if err != nil {
		return err
	}
	blocks = slices.DeleteFunc(slices.Clone(blocks), func(b pool.Block) bool { return b.Check() != nil || !v.layout.HasBlock(b) })
	lacks, err := sc.takeSingle(ctx, blocks, s, reserve, v, pool.Block.FreeOffsets)
	if need -= reserve - lacks; err != nil || need <= 0 {
		return err
	}
	if need, err = sc.takeFenced(ctx, blocks, s, need, v); err != nil || need <= 0 {
		return err
	}
	for n := range maxRequests {
		if err == nil {
			err = sc.requestFromNext(ctx, blocks, s.me, need, n == 0)
		}
	}
	return err
}

// takeSingle takes addresses of the blocks at those offsets. It takes none that the pool excludes by now, or that another pool has. It returns
// how many are still needed. A block of which the API refuses some does not keep it from the others.
func (sc *storeController) takeSingle(ctx context.Context, blocks []pool.Block, s state, need int, v view, offsets func(pool.Block) []int) (int, error) {
	for _, b := range blocks {
		if need <= 0 {
			break
		}
		candidates := slices.DeleteFunc(offsets(b), func(i int) bool { return !v.allowsAddress(b.Address(i)) })
		n, err := sc.take(ctx, b, s, candidates[:min(need, len(candidates))])
		if need -= n; err != nil && !errors.Is(err, pool.ErrRefused) {
			return need, err
		}
		operation := "take addresses of AddressBlock " + b.Metadata.Name
		sc.logOnce(operation+" "+sc.network, operation, err)
	}
	return need, nil
}

// take takes those of the addresses that are nobody's or a fenced node's. It returns how many the store has got: none if somebody changes
// the block at the same time.
func (sc *storeController) take(ctx context.Context, b pool.Block, s state, offsets []int) (int, error) {
	next, n := b.Take(s.me, offsets)
	if n == 0 {
		return 0, nil
	}
	if err := sc.write(ctx, next); err != nil {
		return 0, pool.IgnoreChanged(err)
	}
	return n, nil
}

// takeFenced takes addresses of fenced nodes. Those that owners have stay for the owners.
func (sc *storeController) takeFenced(ctx context.Context, blocks []pool.Block, s state, need int, v view) (int, error) {
	if !slices.ContainsFunc(blocks, func(b pool.Block) bool { return len(b.FencedOffsets()) > 0 }) {
		return need, nil
	}
	claims, err := sc.API.Claims(ctx, v.layout.Name)
	if err != nil {
		return need, err
	}
	owned := map[netip.Addr]bool{}
	for _, c := range claims {
		owned[c.Status.Address] = true
	}
	return sc.takeSingle(ctx, blocks, s, need, v, func(b pool.Block) []int {
		return slices.DeleteFunc(b.FencedOffsets(), func(i int) bool { return owned[b.Address(i)] })
	})
}

// requestFromNext asks one more node for addresses, of those that were not asked: the one that has the most, or any. One that has few can have free ones
// while pods use all that others have.
func (sc *storeController) requestFromNext(ctx context.Context, blocks []pool.Block, me pool.Party, need int, largest bool) error {
	counts, blockOf, asked := map[pool.PartyKey]int{}, map[pool.PartyKey]pool.Block{}, map[pool.PartyKey]bool{}
	for _, b := range blocks {
		before, found := sc.asks[askKey{block: b.Metadata.Name}]
		for _, h := range b.Status.Holders {
			if found && sc.clock().Sub(before.askedAt) < pool.AgentLimit {
				asked[h.Key()] = true
			}
			if n := strings.Count(b.Status.Addresses, h.ID); n > 0 && !h.SameParty(me) && h.Fenced == "" && !b.IsFenced(me) {
				counts[h.Key()] += n
				blockOf[h.Key()] = b
			}
		}
	}
	var best pool.PartyKey
	for k, n := range counts { // In any order.
		if !asked[k] && (best.Store == "" || largest && n > counts[best]) {
			best = k
		}
	}
	if best.Store == "" {
		return nil
	}
	return sc.request(ctx, blockOf[best], pool.Want{Party: me, Count: need}, attachment.Owner{})
}
