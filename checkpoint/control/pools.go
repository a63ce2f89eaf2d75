package control

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
)

// StatusUnknownPool stands for pool.ErrUnknown. Any other refusal means that the same request may succeed later.
const StatusUnknownPool = 422

var _ pool.Agent = Client{}

// refilling is how long the agent may take for an address of a pool.
const refilling = pool.Limit + time.Second

// Refill has the agent take addresses of pools. It is pool.Agent's.
func (c Client) Refill(ctx context.Context, d pool.Demand) error {
	return c.aboutPools(ctx, RefillPath, d, nil)
}

// Acquire has the agent bring an owner's address to this node. It is pool.Agent's.
func (c Client) Acquire(ctx context.Context, a pool.Acquisition) (made pool.Acquired, err error) {
	return made, c.aboutPools(ctx, AcquirePath, a, &made)
}

// Claim has the agent note which address an owner has. It is pool.Agent's.
func (c Client) Claim(ctx context.Context, claimed pool.Claimed) error {
	return c.aboutPools(ctx, PoolClaimPath, claimed, nil)
}

// aboutPools makes a request, and gives its error the meaning that pool.Agent has for it.
func (c Client) aboutPools(ctx context.Context, path string, body, into any) error {
	if c.Patience == 0 {
		c.Patience = refilling
	}
	err := c.do(ctx, "POST", path, body, into)
	var refused *refusedError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &refused):
		return fmt.Errorf("%w: %w", pool.ErrUnavailable, err)
	}
	switch refused.status {
	case statusNotFound:
		return fmt.Errorf("%w: this relink-agent is too old: it does not know of pools", pool.ErrUnavailable)
	case StatusUnknownPool:
		return fmt.Errorf("%w: %s", pool.ErrUnknown, refused.says)
	}
	return fmt.Errorf("%w: %s", pool.ErrUnavailable, refused.says)
}
