package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// askStandings asks the agent what the pools of the cluster say of an address. heldRemotely says that another node has it, unknown that one may
// have it. Most nodes have no pools: then it is no news that nobody can be asked. A leased address is asked about only if it is of a pool.
func askStandings(ctx context.Context, stores []*lease.Store, a netip.Addr, leased bool, s *screen) (standings []pool.AddressStatus, heldRemotely, unknown bool) {
	ids, ofPool := idsOfPools(ctx, stores, a)
	if leased && !ofPool || ctx.Err() != nil { // Without time left, it would look as if the agent did not answer.
		return nil, false, false
	}
	standings, err := control.Client{}.Address(ctx, a)
	if err != nil && (ofPool || !errors.Is(err, control.ErrNoAgent) && !errors.Is(err, control.ErrNoPools)) {
		s.warnf("which node has %s is unknown: %v", a, poolError(err))
	}
	heldRemotely = slices.ContainsFunc(standings, func(p pool.AddressStatus) bool { return p.Holder != nil && !slices.Contains(ids, p.Holder.Store) })
	return standings, heldRemotely, err != nil && ofPool
}

// idsOfPools returns the identities of this node's stores. ofPool says whether one of them has heard of a pool with the address.
// Others report a store that cannot be read.
func idsOfPools(ctx context.Context, stores []*lease.Store, a netip.Addr) (ids []string, ofPool bool) {
	for _, store := range stores {
		g, err := store.Granted(ctx)
		if err != nil || g.ID == "" {
			continue
		}
		ids = append(ids, g.ID)
		ofPool = ofPool || slices.ContainsFunc(g.Pools, func(p lease.PoolState) bool {
			return slices.ContainsFunc(p.Layout.Ranges, func(r pool.Span) bool { return r.Contains(a) })
		})
	}
	return ids, ofPool
}

// describeStanding writes what the Kubernetes API says of an address, in the layout of kubectl describe.
func describeStanding(p pool.AddressStatus, s *screen) {
	var d description
	d.add(
		"Address:", p.Address.String(),
		"Pool:", p.Pool,
		"Block:", p.Block,
	)
	switch h := p.Holder; {
	case h != nil:
		d.add(
			"Node:", h.Node,
			"Network:", h.Network,
			"Store:", h.Store,
			"Since:", fmt.Sprintf("epoch %d of the block, or before", h.Epoch),
			"Boot:", h.Boot,
			"Fenced:", h.Fenced,
		)
	case p.Excluded:
		d.row("Node:", "nobody: the pool never gives this address")
	default:
		d.row("Node:", "nobody")
	}
	if p.Unproven {
		d.row("Probe:", "a pod gets it only after a probe: pods of a dead node may still answer for it")
	}
	for _, w := range p.Want {
		d.rowf("Asked for by:", "node %s, network %s, for AddressClaim %s", w.Node, w.Network, w.Claim)
	}
	for _, c := range p.Claims {
		d.add(
			"Owner:", fmt.Sprintf("%s, interface %s", c.Spec.Owner, c.Spec.IfName),
			"Claim:", c.Metadata.Name,
			"Active:", placeOf(c.Spec.Active),
		)
		if c.Spec.Target != nil {
			d.row("Moves to:", placeOf(*c.Spec.Target))
		}
	}
	if len(p.Claims) == 0 {
		d.row("Owner:", "nobody")
	}
	d.write(s)
}

func placeOf(p pool.Place) string {
	text := fmt.Sprintf("on node %s, network %s", p.Node, p.Network)
	if p.PodUID != "" {
		text += ", pod UID " + p.PodUID
	}
	return text
}
