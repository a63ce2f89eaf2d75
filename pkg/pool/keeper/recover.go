package keeper

import (
	"context"
	"errors"
	"time"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// settling is how long a keeper has seen the API before it takes anything new. If the API has lost something, the nodes that know
// of it tell it meanwhile.
const settling = 5 * time.Second

// silence is after how long without an answer a keeper begins to settle again.
const silence = time.Minute

// contact notes that the API has answered, or has not.
func (k *Keeper) contact(answered bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.now()
	switch {
	case !answered:
		k.since = time.Time{}
		return
	case k.since.IsZero() || now.Sub(k.last) > silence:
		k.since = now
	}
	k.last = now
}

// settled says whether the keeper has seen the API for long enough.
func (k *Keeper) settled() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.since.IsZero() && k.now().Sub(k.since) >= k.Settling
}

// quiet says that the API was not asked anything for a while.
func (k *Keeper) quiet() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.now().Sub(k.last) > silence/3
}

// closed says why nobody on this node takes anything of the pool, empty if somebody may.
func (k *Keeper) closed(p pool.Pool) string {
	if p.Spec.Paused && p.Metadata.DeletionTimestamp == "" {
		return "spec.paused is true"
	}
	return k.barred(p)
}

// barred is closed for an import: it does not mind a pause.
func (k *Keeper) barred(p pool.Pool) string {
	switch r := p.Recovery(); {
	case p.Metadata.DeletionTimestamp != "":
		return "it is being deleted"
	case r != nil:
		return "the API has lost what nodes have, and waits for all nodes: " + r.Why
	case p.Status.Problem != "":
		return p.Status.Problem
	case k.lostSequence(p):
		return "the API has an older state of it than this node has seen"
	case !k.settled():
		return "the Kubernetes API has just come back, and other nodes may tell what it has lost; try again in some seconds"
	}
	return ""
}

// lostSequence says whether this keeper has seen a newer status of the pool.
func (k *Keeper) lostSequence(p pool.Pool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	id := p.Metadata.Name + " " + p.Metadata.UID
	if p.Status.Sequence < k.sequence[id] {
		return true
	}
	k.sequence[id] = p.Status.Sequence
	return false
}

// acceptSequence begins anew with the status that a recovering pool has: what was newer is lost.
func (k *Keeper) acceptSequence(p pool.Pool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sequence[p.Metadata.Name+" "+p.Metadata.UID] = p.Status.Sequence
}

// alarm is called if this node has more of a pool than the API knows. It stops all nodes from taking anything new of it. It
// returns an error in any case.
func (m *member) alarm(ctx context.Context, name string, lost error) error {
	m.Log.Error("the Kubernetes API has lost what this node has: the pool gives nothing new until all nodes have said what they have", "pool", name, "error", lost)
	return unavailable(errors.Join(lost, m.declare(ctx, name, lost.Error())))
}

// declare begins the pool's recovery.
func (k *Keeper) declare(ctx context.Context, name, why string) error {
	for range mostTries {
		p, err := k.API.Pool(ctx, name)
		if err != nil || p.Recovery() != nil {
			return err
		}
		r := pool.Recovery{Since: k.now().UTC().Format(time.RFC3339), Why: "node " + k.Node + ": " + why}
		if _, err = k.API.UpdatePool(ctx, p.WithRecovery(&r)); !errors.Is(err, pool.ErrConflict) {
			return err
		}
	}
	return pool.ErrConflict
}

// recover reads all pools, and asserts what the stores of this node have, in each pool that recovers.
func (k *Keeper) recover(ctx context.Context) error {
	pools, err := k.API.Pools(ctx)
	if err != nil {
		return unavailable(err)
	}
	var errs []error
	for _, p := range pools {
		_, _ = k.learn(p) // Who needs a pool whose spec is wrong says so.
		if p.Recovery() == nil && k.lostSequence(p) {
			errs = append(errs, k.declare(ctx, p.Metadata.Name, "it has seen a newer status of the pool"))
		}
		if r := p.Recovery(); r != nil {
			errs = append(errs, k.recoverPool(ctx, p.Metadata.Name, *r))
			k.acceptSequence(p)
		}
	}
	return errors.Join(errs...)
}

func (k *Keeper) recoverPool(ctx context.Context, name string, r pool.Recovery) error {
	if _, missing := r.Asserts(k.Node); !missing {
		return nil
	}
	all, err := k.all()
	if err != nil {
		return err
	}
	for _, m := range all {
		if err := m.assertPool(ctx, name); err != nil {
			return err
		}
		again := func(ctx context.Context) error { return m.compareClaims(ctx, m.reassert) }
		if err := m.alone(ctx, again); err != nil {
			return err
		}
	}
	for range mostTries {
		p, err := k.API.Pool(ctx, name)
		if err != nil || p.Recovery() == nil {
			return err
		}
		next, missing := p.Recovery().Asserts(k.Node)
		if !missing {
			return nil
		}
		if _, err = k.API.UpdatePool(ctx, p.WithRecovery(&next)); !errors.Is(err, pool.ErrConflict) {
			return err
		}
	}
	return pool.ErrConflict
}

// assertPool tells the API all that the store has of the pool.
func (m *member) assertPool(ctx context.Context, name string) error {
	done, err := m.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	s, err := m.state(ctx)
	if err != nil || s.ID == "" {
		return ignore(err, lease.ErrNone)
	}
	var errs []error
	for _, g := range s.of(name).Grants {
		if !g.Empty() {
			errs = append(errs, m.assert(ctx, g, s))
		}
	}
	return errors.Join(errs...)
}

// assert tells the API what the store has of a block.
func (m *member) assert(ctx context.Context, g pool.Grant, s state) error {
	for range mostTries {
		b, err := m.API.Block(ctx, g.Name())
		there := err == nil
		if errors.Is(err, pool.ErrNotThere) {
			l, err := m.layout(ctx, g.Pool)
			if err != nil {
				return err
			}
			b, _ = pool.NewBlock(l, g.Index, s.me, s.of(g.Pool).Session)
		} else if err != nil {
			return unavailable(err)
		}
		next, others := g.Assert(b, s.me)
		next, _ = next.Obey(s.me, s.of(g.Pool).FenceAfter)
		for _, a := range others {
			m.Log.Error("another node has an address that this node has, too: the API had lost it. Look at both nodes' pods", "address", a.String(), "block", b.Metadata.Name)
		}
		var made pool.Block
		if there {
			made, err = m.API.UpdateBlock(ctx, next)
		} else {
			made, err = m.API.CreateBlock(ctx, next)
		}
		if errors.Is(err, pool.ErrConflict) || errors.Is(err, pool.ErrExists) || errors.Is(err, pool.ErrNotThere) {
			continue
		}
		if err != nil {
			return unavailable(err)
		}
		m.wrote(nil)
		kept, err := g.Asserted(made, s.me)
		if err != nil {
			return err
		}
		return m.put(ctx, g, kept)
	}
	return unavailable(pool.ErrConflict)
}
