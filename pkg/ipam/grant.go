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
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// Grant is what an ADD was given. All of it is on disk. Commit ends it, or the DEL of an ADD that fails.
type Grant struct {
	// Result has the form of the newest version.
	Result *current.Result
	// Detection says how to probe for the addresses before they are used, nil for not at all. An IPAM plugin cannot probe: it runs
	// before the interface can send. The interface plugin probes, calls Conflict if it finds a host, and Add again if that has
	// exchanged an address.
	Detection *Detection
	// Migrating says that a pod on another node still uses an address: a virtual machine moves from there to this pod.
	// Nobody probes for the addresses, and nobody announces them: that pod would lose its connections.
	Migrating bool

	call *Call
	// claims is what the API has to be told before the ADD ends.
	claims []pool.ClaimedAddress
	// previousHolders are other holders of the addresses: the sandboxes before this one.
	previousHolders []lease.SeenHolder
}

// Add gives the attachment one address of each range set. A repeated ADD returns what the first did.
func (c *Call) Add(ctx context.Context) (*Grant, error) {
	n, store, err := c.prepare()
	if err != nil {
		return nil, err
	}
	if err := c.queryOwner(ctx, n); err != nil {
		return nil, err
	}
	if c.answer != nil {
		n.addAnswer(*c.answer)
	}
	if err := n.checkStatic(); err != nil {
		return nil, err
	}
	r, err := c.request(n)
	if err != nil {
		return nil, err
	}
	g := &Grant{call: c, Result: &current.Result{CNIVersion: current.ImplementedSpecVersion, Routes: n.Routes}, Detection: n.detection}
	if g.Result.DNS, err = n.dns(); err != nil {
		return nil, err
	}
	leases, err := c.allocate(ctx, n, store, &r)
	if err != nil {
		return nil, err
	}
	g.claims = claimsOf(r, leases, store.PoolAddresses())
	g.addAddresses(n.sets, leases, store.PoolAddresses())
	for _, remark := range store.Remarks() {
		fmt.Fprintf(c.stderr, "%s: %s\n", PluginName, remark)
	}
	return g, nil
}

// addAddresses adds the leases to the grant, with what their sets or pools say. The routes of the configuration go before those of
// the pools.
func (g *Grant) addAddresses(sets []lease.RangeSet, leases []lease.Lease, pools []lease.PoolAddress) {
	configured := len(g.Result.Routes) > 0
	for i, l := range leases {
		if len(pools) == 0 {
			r, _ := sets[i].Find(l.Address)
			g.add(l, r.Subnet, r.Gateway)
			continue
		}
		f := pools[i].Layout
		g.add(l, f.Subnet, f.Gateway)
		g.Migrating = g.Migrating || pools[i].Migrating
		if pools[i].Probe && g.Detection == nil {
			g.Detection = &Detection{Probes: defaultProbes, Wait: defaultWait}
		}
		for _, r := range f.Routes {
			if route := routeOf(r); route != nil && !configured {
				g.Result.Routes = append(g.Result.Routes, route)
			}
		}
	}
	if g.Migrating {
		g.Detection = nil
	}
}

// add adds an address and its other holders.
func (g *Grant) add(l lease.Lease, subnet netip.Prefix, gateway netip.Addr) {
	g.Result.IPs = append(g.Result.IPs, &current.IPConfig{
		Address: net.IPNet{IP: l.Address.AsSlice(), Mask: net.CIDRMask(subnet.Bits(), l.Address.BitLen())}, Gateway: gateway.AsSlice(),
	})
	for _, h := range l.Holders {
		if !h.IsAttachment(g.call.key()) {
			g.previousHolders = append(g.previousHolders, lease.SeenHolder{Address: l.Address, Holder: h})
		}
	}
}

// Commit is called when the ADD has all that it needs, and before anybody is told. If it fails, the ADD must be undone: the owner would
// have other addresses at its next start. A sandbox before this one that is proven gone holds the addresses no more. Another
// one does until its DEL.
func (g *Grant) Commit(ctx context.Context) error {
	if err := g.claimAddresses(ctx); err != nil {
		return err
	}
	if err := g.fulfilClaim(ctx); err != nil {
		return err
	}
	if err := g.releasePrevious(ctx); err != nil { // Its own DEL does that, too.
		fmt.Fprintf(g.call.stderr, "%s: %v\n", PluginName, err)
	}
	return nil
}

// claimAddresses tells the API which addresses the owner has.
func (g *Grant) claimAddresses(ctx context.Context) error {
	if len(g.claims) == 0 {
		return nil
	}
	agent, err := g.call.poolAgent()
	if err != nil {
		return poolError(err)
	}
	ctx, cancel := context.WithTimeout(ctx, refillTimeout)
	defer cancel()
	for _, claimed := range g.claims {
		if err := agent.Claim(ctx, claimed); err != nil {
			return cniplugin.Error(types.ErrTryAgainLater, "%s: the address of %s: %v", PluginName, claimed.Owner, err)
		}
		if err := g.call.store.MarkClaimed(ctx, claimed.Address, claimed.Owner); err != nil {
			return withCode(err)
		}
	}
	return nil
}

// fulfilClaim writes the addresses of the result into the pod's IPAMClaim, if the claim has none.
func (g *Grant) fulfilClaim(ctx context.Context) error {
	c := g.call
	if c.answer == nil || c.answer.Claim == nil || len(c.answer.Claim.IPs) > 0 {
		return nil
	}
	f := owner.Fulfilment{Pod: c.network.pod, Claim: *c.answer.Claim}
	for _, ip := range g.Result.IPs {
		if a, ok := netip.AddrFromSlice(ip.Address.IP); ok {
			bits, _ := ip.Address.Mask.Size()
			f.IPs = append(f.IPs, netip.PrefixFrom(a.Unmap(), bits))
		}
	}
	ctx, cancel := context.WithTimeout(ctx, requiredTimeout)
	defer cancel()
	if err := c.owners.Fulfil(ctx, f); err != nil {
		return cniplugin.Error(types.ErrTryAgainLater, "%s: IPAMClaim %s/%s: %v", PluginName, f.Pod.Namespace, f.Claim.Name, err)
	}
	return nil
}

// releaseTimeout is how long a call looks for the sandboxes before: the new pod waits for it. What is not proven by then
// keeps its hold. Tests replace it.
var releaseTimeout = time.Second

// releasePrevious ends the hold of the owner's sandboxes before this one if they are proven gone.
func (g *Grant) releasePrevious(ctx context.Context) error {
	if len(g.previousHolders) == 0 {
		return nil
	}
	// This can read all of /proc, so it comes before the store is locked.
	looking, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	evidence := g.call.prove(looking, g.previousHolders)
	ended := slices.DeleteFunc(slices.Clone(g.previousHolders), func(h lease.SeenHolder) bool { return evidence[h.Holder.Namespace].Verdict != sandbox.VerdictGone })
	return giveUp(ctx, g.call.store, ended, "its sandbox is gone, and the owner's next one is attached")
}

// prove says which of the holders are proven gone, by their namespaces.
func (c *Call) prove(ctx context.Context, holders []lease.SeenHolder) map[attachment.Namespace]sandbox.Evidence {
	var namespaces []attachment.Namespace
	for _, h := range holders {
		namespaces = append(namespaces, h.Holder.Namespace)
	}
	return sandbox.Prove(ctx, c.seesAll(), namespaces...)
}

// giveUp has the holders give up their addresses. It is no error if one has done so meanwhile.
func giveUp(ctx context.Context, store *lease.Store, holders []lease.SeenHolder, reason string) error {
	if len(holders) == 0 {
		return nil
	}
	err := store.GiveUp(ctx, holders, reason)
	if errors.Is(err, lease.ErrHolderChanged) {
		return nil
	}
	return withCode(ignoreNotLeased(err))
}

// Detection says how the configuration wants the addresses probed for. nil is not at all.
func (c *Call) Detection() (*Detection, error) {
	n, err := c.readAll()
	return n.detection, err
}

// Conflict records that a host with that MAC has the address that the attachment was
// given. exchanged says whether a repeated Add gives another address in its place, as
// lease.Store.Conflict does.
func (c *Call) Conflict(ctx context.Context, address netip.Addr, mac string) (exchanged bool, err error) {
	store, err := c.openStore()
	if err != nil {
		return false, err
	}
	exchanged, err = store.Conflict(ctx, c.key(), address, mac)
	return exchanged, withCode(err)
}
