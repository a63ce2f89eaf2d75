package pooltest

import (
	"context"
	"errors"

	"github.com/relink-cni/relink/pkg/pool"
)

// cache is what an API has at a moment. It implements controller.Cache.
type cache struct {
	pools  []pool.Pool
	blocks map[string][]pool.Block
	claims map[string][]pool.Claim
	nodes  []pool.Node
}

// Reconcile reads all that the API has, and calls the function for each pool with it: C is controller.Cache. One pool's failure does not stop
// the others.
func Reconcile[C any](ctx context.Context, api pool.API, reconcile func(context.Context, C, string) error) error {
	c := &cache{blocks: map[string][]pool.Block{}, claims: map[string][]pool.Claim{}}
	var err error
	if c.pools, err = api.Pools(ctx); err != nil {
		return err
	}
	if c.nodes, err = api.Nodes(ctx); err != nil {
		return err
	}
	var errs []error
	for _, p := range c.pools {
		name := p.Metadata.Name
		if c.blocks[name], err = api.Blocks(ctx, name); err == nil {
			c.claims[name], err = api.Claims(ctx, name)
		}
		if err != nil {
			return err
		}
		errs = append(errs, reconcile(ctx, any(c).(C), name))
	}
	return errors.Join(errs...)
}

// Pools implements controller.Cache.
func (c *cache) Pools() []pool.Pool { return c.pools }

// Pool implements controller.Cache.
func (c *cache) Pool(name string) (found pool.Pool, overlapping []pool.Pool, _ bool) {
	for _, p := range c.pools {
		if p.Metadata.Name == name {
			return p, p.Overlapping(c.pools), true
		}
	}
	return found, nil, false
}

// Blocks implements controller.Cache.
func (c *cache) Blocks(name string) []pool.Block { return c.blocks[name] }

// Claims implements controller.Cache.
func (c *cache) Claims(name string) []pool.Claim { return c.claims[name] }

// Nodes implements controller.Cache.
func (c *cache) Nodes() []pool.Node { return c.nodes }
