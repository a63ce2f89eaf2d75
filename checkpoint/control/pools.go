package control

import (
	"cmp"
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/pool"
)

var (
	_ pool.Agent    = Client{}
	_ pool.Importer = Client{}
)

// Refill has the agent take addresses of pools. It is pool.Agent's.
func (c Client) Refill(ctx context.Context, d pool.Demand) error {
	return c.requestPools(ctx, RefillPath, d, nil)
}

// Acquire has the agent bring an owner's address to this node. It is pool.Agent's.
func (c Client) Acquire(ctx context.Context, a pool.Acquisition) (acquired pool.Acquired, err error) {
	err = c.requestPools(ctx, AcquirePath, a, &acquired)
	return acquired, err
}

// Claim has the agent note which address an owner has. It is pool.Agent's.
func (c Client) Claim(ctx context.Context, claimed pool.ClaimedAddress) error {
	return c.requestPools(ctx, PoolClaimPath, claimed, nil)
}

// Import has the agent take over addresses for this node, some at a time. It is pool.Importer's. After an error, the answer has what
// the agent had done before.
func (c Client) Import(ctx context.Context, request pool.Import) (pool.Imported, error) {
	result := pool.Imported{Pools: map[netip.Addr]string{}, Refused: map[netip.Addr]string{}}
	for batch := range slices.Chunk(request.Addresses, pool.MaxImported) {
		request.Addresses = batch
		var imported pool.Imported
		if err := c.requestPools(ctx, PoolImportPath, request, &imported); err != nil {
			return result, err
		}
		maps.Copy(result.Pools, imported.Pools)
		maps.Copy(result.Refused, imported.Refused)
		result.Closed = cmp.Or(result.Closed, imported.Closed)
	}
	return result, nil
}

// requestPools makes a request, and gives its error the meaning that pool.Agent has for it.
func (c Client) requestPools(ctx context.Context, path string, body, response any) error {
	return unavailable(pool.ErrUnavailable, c.request(ctx, path, body, response), pool.ErrUnknown)
}
