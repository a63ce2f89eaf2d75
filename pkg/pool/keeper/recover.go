package keeper

import (
	"context"
	"errors"
	"time"

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
		k.since, k.missed = time.Time{}, true
		return
	case k.since.IsZero():
		k.since = now
	case now.Sub(k.last) > silence:
		k.since, k.missed = now, true
	}
	k.last = now
}

// answers says whether the API has answered the last request.
func (k *Keeper) answers() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.since.IsZero()
}

// hasMissed says whether the API was away since it was asked last, and forgets that.
func (k *Keeper) hasMissed() (missed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	missed, k.missed = k.missed, false
	return missed
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
		if errors.Is(err, pool.ErrNotThere) {
			return unknown(name)
		}
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
