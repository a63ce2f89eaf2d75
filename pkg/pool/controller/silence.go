package controller

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
)

// maxGap is the longest time between two looks at the Leases. After a longer one, as when the API was away, all nodes get their whole
// time once more: they could not renew their Leases meanwhile.
const maxGap = 4 * reconcileInterval

// aliveAge is how old the renewal of a node may be that counts as one that lives.
const aliveAge = 2 * time.Minute

// silenceTracker is since when nodes have shown no sign of life. It is only in memory: a new leader begins to count anew, and so fences later.
type silenceTracker struct {
	// nodes are the Leases. Those of a node that has none are there as soon as somebody asks for it.
	nodes map[string]stableValue[pool.NodeLease]
	// holders are what holders say, by block and store. It changes when a holder begins anew after a silence.
	holders map[string]stableValue[holderSession]
	// referenced are the nodes and the holders that this look has seen in blocks, nil if it has not read the Leases.
	referenced map[string]bool
	// readAt is when the Leases were read last.
	readAt time.Time
	// majorityAlive says that at least half of the nodes live, and spared that it has kept somebody from being fenced in this look.
	majorityAlive, spared bool
}

// stableValue is a value, and since when it is the same.
type stableValue[T comparable] struct {
	value T
	since time.Time
}

// holderSession is what a holder says of itself in a block.
type holderSession struct{ boot, fenceAfter string }

// note notes that the value was read, and returns since when it is the same.
func note[T comparable](values map[string]stableValue[T], key string, value T, instant time.Time) time.Time {
	s, found := values[key]
	if !found || s.value != value {
		s = stableValue[T]{value, instant}
		values[key] = s
	}
	return s.since
}

// readLeases reads all Leases, if a pool has spec.fenceAfter.
func (s *silenceTracker) readLeases(ctx context.Context, api pool.API, pools []pool.Pool, clock func() time.Time) error {
	s.referenced, s.spared = nil, false
	if !slices.ContainsFunc(pools, func(p pool.Pool) bool { return p.Spec.FenceAfter != "" }) {
		*s = silenceTracker{}
		return nil
	}
	leases, err := api.NodeLeases(ctx)
	if err != nil {
		return err
	}
	instant := clock() // Each value was written before.
	if instant.Sub(s.readAt) > maxGap {
		s.nodes, s.holders = map[string]stableValue[pool.NodeLease]{}, map[string]stableValue[holderSession]{}
	}
	leaseOf := map[string]pool.NodeLease{}
	aliveNodes := 0
	for _, l := range leases {
		leaseOf[l.Node] = l
		if instant.Sub(note(s.nodes, l.Node, l, instant)) < aliveAge {
			aliveNodes++
		}
	}
	for node := range s.nodes {
		note(s.nodes, node, leaseOf[node], instant)
	}
	s.readAt, s.majorityAlive, s.referenced = instant, aliveNodes > 0 && 2*aliveNodes >= len(leases), map[string]bool{}
	return nil
}

// silentSince returns since when the holder is silent in the block. The block was read before at.
func (s *silenceTracker) silentSince(b pool.Block, h pool.Holder, instant time.Time) time.Time {
	// A Lease that was never seen is missing from now on.
	node := note(s.nodes, h.Node, s.nodes[h.Node].value, instant)
	key := b.Metadata.UID + " " + h.Store
	s.referenced[h.Node], s.referenced[key] = true, true
	holder := note(s.holders, key, holderSession{h.Boot, h.FenceAfter}, instant)
	return slices.MaxFunc([]time.Time{node, holder}, time.Time.Compare)
}

// fenceSilent fences the holders of the block that are silent for as long as the pool says, and for as long as they say themselves. How
// this is safe: package pool, silence.go. A node that is silent for all others can have pods that use their addresses: who gets one of
// these probes for it.
//
// If less than half of the nodes live, nobody is fenced: rather the network or the API is broken.
func (c *Controller) fenceSilent(ctx context.Context, p pool.Pool, b pool.Block) error {
	l, err := p.Layout()
	if err != nil || l.FenceAfter == 0 || p.Recovery() != nil || c.silence.referenced == nil {
		return nil // A wrong spec is in the status.
	}
	instant := c.clock()
	since := map[string]time.Time{}
	for _, h := range b.Spec.Holders {
		if timeout := h.FenceTimeout(); timeout > 0 {
			if begun := c.silence.silentSince(b, h, instant); instant.Sub(begun) >= max(timeout, l.FenceAfter) {
				since[h.Store] = begun
			}
		}
	}
	if len(since) == 0 {
		return nil
	}
	if !c.silence.majorityAlive {
		c.silence.spared = true
		return nil
	}
	return c.fenceStores(ctx, b, l.FenceAfter, since)
}

// fenceStores fences the stores in the block, if their nodes are silent still. A Lease that is the same after the block was read shows
// that the node has not begun anew before: what it writes into the block later makes the API refuse the fence.
func (c *Controller) fenceStores(ctx context.Context, b pool.Block, fenceAfter time.Duration, since map[string]time.Time) error {
	next, reason := b, ""
	for _, h := range b.Spec.Holders {
		begun, found := since[h.Store]
		if !found {
			continue
		}
		current, err := c.api.NodeLease(ctx, h.Node)
		switch {
		case errors.Is(err, pool.ErrNotFound):
			current = pool.NodeLease{}
		case err != nil:
			return err
		}
		if current != c.silence.nodes[h.Node].value {
			continue
		}
		reason = pool.SilenceReason(begun, fenceAfter)
		next, _ = next.Fence(h.SameParty, reason)
	}
	if reason == "" {
		return nil
	}
	return c.writeFence(ctx, next, "a node is silent for too long: others may take its addresses", reason)
}

// forget drops what this look has not seen in a block. Whatever comes back is counted anew.
func (s *silenceTracker) forget() {
	if s.referenced == nil {
		return
	}
	maps.DeleteFunc(s.holders, func(key string, _ stableValue[holderSession]) bool { return !s.referenced[key] })
	maps.DeleteFunc(s.nodes, func(node string, l stableValue[pool.NodeLease]) bool { return l.value.UID == "" && !s.referenced[node] })
}
