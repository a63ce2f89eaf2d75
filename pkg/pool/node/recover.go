package node

import (
	"context"
	"errors"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
)

// defaultSettling is how long a controller has seen the API before it takes anything new. If the API has lost something, the nodes that know
// of it tell it meanwhile.
const defaultSettling = 5 * time.Second

// maxSilence is the time without an answer after which a controller settles again.
const maxSilence = time.Minute

// noteAnswer notes that the API has answered, or has not.
func (nc *Controller) noteAnswer(answered bool) {
	nc.mu.Lock()
	defer nc.mu.Unlock()
	instant := nc.clock()
	switch {
	case !answered:
		nc.reachableSince, nc.missed = time.Time{}, true
		return
	case nc.reachableSince.IsZero():
		nc.reachableSince = instant
	case instant.Sub(nc.lastAnswer) > maxSilence:
		nc.reachableSince, nc.missed = instant, true
	}
	nc.lastAnswer = instant
}

// apiReachable says whether the API has answered the last request.
func (nc *Controller) apiReachable() bool {
	nc.mu.Lock()
	defer nc.mu.Unlock()
	return !nc.reachableSince.IsZero()
}

// takeMissed says whether the API was away since the last call.
func (nc *Controller) takeMissed() (missed bool) {
	nc.mu.Lock()
	defer nc.mu.Unlock()
	missed, nc.missed = nc.missed, false
	return missed
}

// settled says whether the controller has seen the API for long enough.
func (nc *Controller) settled() bool {
	nc.mu.Lock()
	defer nc.mu.Unlock()
	return !nc.reachableSince.IsZero() && nc.clock().Sub(nc.reachableSince) >= nc.Settling
}

// apiIdle says that the API was not asked anything for a while.
func (nc *Controller) apiIdle() bool {
	nc.mu.Lock()
	defer nc.mu.Unlock()
	return nc.clock().Sub(nc.lastAnswer) > maxSilence/3
}

// closedReason says why nobody on this node takes anything of the pool, empty if somebody may. A pause is not in it.
func (nc *Controller) closedReason(p pool.Pool) string {
	switch r := p.Recovery(); {
	case p.Metadata.DeletionTimestamp != "":
		return "it is being deleted"
	case r != nil:
		return "the API has lost what nodes have, and waits for all nodes: " + r.Reason
	case nc.lostSequence(p):
		return "the API has an older state of it than this node has seen"
	case !nc.settled():
		return "the Kubernetes API has just come back, and other nodes may tell what it has lost; try again in some seconds"
	}
	return ""
}

// lostSequence says whether this controller has seen a newer status of the pool.
func (nc *Controller) lostSequence(p pool.Pool) bool {
	nc.mu.Lock()
	defer nc.mu.Unlock()
	id := p.Metadata.Name + " " + p.Metadata.UID
	if p.Status.Sequence < nc.sequence[id] {
		return true
	}
	nc.sequence[id] = p.Status.Sequence
	return false
}

// acceptSequence takes the status of a recovering pool as the newest one: the API has lost what was newer.
func (nc *Controller) acceptSequence(p pool.Pool) {
	nc.mu.Lock()
	defer nc.mu.Unlock()
	nc.sequence[p.Metadata.Name+" "+p.Metadata.UID] = p.Status.Sequence
}

// declareLoss begins the recovery of a pool of which this node has more than the API knows: no node takes anything new of it then. It
// returns an error in any case.
func (sc *storeController) declareLoss(ctx context.Context, name string, lost error) error {
	sc.Log.Error("the Kubernetes API has lost what this node has: the pool gives nothing new until all nodes have said what they have", "pool", name, "error", lost)
	return errors.Join(lost, sc.beginRecovery(ctx, name, lost.Error()))
}

// beginRecovery begins the pool's recovery.
func (nc *Controller) beginRecovery(ctx context.Context, name, reason string) error {
	return nc.updatePool(ctx, name, func(p pool.Pool) (pool.Pool, bool) {
		r := pool.Recovery{Since: nc.clock().UTC().Format(time.RFC3339), Reason: "node " + nc.Node + ": " + reason}
		return p.WithRecovery(&r), p.Recovery() == nil
	})
}

// recoverPools reads all pools, and asserts what the stores of this node have, in each pool that recovers.
func (nc *Controller) recoverPools(ctx context.Context) error {
	pools, err := nc.API.Pools(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, p := range pools {
		_, _ = nc.cacheLayout(p) // Whoever needs a pool with a wrong spec reports it.
		if p.Recovery() == nil && nc.lostSequence(p) {
			errs = append(errs, nc.beginRecovery(ctx, p.Metadata.Name, "it has seen a newer status of the pool"))
		}
		if r := p.Recovery(); r != nil {
			errs = append(errs, nc.recoverPool(ctx, p.Metadata.Name, *r))
			nc.acceptSequence(p)
		}
	}
	return errors.Join(errs...)
}
