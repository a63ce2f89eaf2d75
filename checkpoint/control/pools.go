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

// refilling is how long the agent may take for an address of a pool.
const refilling = pool.Limit + time.Second

// Refill has the agent take addresses of pools. It is pool.Agent's.
func (c Client) Refill(ctx context.Context, d pool.Demand) error {
	return c.aboutPools(ctx, "POST", RefillPath, d, nil)
}

// Acquire has the agent bring an owner's address to this node. It is pool.Agent's.
func (c Client) Acquire(ctx context.Context, a pool.Acquisition) (made pool.Acquired, err error) {
	err = c.aboutPools(ctx, "POST", AcquirePath, a, &made)
	return made, err
}

// Claim has the agent note which address an owner has. It is pool.Agent's.
func (c Client) Claim(ctx context.Context, claimed pool.Claimed) error {
	return c.aboutPools(ctx, "POST", PoolClaimPath, claimed, nil)
}

// importing is how long the agent may take for one Import.
const importing = pool.ImportLimit + 5*time.Second

// Import has the agent take over addresses for this node, some at a time. It is pool.Importer's. After an error, the answer has what
// the agent had done before.
func (c Client) Import(ctx context.Context, in pool.Import) (pool.Imported, error) {
	c.Patience = cmp.Or(c.Patience, importing)
	all := pool.Imported{Pools: map[netip.Addr]string{}, Refused: map[netip.Addr]string{}}
	for some := range slices.Chunk(in.Addresses, pool.MostImported) {
		in.Addresses = some
		var made pool.Imported
		if err := c.aboutPools(ctx, "POST", PoolImportPath, in, &made); err != nil {
			return all, err
		}
		maps.Copy(all.Pools, made.Pools)
		maps.Copy(all.Refused, made.Refused)
		all.Closed = cmp.Or(all.Closed, made.Closed)
	}
	return all, nil
}

// showing is how long the agent may take to ask the API for all blocks of a pool.
const showing = 30 * time.Second

// Pools returns all pools, as the Kubernetes API has them. The error matches pool.ErrUnavailable.
func (c Client) Pools(ctx context.Context) (all []pool.Pool, err error) {
	c.Patience = cmp.Or(c.Patience, showing)
	err = c.aboutPools(ctx, "GET", PoolsPath, nil, &all)
	return all, err
}

// Blocks returns all blocks of a pool, as the Kubernetes API has them. The error matches pool.ErrUnavailable.
func (c Client) Blocks(ctx context.Context, name string) (all []pool.Block, err error) {
	c.Patience = cmp.Or(c.Patience, showing)
	err = c.aboutPools(ctx, "GET", BlocksPath+"?pool="+url.QueryEscape(name), nil, &all)
	return all, err
}

// Address returns what the Kubernetes API says of the address, for each pool that has it. The error matches pool.ErrUnavailable,
// and also ErrNoPools if the agent knows of none.
func (c Client) Address(ctx context.Context, a netip.Addr) (all []pool.Standing, err error) {
	err = c.aboutPools(ctx, "GET", AddressPath+"?address="+url.QueryEscape(a.String()), nil, &all)
	return all, err
}

// aboutPools makes a request, and gives its error the meaning that pool.Agent has for it.
func (c Client) aboutPools(ctx context.Context, method, path string, body, into any) error {
	if c.Patience == 0 {
		c.Patience = refilling
	}
	err := c.do(ctx, method, path, body, into)
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
		return fmt.Errorf("%w: %w: %s", pool.ErrUnavailable, ErrNoPools, refused.says)
	case StatusUnknownPool:
		return fmt.Errorf("%w: %s", pool.ErrUnknown, refused.says)
	}
	return fmt.Errorf("%w: %s", pool.ErrUnavailable, refused.says)
}
