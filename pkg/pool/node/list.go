package node

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/pool"
)

// Show returns all pools as the API has them now, in the order of their names.
func (nc *Controller) Show(ctx context.Context) ([]pool.Pool, error) {
	pools, err := nc.API.Pools(ctx)
	slices.SortFunc(pools, func(a, b pool.Pool) int { return cmp.Compare(a.Metadata.Name, b.Metadata.Name) })
	return pools, unavailable(err)
}

// ShowBlocks returns all blocks of a pool as the API has them now, in the order of the index. The error matches pool.ErrUnknown if
// there is no such pool.
func (nc *Controller) ShowBlocks(ctx context.Context, name string) ([]pool.Block, error) {
	if _, err := nc.pool(ctx, name); err != nil {
		return nil, unavailable(err)
	}
	blocks, err := nc.API.Blocks(ctx, name)
	slices.SortFunc(blocks, func(a, b pool.Block) int { return cmp.Compare(a.Spec.Index, b.Spec.Index) })
	return blocks, unavailable(err)
}

// ShowAddress returns what the API says now of an address, for each pool that has it. Nobody has an address whose block does not
// exist.
func (nc *Controller) ShowAddress(ctx context.Context, a netip.Addr) ([]pool.AddressStatus, error) {
	pools, err := nc.Show(ctx)
	if err != nil {
		return nil, err
	}
	var statuses []pool.AddressStatus
	for _, p := range pools {
		l, err := p.Layout()
		if err != nil {
			continue // A pool with a wrong spec has no addresses. What nodes have of it from before, their stores know.
		}
		index, found := l.Index(a)
		if !found {
			continue
		}
		b, err := nc.API.Block(ctx, pool.BlockName(l.Name, index))
		switch {
		case errors.Is(err, pool.ErrNotFound):
			statuses = append(statuses, pool.AddressStatus{Pool: l.Name, Block: pool.BlockName(l.Name, index), Address: a, Excluded: l.Excluded(a)})
		case err != nil:
			return nil, unavailable(err)
		default:
			statuses = append(statuses, b.AddressStatus(a))
		}
	}
	if len(statuses) == 0 {
		return nil, nil
	}
	claims, err := nc.API.ClaimsAt(ctx, a)
	for i := range statuses {
		statuses[i].Claims = slices.DeleteFunc(slices.Clone(claims), func(c pool.Claim) bool { return c.Spec.Pool != statuses[i].Pool })
	}
	return statuses, unavailable(err)
}
