package ipam

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// refillTimeout is how long an ADD waits for addresses of a pool.
const refillTimeout = pool.AgentLimit + 500*time.Millisecond

// minRetain is how long an address at least waits for a pod that asks for it and whose owner keeps none. The runtime tries an ADD
// again within that time.
const minRetain = 10 * time.Minute

// allocate gives the attachment its addresses. It asks the agent only for what the node's store does not have, and tries again. If the
// ranges of this node have no free address, it gives up what waits here for a pod that runs elsewhere, one address after the other.
func (c *Call) allocate(ctx context.Context, n network, store *lease.Store, r *lease.Request) ([]lease.Lease, error) {
	var judging context.Context
	var elsewhere *lease.ElsewhereError
	var full *lease.ExhaustedError
	for refilled := false; ; {
		leases, err := store.Allocate(ctx, *r)
		switch {
		case err == nil:
			return leases, nil
		case errors.As(err, &elsewhere):
			err = c.acquire(ctx, *elsewhere, r)
		case len(n.pools) > 0 && !refilled && (errors.Is(err, lease.ErrExhausted) || errors.Is(err, lease.ErrUnconfirmed) || errors.Is(err, lease.ErrUnchosen)):
			refilled, err = true, c.refill(ctx, store, pool.Demand{Network: store.Network(), Pools: n.pools, Probes: r.Probes}, err)
		case errors.As(err, &full):
			if judging == nil {
				limited, cancel := context.WithTimeout(ctx, judgeTimeout)
				defer cancel()
				judging = limited
			}
			ended, reason := c.endReservationElsewhere(judging, store, full.Set)
			if ended {
				continue
			}
			if reason != nil {
				err = fmt.Errorf("%w; %w", err, reason)
			}
			return nil, n.refusalError(err)
		default:
			return nil, n.refusalError(err)
		}
		if err != nil {
			return nil, err
		}
	}
}

// refill has the agent take addresses of the pools. reason is what the store lacks. The store notes the pools first: an agent that
// comes later knows from it what to take.
func (c *Call) refill(ctx context.Context, store *lease.Store, d pool.Demand, reason error) error {
	if err := store.SetPools(ctx, d.Pools); err != nil {
		return withCode(err)
	}
	agent, err := c.poolAgent()
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, refillTimeout)
		defer cancel()
		err = agent.Refill(ctx, d)
	}
	if err != nil {
		return poolError(fmt.Errorf("%w: %w", reason, err))
	}
	return nil
}

// poolAgent returns who can be asked for addresses of pools.
func (c *Call) poolAgent() (pool.Agent, error) {
	if agent, ok := c.owners.(pool.Agent); ok {
		return agent, nil
	}
	return nil, fmt.Errorf("%w: nobody can be asked on this node", pool.ErrUnavailable)
}

// acquire has the agent bring an address to this node: the owner's or, if the pod asks for some, one of these. It notes in the
// request what the agent was asked for.
func (c *Call) acquire(ctx context.Context, e lease.ElsewhereError, r *lease.Request) error {
	a := c.acquisition(e.Pool, *r)
	if len(e.Addresses) == 0 {
		r.QueriedPools = append(slices.Clip(r.QueriedPools), e.Pool)
		return c.acquireOne(ctx, a, r)
	}
	var err error
	for _, a.Requested = range e.Addresses {
		r.QueriedAddresses = append(slices.Clip(r.QueriedAddresses), a.Requested)
		if err = c.acquireOne(ctx, a, r); err == nil {
			return nil
		}
	}
	return err
}

// acquisition is what the agent is told of the pod.
func (c *Call) acquisition(name string, r lease.Request) pool.Acquisition {
	a := pool.Acquisition{Network: c.store.Network(), Pool: name, IfName: c.args.IfName, Owner: r.Owner, Pod: r.Pod, Retain: time.Duration(r.Policy.Retain), Roam: c.network.Roam}
	if !r.Policy.Sticky {
		a.Retain = minRetain
	}
	if c.answer != nil && r.Policy.ByOwner {
		a.Siblings = c.answer.Siblings
	}
	return a
}

// acquireOne asks for one address, and notes in the request what the owner has.
func (c *Call) acquireOne(ctx context.Context, a pool.Acquisition, r *lease.Request) error {
	if a.Owner == (attachment.Owner{}) {
		return cniplugin.Error(types.ErrTryAgainLater, "%s: %s of pool %s is not on this node, and only a pod with a name can get it from another one: "+
			"CNI_ARGS must have K8S_POD_NAMESPACE and K8S_POD_NAME", PluginName, a.Requested, a.Pool)
	}
	agent, err := c.poolAgent()
	if err != nil {
		return c.unavailableError(a, err)
	}
	ctx, cancel := context.WithTimeout(ctx, refillTimeout)
	defer cancel()
	acquired, err := agent.Acquire(ctx, a)
	switch {
	case err != nil:
		return c.unavailableError(a, err)
	case acquired.Migrating:
		r.MigratingAddresses = append(slices.Clip(r.MigratingAddresses), acquired.Address)
	}
	if acquired.Address.IsValid() {
		r.OwnerAddresses = append(slices.Clip(r.OwnerAddresses), acquired.Address)
	}
	return nil
}

// unavailableError says which address this node could not get.
func (c *Call) unavailableError(a pool.Acquisition, err error) error {
	if a.Requested.IsValid() {
		return poolError(fmt.Errorf("%s of pool %s is not on this node: %w", a.Requested, a.Pool, err))
	}
	return poolError(fmt.Errorf("the address that %s has of pool %s may be on another node: %w", a.Owner, a.Pool, err))
}

// poolError gives an error of a pool.Agent its CNI code: a pool that does not exist is a mistake in the configuration.
func poolError(err error) error {
	if errors.Is(err, pool.ErrUnknown) {
		return cniplugin.Error(types.ErrInvalidNetworkConfig, "%s: %v", PluginName, err)
	}
	return cniplugin.Error(types.ErrTryAgainLater, "%s: %v", PluginName, err)
}

// claimsOf returns what the API has to be told before the ADD ends: which addresses the owner has. It knows of those that
// the owner has had on this node before. What a pod on another node has is not the owner's here so far.
func claimsOf(r lease.Request, leases []lease.Lease, addresses []lease.PoolAddress) (claims []pool.ClaimedAddress) {
	for i, p := range addresses {
		if l := leases[i]; r.Policy.KeptByAPI() && !l.Claimed && !p.Migrating && l.Owner != (attachment.Owner{}) {
			claims = append(claims, l.ClaimOf(p.Layout.Name))
		}
	}
	return claims
}

// routeOf returns the route of a pool, nil for one that the API should not have taken.
func routeOf(r pool.Route) *types.Route {
	dst, err := netip.ParsePrefix(r.Dst)
	if err != nil {
		return nil
	}
	route := &types.Route{Dst: net.IPNet{IP: dst.Addr().AsSlice(), Mask: net.CIDRMask(dst.Bits(), dst.Addr().BitLen())}}
	if gw, err := netip.ParseAddr(r.GW); err == nil {
		route.GW = gw.AsSlice()
	}
	return route
}
