package keeper

import (
	"cmp"
	"context"
	"errors"
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
	if _, err := k.API.Pool(ctx, name); errors.Is(err, pool.ErrNotThere) {
		return nil, unknown(name)
	}
	all, err := k.API.Blocks(ctx, name)
	if err != nil {
		return nil, unavailable(err)
	}
	slices.SortFunc(all, func(a, b pool.Block) int { return cmp.Compare(a.Spec.Index, b.Spec.Index) })
	return all, nil
}
