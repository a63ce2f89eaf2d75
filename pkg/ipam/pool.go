package ipam

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// refilling is how long an ADD waits for addresses of a pool.
const refilling = pool.Limit + 500*time.Millisecond

// poolName is a name that an object of the API can have (RFC 1123).
var poolName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

// pools returns the names of the pools, and everything that is wrong with the key. There are none without the key.
func (s section) pools(a asked) ([]string, []error) {
	if s.Pool == nil || string(s.Pool) == "null" {
		return nil, nil
	}
	var names []string
	var one string
	if json.Unmarshal(s.Pool, &one) == nil {
		names = []string{one}
	} else if json.Unmarshal(s.Pool, &names) != nil || len(names) == 0 {
		return nil, []error{cniplugin.ConfigError("ipam.pool", cniplugin.Written(s.Pool), `must be the name of an AddressPool, or a list of names: the pod gets an address of each`)}
	}
	var errs []error
	for i, name := range names {
		switch {
		case !poolName.MatchString(name) || len(name) > pool.MostName:
			errs = append(errs, cniplugin.ConfigError("ipam.pool", name, "must be the name of an AddressPool"))
		case slices.Contains(names[:i], name):
			errs = append(errs, cniplugin.ConfigError("ipam.pool", name, "is in the list twice: keep one"))
		}
	}
	return names, append(errs, s.besidePool(a)...)
}

// besidePool returns an error for each key that does not go with "pool".
func (s section) besidePool(a asked) (errs []error) {
	for _, key := range []struct {
		name string
		has  bool
		why  string
	}{
		{"ipam.ranges", len(s.Ranges) > 0, "the AddressPool has the ranges"},
		{"ipam.subnet", s.Subnet != "", "the AddressPool has the subnet"},
		{"ipam.rangeStart", s.RangeStart != "", "the AddressPool has the ranges"},
		{"ipam.rangeEnd", s.RangeEnd != "", "the AddressPool has the ranges"},
		{"ipam.gateway", s.Gateway != "", "the AddressPool has the gateway"},
		{"ipam.exclude", len(s.Exclude) > 0, "the AddressPool has what is excluded"},
		{"ipam.dataDir", s.DataDir != "", "relink-agent finds the addresses only in the default directory"},
		{"ipam.statusExhausted", s.StatusExhausted, "other nodes can hand over addresses"},
		{"runtimeConfig.ipRanges", len(a.ranges) > 0, "the AddressPool has the ranges"},
	} {
		if key.has {
			errs = append(errs, cniplugin.ConfigError(key.name, cniplugin.Written("..."), `does not go with "pool": remove it; `+key.why))
		}
	}

	return errs
}

// allocate gives the attachment its addresses. Only for what the node's store does not have, it asks the agent.
func (c *Call) allocate(ctx context.Context, n network, store *lease.Store, r lease.Request) ([]lease.Lease, error) {
	if len(n.pools) == 0 {
		given, err := store.Allocate(ctx, r)
		if err != nil {
			return nil, n.refused(err)
		}
		return given, nil
	}
	r.Pools, r.Probes = n.pools, !c.program
	if err := c.acquire(ctx, n, store, &r); err != nil {
		return nil, err
	}
	given, err := store.Allocate(ctx, r)
	if errors.Is(err, lease.ErrExhausted) || errors.Is(err, lease.ErrUnconfirmed) {
		if more := c.refill(ctx, n.pools); more != nil {
			return nil, cniplugin.Error(types.ErrTryAgainLater, "%s: %v: %v", PluginName, err, more)
		}
		given, err = store.Allocate(ctx, r)
	}
	if err != nil {
		return nil, n.refused(err)
	}
	c.noteClaims(r, given)
	return given, nil
}

// refill has the agent take addresses of the pools.
func (c *Call) refill(ctx context.Context, pools []string) error {
	agent, err := c.poolAgent()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, refilling)
	defer cancel()
	return agent.Refill(ctx, pool.Demand{Network: c.config.Name, Pools: pools})
}

// poolAgent returns who can be asked for addresses of pools.
func (c *Call) poolAgent() (pool.Agent, error) {
	if agent, is := c.owners.(pool.Agent); is {
		return agent, nil
	}
	return nil, fmt.Errorf("%w: nobody can be asked on this node", pool.ErrUnavailable)
}

// acquire brings addresses to this node that are an owner's, or that are asked for, and that may be on another node. A pod
// whose owner keeps no address needs none.
func (c *Call) acquire(ctx context.Context, n network, store *lease.Store, r *lease.Request) error {
	for _, q := range n.choices {
		r.Wanted = append(r.Wanted, q.address) // Without the API's own choice, the first one counts.
		break
	}
	r.OneOf = nil
	if !r.Policy.Sticky && len(r.Wanted) == 0 {
		return nil
	}
	has, err := store.Granted(ctx)
	if ignoreNone(err) != nil {
		return withCode(err)
	}
	for i, name := range n.pools {
		a := pool.Acquisition{Network: c.config.Name, Pool: name, IfName: c.args.IfName, Owner: r.Owner, Pod: r.Pod, Retain: time.Duration(r.Policy.Retain)}
		if i < len(r.Wanted) {
			a.Wanted = r.Wanted[i]
		}
		if !a.Wanted.IsValid() && !r.Policy.Sticky || isHere(has, a, r) {
			continue
		}
		if err := c.acquireOne(ctx, a); err != nil {
			return err
		}
	}
	return nil
}

func (c *Call) acquireOne(ctx context.Context, a pool.Acquisition) error {
	agent, err := c.poolAgent()
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, refilling)
		defer cancel()
		_, err = agent.Acquire(ctx, a)
	}
	if err == nil {
		return nil
	}
	return cniplugin.Error(types.ErrTryAgainLater, "%s: the address of %s may be on another node: %v", PluginName, a.Owner, err)
}

// isHere says whether the store may give the address that is asked for, or one that is the owner's already.
func isHere(has lease.Granted, a pool.Acquisition, r *lease.Request) bool {
	for _, p := range has.Pools {
		for _, g := range p.Grants {
			if p.Name != a.Pool {
				continue
			}
			if i := g.Offset(a.Wanted); a.Wanted.IsValid() && i >= 0 {
				gives, _ := g.May(i)
				return gives
			}
			if !a.Wanted.IsValid() && ownedIn(p, g, r) {
				return true
			}
		}
	}
	return false
}

// ownedIn says whether an address of the grant is the owner's.
func ownedIn(p lease.PoolState, g pool.Grant, r *lease.Request) bool {
	for address, l := range p.Leased {
		i := g.Offset(address)
		if i < 0 || l.Owner == (attachment.Owner{}) || l.Owner != r.Owner && !slices.Contains(r.Also, l.Owner) {
			continue
		}
		if gives, _ := g.May(i); gives {
			return true
		}
	}
	return false
}

// noteClaims notes what the API has to be told before the ADD ends: which addresses the owner has. It knows of those that
// the owner has had on this node before.
func (c *Call) noteClaims(r lease.Request, given []lease.Lease) {
	c.claims = nil
	if !r.Policy.Sticky {
		return
	}
	for i, l := range given {
		if !l.Claimed {
			c.claims = append(c.claims, pool.Claimed{
				Acquisition: pool.Acquisition{Network: c.config.Name, Pool: r.Pools[i], IfName: c.args.IfName, Owner: l.Owner, Pod: r.Pod, Retain: time.Duration(r.Policy.Retain)},
				Address:     l.Address,
			})
		}
	}
}

// claim tells the API which addresses the owner has. If it fails, the ADD must be undone: the owner would have others at its
// next start on another node.
func (c *Call) claim(ctx context.Context) error {
	if len(c.claims) == 0 {
		return nil
	}
	agent, err := c.poolAgent()
	if err != nil {
		return cniplugin.Error(types.ErrTryAgainLater, "%s: %v", PluginName, err)
	}
	store, _, err := c.prepareRelease()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, refilling)
	defer cancel()
	for _, claimed := range c.claims {
		if err := agent.Claim(ctx, claimed); err != nil {
			return cniplugin.Error(types.ErrTryAgainLater, "%s: the address of %s: %v", PluginName, claimed.Owner, err)
		}
		if err := store.MarkClaimed(ctx, claimed.Address, claimed.Owner); err != nil {
			return withCode(err)
		}
	}
	return nil
}

// fromPools adds the addresses to the result, with what their pools say. The routes of the configuration go before those of
// the pools.
func (c *Call) fromPools(result *current.Result, given []lease.Lease, from []lease.FromPool) {
	own := len(result.Routes) > 0
	for i, l := range given {
		f := from[i].Layout
		c.mustProbe = c.mustProbe || from[i].Probe
		result.IPs = append(result.IPs, &current.IPConfig{
			Address: net.IPNet{IP: l.Address.AsSlice(), Mask: net.CIDRMask(f.Subnet.Bits(), l.Address.BitLen())}, Gateway: f.Gateway.AsSlice(),
		})
		for _, r := range f.Routes {
			if route := routeOf(r); route != nil && !own {
				result.Routes = append(result.Routes, route)
			}
		}
	}
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
