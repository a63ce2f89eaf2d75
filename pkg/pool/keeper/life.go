package keeper

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

const (
	// readsLease is how often the node's Lease is read in the time of spec.fenceAfter. So the node does not stop before the API was
	// away for a third of that time.
	readsLease = 12
	// urgent is the time between two reads while a pool waits for a sign of life.
	urgent = 5 * time.Second
	// again is the time after something has failed.
	again = 10 * time.Second
)

// live keeps the terms of pools with spec.fenceAfter until ctx ends.
func (k *Keeper) live(ctx context.Context) {
	for {
		due := k.Attest(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(due):
		}
	}
}

// Attest does at once what Run does again and again for pools with spec.fenceAfter: it reads the Lease that the node's kubelet renews, and
// notes in the stores that the node lives. If no pool has the key, it asks nothing. It returns when it is due again.
func (k *Keeper) Attest(ctx context.Context) time.Duration {
	due, err := k.attest(ctx)
	k.report("read this node's sign of life", err)
	if err != nil {
		return again
	}
	return due
}

func (k *Keeper) attest(ctx context.Context) (due time.Duration, err error) {
	k.attests.Lock()
	defer k.attests.Unlock()
	all, err := k.all()
	n := k.terms(ctx, all)
	if n.shortest == 0 {
		return every, err
	}
	sign, wrong := k.sign(ctx)
	err = errors.Join(err, wrong)
	for _, m := range all {
		err = errors.Join(err, m.alone(ctx, func(ctx context.Context) error { return m.renew(ctx, sign, n.fenceAfter) }))
	}
	if k.terms(ctx, all).waits {
		return urgent, err
	}
	due = n.shortest / readsLease
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

func (k *Keeper) terms(ctx context.Context, all []*member) terms {
	n := terms{fenceAfter: map[string]time.Duration{}}
	for _, m := range all {
		g, err := m.store.Granted(ctx)
		if err != nil || g.ID == "" {
			continue
		}
		for _, p := range g.Pools {
			obeys := p.FenceAfter
			wants := obeys
			if l, err := k.layout(ctx, p.Name); err == nil {
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

// sign reads the node's Lease. It returns the zero Sign if the kubelet has not surely renewed it since the read before, as always at the
// first read.
func (k *Keeper) sign(ctx context.Context) (lease.Sign, error) {
	began, err := k.Uptime()
	if err != nil {
		return lease.Sign{}, err
	}
	is, err := k.API.NodeLease(ctx, k.Node)
	if errors.Is(err, pool.ErrNotThere) {
		k.leaseRead = pool.NodeLease{}
		return lease.Sign{}, fmt.Errorf("the kubelet has no Lease kube-node-lease/%s: pools with spec.fenceAfter give nothing without it", k.Node)
	}
	if err != nil {
		return lease.Sign{}, unavailable(err)
	}
	var s lease.Sign
	if is.Succeeds(k.leaseRead) {
		s = lease.Sign{Lease: is.UID, After: k.leaseReadAt}
	}
	k.leaseRead, k.leaseReadAt = is, began
	return s, nil
}

// renew notes the sign in the store, and tells the blocks what the store obeys from now on.
func (m *member) renew(ctx context.Context, sign lease.Sign, fenceAfter map[string]time.Duration) error {
	s, err := m.state(ctx)
	if err != nil || s.ID == "" {
		return err
	}
	changed, err := m.store.Renew(ctx, sign, fenceAfter)
	if err != nil {
		return err
	}
	m.untold = m.untold || changed
	if s, err = m.state(ctx); err != nil || !m.mustSync(s) {
		return err
	}
	return m.sync(ctx)
}

// mustSync says whether the blocks have to be read, or be told something.
func (m *member) mustSync(s state) bool {
	if !s.Confirmed || m.untold {
		return true
	}
	for _, p := range s.Pools {
		if !p.Written && !p.Silent {
			return true
		}
	}
	return false
}

// gives says whether the store gives addresses of the pool.
func (s state) gives(name string) bool {
	p := s.of(name)
	return s.Confirmed && p.Written && !p.Silent
}

// says returns the block with what the store has to say of itself there. changed is false if the block says so already. In a silence the
// store does not say that it goes on.
func (s state) says(b pool.Block) (_ pool.Block, changed bool) {
	p := s.of(b.Spec.Pool)
	b, changed = b.Obey(s.me, p.FenceAfter)
	if p.Silent || s.Confirmed && p.Written && p.FenceAfter == 0 {
		return b, changed
	}
	b, begins := b.Confirm(s.me, p.Session)
	return b, changed || begins
}

// correct writes a block by which this store can be fenced for its silence, if the block says something else than what the store obeys.
// It can be of a request that has come late. So it is written before the store gives anything of it.
func (m *member) correct(ctx context.Context, s state, b pool.Block) (pool.Block, error) {
	h, _ := b.Holder(s.me)
	next, changed := s.says(b)
	if h.Silence() == 0 || !changed {
		return b, nil
	}
	if p := s.of(b.Spec.Pool); !p.Silent {
		next, _ = next.Confirm(s.me, p.Session)
	}
	made, err := m.API.UpdateBlock(ctx, next)
	m.wrote(err)
	return made, err
}
