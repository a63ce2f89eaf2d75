package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/wait"
)

const (
	// leaseReadsPerTerm is how often the node's Lease is read in the time of spec.fenceAfter. So the node does not stop before the API was
	// away for a third of that time.
	leaseReadsPerTerm = 12
	// urgentInterval is the time between two reads while a pool waits for a sign of life.
	urgentInterval = 5 * time.Second
	// retryInterval is the time after something has failed.
	retryInterval = 10 * time.Second
)

// attestLoop keeps the terms of pools with spec.fenceAfter until ctx ends.
func (nc *Controller) attestLoop(ctx context.Context) {
	for {
		due := nc.Attest(ctx)
		if !wait.Sleep(ctx, due) {
			return
		}
	}
}

// Attest does at once what Run does again and again for pools with spec.fenceAfter: it reads the Lease that the node's kubelet renews, and
// notes in the stores that the node lives. If no pool has the key, it asks nothing. It returns when it is due again.
func (nc *Controller) Attest(ctx context.Context) time.Duration {
	due, err := nc.attest(ctx)
	nc.logOnce("read this node's sign of life", err)
	if err != nil {
		return retryInterval
	}
	return due
}

func (nc *Controller) attest(ctx context.Context) (due time.Duration, err error) {
	nc.leaseMu.Lock()
	defer nc.leaseMu.Unlock()
	stores, err := nc.allStores()
	n := nc.terms(ctx, stores)
	if n.shortest == 0 {
		return balanceInterval, err
	}
	sign, wrong := nc.readSign(ctx)
	err = errors.Join(err, wrong)
	for _, sc := range stores {
		err = errors.Join(err, sc.withTurn(ctx, func(ctx context.Context) error { return sc.renew(ctx, sign, n.fenceAfter) }))
	}
	if nc.terms(ctx, stores).waits {
		return urgentInterval, err
	}
	due = n.shortest / leaseReadsPerTerm
	return due - rand.N(due/4), err
}

// terms is what the pools of this node's stores want.
type terms struct {
	// fenceAfter is the key of each pool that was read. shortest is the shortest time that a pool has or a store obeys, 0 for none.
	fenceAfter map[string]time.Duration
	shortest   time.Duration
	// waits says that a pool needs a sign of life to give something, or to begin with a term.
	waits bool
}

func (nc *Controller) terms(ctx context.Context, stores []*storeController) terms {
	n := terms{fenceAfter: map[string]time.Duration{}}
	for _, sc := range stores {
		g, err := sc.store.Granted(ctx)
		if err != nil || g.ID == "" {
			continue
		}
		for _, p := range g.Pools {
			obeys := p.FenceAfter
			wants := obeys
			if l, err := nc.layout(ctx, p.Name); err == nil {
				wants = l.FenceAfter
				n.fenceAfter[p.Name] = wants
			}
			for _, d := range []time.Duration{wants, obeys} {
				if d > 0 && (n.shortest == 0 || d < n.shortest) {
					n.shortest = d
				}
			}
			n.waits = n.waits || p.Silent || !p.Written || wants != obeys
		}
	}
	return n
}

// readSign reads the node's Lease. It returns the zero Sign if the kubelet has not surely renewed it since the read before, as always at the
// first read.
func (nc *Controller) readSign(ctx context.Context) (lease.Sign, error) {
	began, err := nc.Uptime()
	if err != nil {
		return lease.Sign{}, err
	}
	nodeLease, err := nc.API.NodeLease(ctx, nc.Node)
	if errors.Is(err, pool.ErrNotFound) {
		nc.leaseRead = pool.NodeLease{}
		return lease.Sign{}, fmt.Errorf("the kubelet has no Lease kube-node-lease/%s: pools with spec.fenceAfter give nothing without it", nc.Node)
	}
	if err != nil {
		return lease.Sign{}, err
	}
	var s lease.Sign
	if nodeLease.RenewedSince(nc.leaseRead) {
		s = lease.Sign{Lease: nodeLease.UID, After: nc.leaseReadAt}
	}
	nc.leaseRead, nc.leaseReadAt = nodeLease, began
	return s, nil
}

// renew notes the sign in the store, and tells the blocks what the store obeys from now on.
func (sc *storeController) renew(ctx context.Context, sign lease.Sign, fenceAfter map[string]time.Duration) error {
	s, err := sc.state(ctx)
	if err != nil || s.ID == "" {
		return err
	}
	changed, err := sc.store.Renew(ctx, sign, fenceAfter)
	if err != nil {
		return err
	}
	sc.unwritten = sc.unwritten || changed
	if s, err = sc.state(ctx); err != nil || !sc.mustSync(s) {
		return err
	}
	return sc.sync(ctx)
}

// mustSync says whether the blocks have to be read, or be told something.
func (sc *storeController) mustSync(s state) bool {
	return !s.Confirmed || sc.unwritten || slices.ContainsFunc(s.Pools, func(p lease.PoolState) bool { return !p.Written && !p.Silent })
}

// mayAssign says whether the store gives addresses of the pool.
func (s state) mayAssign(name string) bool {
	p := s.poolState(name)
	return s.Confirmed && p.Written && !p.Silent
}

// withHolderState returns the block with what the store has to say of itself there. changed is false if the block says so already. In a silence the
// store does not say that it goes on.
func (s state) withHolderState(b pool.Block) (_ pool.Block, changed bool) {
	p := s.poolState(b.Spec.Pool)
	b, changed = b.WithFenceAfter(s.me, p.FenceAfter)
	if p.Silent || s.Confirmed && p.Written && p.FenceAfter == 0 {
		return b, changed
	}
	b, begins := b.Confirm(s.me, p.Session)
	return b, changed || begins
}

// correctHolderState writes a block by which this store can be fenced for its silence, if the block says something else than what the store obeys.
// It can be of a request that has come late. So it is written before the store gives anything of it.
func (sc *storeController) correctHolderState(ctx context.Context, s state, b pool.Block) (pool.Block, error) {
	h, _ := b.Holder(s.me)
	next, changed := s.withHolderState(b)
	if h.FenceTimeout() == 0 || !changed {
		return b, nil
	}
	if p := s.poolState(b.Spec.Pool); !p.Silent {
		next, _ = next.Confirm(s.me, p.Session)
	}
	stored, err := sc.API.UpdateBlock(ctx, next)
	sc.countWrite(err)
	return stored, err
}
