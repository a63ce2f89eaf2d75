package node

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/printable"
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

// takeMissed says whether the API was away, or the labels of the node have changed, since the last call.
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

// unsafeReason says why what is taken of the pool now could be another's, empty if it cannot.
func (nc *Controller) unsafeReason(p pool.Pool) string {
	switch r := p.Status.Recovery; {
	case p.Metadata.DeletionTimestamp != "":
		return "it is being deleted"
	case r != nil:
		return "the API has lost what nodes have, and waits for all nodes: " + r.Message
	case nc.lostSequence(p):
		return "the API has an older state of it than this node has seen"
	case !nc.settled():
		return "the Kubernetes API has just come back, and other nodes may tell what it has lost; try again in some seconds"
	}
	return ""
}

// hasNewerSequence says whether this controller has read a newer status of the pool.
func (nc *Controller) hasNewerSequence(p pool.Pool) bool {
	nc.mu.Lock()
	defer nc.mu.Unlock()
	return p.Status.Sequence < nc.sequence[p.Metadata.Name+" "+p.Metadata.UID]
}

// lostSequence is hasNewerSequence for a pool that was just read. It notes the status as read.
func (nc *Controller) lostSequence(p pool.Pool) bool {
	lost := nc.hasNewerSequence(p)
	if !lost {
		nc.acceptSequence(p)
	}
	return lost
}

// acceptSequence notes the status as the newest one. Of a recovering pool the API has lost what was newer.
func (nc *Controller) acceptSequence(p pool.Pool) {
	nc.mu.Lock()
	defer nc.mu.Unlock()
	nc.sequence[p.Metadata.Name+" "+p.Metadata.UID] = p.Status.Sequence
}

// declareLoss begins the recovery of a pool of which this node has more than the API knows: no node takes anything new of it then. It
// returns an error in any case.
func (sc *storeController) declareLoss(ctx context.Context, name string, lost error) error {
	sc.Log.Error("the Kubernetes API has lost what this node has: the pool gives nothing new until all nodes have said what they have", "pool", name, "error", lost)
	return errors.Join(lost, sc.beginRecovery(ctx, name, lost.Error()), sc.assertAgain(ctx, name))
}

// assertAgain asserts what the store has in a recovery that says that this node has asserted: the backup can be of a time after that.
func (sc *storeController) assertAgain(ctx context.Context, name string) error {
	p, err := sc.pool(ctx, name)
	r := p.Status.Recovery
	if err != nil || r == nil || !slices.Contains(r.Asserted, sc.Node) {
		return err
	}
	s, err := sc.state(ctx)
	if err != nil {
		return err
	}
	return sc.assertPool(ctx, name, *r, s)
}

// beginRecovery begins the pool's recovery.
func (nc *Controller) beginRecovery(ctx context.Context, name, reason string) error {
	return nc.updatePool(ctx, name, nc.API.UpdatePoolStatus, func(p pool.Pool) (pool.Pool, bool) {
		r := pool.Recovery{Message: printable.Shorten("node "+nc.Node+": "+reason, pool.MaxMessage), Nodes: []string{nc.Node}}
		return p.WithRecovery(&r), p.Status.Recovery == nil
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
		errs = append(errs, nc.recoverRead(ctx, p))
	}
	return errors.Join(errs...)
}

// recoverRead is recoverPools for a pool that was just read.
func (nc *Controller) recoverRead(ctx context.Context, p pool.Pool) error {
	_, _ = nc.cacheLayout(p) // Whoever needs a pool with a wrong spec reports it.
	if r := p.Status.Recovery; r != nil {
		nc.acceptSequence(p)
		return nc.recoverPool(ctx, p.Metadata.Name, *r)
	}
	if nc.lostSequence(p) {
		return nc.beginRecovery(ctx, p.Metadata.Name, "it has seen a newer status of the pool")
	}
	return nil
}
