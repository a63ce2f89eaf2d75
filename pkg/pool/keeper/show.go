package keeper

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/pool"
)

// Show returns all pools as the API has them now, in the order of their names.
func (k *Keeper) Show(ctx context.Context) ([]pool.Pool, error) {
	all, err := k.API.Pools(ctx)
	if err != nil {
		return nil, unavailable(err)
	}
	slices.SortFunc(all, func(a, b pool.Pool) int { return cmp.Compare(a.Metadata.Name, b.Metadata.Name) })
	return all, nil
}

// ShowBlocks returns all blocks of a pool as the API has them now, in the order of the index. The error matches pool.ErrUnknown if
// there is no such pool.
func (k *Keeper) ShowBlocks(ctx context.Context, name string) ([]pool.Block, error) {
	_, err := k.API.Pool(ctx, name)
	switch {
	case errors.Is(err, pool.ErrNotThere):
		return nil, unknown(name)
	case err != nil:
		return nil, unavailable(err)
	}
	all, err := k.API.Blocks(ctx, name)
	if err != nil {
		return nil, unavailable(err)
	}
	slices.SortFunc(all, func(a, b pool.Block) int { return cmp.Compare(a.Spec.Index, b.Spec.Index) })
	return all, nil
}

// ShowAddress returns what the API says now of an address, for each pool that has it. Nobody has an address whose block does not
// exist.
func (k *Keeper) ShowAddress(ctx context.Context, a netip.Addr) ([]pool.Standing, error) {
	pools, err := k.Show(ctx)
	if err != nil {
		return nil, err
	}
	var all []pool.Standing
	for _, p := range pools {
		l, err := p.Layout()
		if err != nil {
			continue // A pool with a wrong spec has no addresses. What nodes have of it from before, their stores know.
		}
		index, is := l.Index(a)
		if !is {
			continue
		}
		b, err := k.API.Block(ctx, pool.BlockName(l.Name, index))
		switch {
		case errors.Is(err, pool.ErrNotThere):
			all = append(all, pool.Standing{Pool: l.Name, Block: pool.BlockName(l.Name, index), Address: a, Never: l.Excluded(a)})
		case err != nil:
			return nil, unavailable(err)
		default:
			all = append(all, b.Standing(a))
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	claims, err := k.API.ClaimsAt(ctx, a)
	if err != nil {
		return nil, unavailable(err)
	}
	for i := range all {
		all[i].Claims = slices.DeleteFunc(slices.Clone(claims), func(c pool.Claim) bool { return c.Spec.Pool != all[i].Pool })
	}
	return all, nil
}
