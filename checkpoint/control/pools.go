package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
)

// StatusUnknownPool stands for pool.ErrUnknown, StatusNoPools for ErrNoPools. Any other refusal means that the same request may
// succeed later.
const (
	StatusUnknownPool = 422
	StatusNoPools     = 501
)

// ErrNoPools means that the agent knows of no pools: it has no Kubernetes API, or it is too old.
var ErrNoPools = errors.New("no address pools are known")

var (
	_ pool.Agent    = Client{}
	_ pool.Importer = Client{}
)

// poolPatience is how long the agent may take for an address of a pool.
const poolPatience = pool.AgentLimit + time.Second

// Refill has the agent take addresses of pools. It is pool.Agent's.
func (c Client) Refill(ctx context.Context, d pool.Demand) error {
	return c.requestPools(ctx, "POST", RefillPath, d, nil)
}

// Acquire has the agent bring an owner's address to this node. It is pool.Agent's.
func (c Client) Acquire(ctx context.Context, a pool.Acquisition) (acquired pool.Acquired, err error) {
	err = c.requestPools(ctx, "POST", AcquirePath, a, &acquired)
	return acquired, err
}

// Claim has the agent note which address an owner has. It is pool.Agent's.
func (c Client) Claim(ctx context.Context, claimed pool.ClaimedAddress) error {
	return c.requestPools(ctx, "POST", PoolClaimPath, claimed, nil)
}

// importPatience is how long the agent may take for one Import.
const importPatience = pool.ImportLimit + 5*time.Second

// Import has the agent take over addresses for this node, some at a time. It is pool.Importer's. After an error, the answer has what
// the agent had done before.
func (c Client) Import(ctx context.Context, request pool.Import) (pool.Imported, error) {
	c.Patience = cmp.Or(c.Patience, importPatience)
	result := pool.Imported{Pools: map[netip.Addr]string{}, Refused: map[netip.Addr]string{}}
	for batch := range slices.Chunk(request.Addresses, pool.MaxImported) {
		request.Addresses = batch
		var imported pool.Imported
		if err := c.requestPools(ctx, "POST", PoolImportPath, request, &imported); err != nil {
			return result, err
		}
		maps.Copy(result.Pools, imported.Pools)
		maps.Copy(result.Refused, imported.Refused)
		result.Closed = cmp.Or(result.Closed, imported.Closed)
	}
	return result, nil
}

// showPatience is how long the agent may take to ask the API for all blocks of a pool.
const showPatience = 30 * time.Second

// Pools returns all pools, as the Kubernetes API has them. The error matches pool.ErrUnavailable.
func (c Client) Pools(ctx context.Context) (pools []pool.Pool, err error) {
	c.Patience = cmp.Or(c.Patience, showPatience)
	err = c.requestPools(ctx, "GET", PoolsPath, nil, &pools)
	return pools, err
}

// Blocks returns all blocks of a pool, as the Kubernetes API has them. The error matches pool.ErrUnavailable.
func (c Client) Blocks(ctx context.Context, name string) (blocks []pool.Block, err error) {
	c.Patience = cmp.Or(c.Patience, showPatience)
	err = c.requestPools(ctx, "GET", BlocksPath+"?pool="+url.QueryEscape(name), nil, &blocks)
	return blocks, err
}

// Address returns what the Kubernetes API says of the address, for each pool that has it. The error matches pool.ErrUnavailable,
// and also ErrNoPools if the agent knows of none.
func (c Client) Address(ctx context.Context, a netip.Addr) (standings []pool.AddressStatus, err error) {
	err = c.requestPools(ctx, "GET", AddressPath+"?address="+url.QueryEscape(a.String()), nil, &standings)
	return standings, err
}

// requestPools makes a request, and gives its error the meaning that pool.Agent has for it.
func (c Client) requestPools(ctx context.Context, method, path string, body, response any) error {
	if c.Patience == 0 {
		c.Patience = poolPatience
	}
	err := c.request(ctx, method, path, body, response)
	var refused *refusedError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &refused):
		return fmt.Errorf("%w: %w", pool.ErrUnavailable, err)
	}
	switch refused.status {
	case statusNotFound:
		return fmt.Errorf("%w: %w: this relink-agent is too old", pool.ErrUnavailable, ErrNoPools)
	case StatusNoPools:
		return fmt.Errorf("%w: %w: %s", pool.ErrUnavailable, ErrNoPools, refused.message)
	case StatusUnknownPool:
		return fmt.Errorf("%w: %s", pool.ErrUnknown, refused.message)
	}
	return fmt.Errorf("%w: %s", pool.ErrUnavailable, refused.message)
}
