package importer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// askPools asks the agent which addresses this node can have, before anything changes.
func (im *importRun) askPools(ctx context.Context) error {
	if err := im.leases.Import(ctx, true, im.decide); err != nil || len(im.wanted) == 0 {
		return err
	}
	preview, err := im.Agent.Import(ctx, pool.Import{Network: im.store, Pools: im.Pools, Addresses: im.wanted, DryRun: true})
	if err != nil {
		return fmt.Errorf("ask for the addresses of the pools: %w", err)
	}
	if preview.Closed != "" && !im.DryRun {
		return errors.New(preview.Closed)
	}
	im.refused, im.closed = preview.Refused, preview.Closed
	return nil
}

// takeFromPools has the agent take the addresses that have a lease by now. It reports what the pools do not give all the same, and makes
// the claims of owners that keep their addresses.
func (im *importRun) takeFromPools(ctx context.Context) {
	if len(im.wanted) == 0 {
		return
	}
	imported, err := im.Agent.Import(ctx, pool.Import{Network: im.store, Pools: im.Pools, Addresses: im.wanted})
	if err != nil {
		im.failed = append(im.failed, fmt.Sprintf("the leases are there, but this node does not have all of these addresses of the pools: run it again: %v", err))
	}
	wanted := map[netip.Addr]bool{}
	for _, a := range im.wanted {
		wanted[a] = true
	}
	for i, f := range im.files {
		if !wanted[f.Address] || imported.Pools[f.Address] != "" {
			continue
		}
		im.files[i].State, im.files[i].Reason = Refused, cmp.Or(imported.Refused[f.Address], "it is leased, and this node does not have it of the pool so far: run it again")
	}
	for _, a := range im.wanted {
		if name := imported.Pools[a]; name != "" {
			im.claimAddress(ctx, name, a)
		}
	}
}

// claimAddress tells the API that the owner keeps the address: its next pod may start on another node. Without that, the next pod on this node
// does.
func (im *importRun) claimAddress(ctx context.Context, name string, a netip.Addr) {
	l, err := im.leases.Get(ctx, a)
	if errors.Is(err, lease.ErrNotLeased) || err == nil && (l.Claimed || l.Owner == (attachment.Owner{}) || !l.Newest().Policy.KeptByAPI()) {
		return
	}
	if err == nil {
		err = im.Agent.Claim(ctx, l.ClaimOf(name))
	}
	if err == nil {
		err = im.leases.MarkClaimed(ctx, a, l.Owner)
	}
	if err != nil {
		im.failed = append(im.failed, fmt.Sprintf("other nodes do not know that the owner of %s keeps it: run it again: %v", a, err))
	}
}
