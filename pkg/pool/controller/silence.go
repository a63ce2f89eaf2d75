package controller

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
)

// mostGap is the longest time between two looks at the Leases. After a longer one, as when the API was away, all nodes get their whole
// time once more: they could not renew their Leases meanwhile.
const mostGap = 4 * every

// alive is how old the renewal of a node may be that counts as one that lives.
const alive = 2 * time.Minute

// silence is since when nodes have shown no sign of life. It is only in memory: a new leader begins to count anew, and so fences later.
type silence struct {
	// nodes are the Leases. Those of a node that has none are there as soon as somebody asks for it.
	nodes map[string]sighting[pool.NodeLease]
	// holders are what holders say, by block and store. It changes when a holder begins anew after a silence.
	holders map[string]sighting[said]
	// asked are the nodes and the holders that this look has seen in blocks, nil if it has not read the Leases.
	asked map[string]bool
	// looked is when the Leases were read last.
	looked time.Time
	// most says that at least half of the nodes live, and spared that it has kept somebody from being fenced in this look.
	most, spared bool
}

// sighting is a value, and since when it is the same.
type sighting[T comparable] struct {
	value T
	since time.Time
}

// said is what a holder says of itself in a block.
type said struct{ boot, fenceAfter string }

// now returns what is seen after the value was read again.
func (s sighting[T]) now(value T, at time.Time) sighting[T] {
	if s.since.IsZero() || s.value != value {
		s.value, s.since = value, at
	}
	return s
}

// read reads all Leases, if a pool has spec.fenceAfter.
func (s *silence) read(ctx context.Context, api pool.API, pools []pool.Pool, now func() time.Time) error {
	s.asked, s.spared = nil, false
	if !wanted(pools) {
		*s = silence{}
		return nil
	}
	all, err := api.NodeLeases(ctx)
	if err != nil {
		return err
	}
	at := now() // Each value was written before.
	if at.Sub(s.looked) > mostGap {
		s.nodes, s.holders = map[string]sighting[pool.NodeLease]{}, map[string]sighting[said]{}
	}
	is := map[string]pool.NodeLease{}
	lives := 0
	for _, l := range all {
		is[l.Node] = l
		if s.nodes[l.Node] = s.nodes[l.Node].now(l, at); at.Sub(s.nodes[l.Node].since) < alive {
			lives++
		}
	}
	for node, was := range s.nodes {
		s.nodes[node] = was.now(is[node], at)
	}
	s.looked, s.most, s.asked = at, lives > 0 && 2*lives >= len(all), map[string]bool{}
	return nil
}

// wanted says whether any pool has its silent nodes fenced.
func wanted(pools []pool.Pool) bool {
	for _, p := range pools {
		if p.Spec.FenceAfter != "" {
			return true
		}
	}
	return false
}

// of returns since when the holder is silent in the block. The block was read before at.
func (s *silence) of(b pool.Block, h pool.Holder, at time.Time) time.Time {
	// A Lease that was never seen is missing from now on.
	s.nodes[h.Node] = s.nodes[h.Node].now(s.nodes[h.Node].value, at)
	key := b.Metadata.UID + " " + h.Store
	s.asked[h.Node], s.asked[key] = true, true
	s.holders[key] = s.holders[key].now(said{h.Boot, h.FenceAfter}, at)
	if node := s.nodes[h.Node].since; node.After(s.holders[key].since) {
		return node
	}
	return s.holders[key].since
}

// fenceSilent fences the holders of the block that are silent for as long as the pool says, and for as long as they say themselves. How
// this is safe: package pool, silence.go. A node that is silent for all others can have pods that use their addresses: who gets one of
// these probes for it.
//
// If less than half of the nodes live, nobody is fenced: rather the network or the API is broken.
func (c *Controller) fenceSilent(ctx context.Context, p pool.Pool, b pool.Block) error {
	l, err := p.Layout()
	if err != nil || l.FenceAfter == 0 || p.Recovery() != nil || c.silence.asked == nil {
		return nil // A wrong spec is in the status.
	}
	at := c.now()
	since := map[string]time.Time{}
	for _, h := range b.Spec.Holders {
		if own := h.Silence(); own > 0 {
			if begun := c.silence.of(b, h, at); at.Sub(begun) >= max(own, l.FenceAfter) {
				since[h.Store] = begun
			}
		}
	}
	if len(since) == 0 {
		return nil
	}
	if !c.silence.most {
		c.silence.spared = true
		return nil
	}
	return c.fenceStores(ctx, b, l.FenceAfter, since)
}

// fenceStores fences the stores in the block, if their nodes are silent still. A Lease that is the same after the block was read shows
// that the node has not begun anew before: what it writes into the block later makes the API refuse the fence.
func (c *Controller) fenceStores(ctx context.Context, b pool.Block, fenceAfter time.Duration, since map[string]time.Time) error {
	next, why := b, ""
	for _, h := range b.Spec.Holders {
		begun, is := since[h.Store]
		if !is {
			continue
		}
		now, err := c.api.NodeLease(ctx, h.Node)
		switch {
		case errors.Is(err, pool.ErrNotThere):
			now = pool.NodeLease{}
		case err != nil:
			return err
		}
		if now != c.silence.nodes[h.Node].value {
			continue
		}
		why = pool.SilentSince(begun, fenceAfter)
		next, _ = next.Fence(h.Is, why)
	}
	if why == "" {
		return nil
	}
	return c.write(ctx, next, "a node is silent for too long: others may take its addresses", why)
}

// forget drops what this look has not seen in a block. Whatever comes back is counted anew.
func (s *silence) forget() {
	if s.asked == nil {
		return
	}
	maps.DeleteFunc(s.holders, func(key string, _ sighting[said]) bool { return !s.asked[key] })
	maps.DeleteFunc(s.nodes, func(node string, l sighting[pool.NodeLease]) bool { return l.value.UID == "" && !s.asked[node] })
}
