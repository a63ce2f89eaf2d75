package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// answerTimeout is how long a node that was asked for addresses has for its answer, before the next one is asked.
const answerTimeout = 200 * time.Millisecond

// supplyAddress returns when the store has an address of the pool to give. Without probes, this is none that needs one.
func (sc *storeController) supplyAddress(ctx context.Context, name string, probes bool) error {
	sc.addWaiting(name, 1)
	defer sc.addWaiting(name, -1)
	enough := false
	err := sc.await(ctx, func() (_ bool, err error) {
		enough, err = sc.trySupply(ctx, name, probes)
		return enough, err
	})
	if !enough && ctx.Err() != nil {
		return errors.Join(fmt.Errorf("%w: no address of the pool %s is free, and no other node has given one in time", pool.ErrUnavailable, name), err)
	}
	return err
}

// await tries until a try brings what an ADD waits for, or fails. It tries again when the store has got addresses. At the end of ctx it returns
// the error of the last try.
func (sc *storeController) await(ctx context.Context, try func() (success bool, err error)) error {
	for {
		news := sc.arrivalSignal()
		success, err := try()
		if success || err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-news:
		case <-time.After(answerTimeout):
		}
	}
}

// detachedLimit is how long a try goes on at most.
const detachedLimit = 30 * time.Second

// trySupply makes one try, as the only one for this store. If the ADD does not wait any more, the try goes on: the next ADD needs
// what it brings, and a busy API would have worked in vain.
func (sc *storeController) trySupply(ctx context.Context, name string, probes bool) (enough bool, err error) {
	release, err := sc.takeTurn(ctx)
	if err != nil {
		return false, err
	}
	var success bool
	var failure error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer release()
		ctx, cancel := sc.detach(ctx)
		defer cancel()
		success, failure = sc.supplyInTurn(ctx, name, probes)
	}()
	select {
	case <-ended:
		return success, failure
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// detach returns a context for what goes on after the end of ctx. It ends with Run.
func (nc *Controller) detach(ctx context.Context) (context.Context, context.CancelFunc) {
	nc.mu.Lock()
	defer nc.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), detachedLimit)
	stop := context.AfterFunc(nc.background, cancel)
	return ctx, func() { stop(); cancel() }
}

// stopBackground ends the tries in the background, and waits for their ends: each has the turn of its store.
func (nc *Controller) stopBackground() {
	nc.mu.Lock()
	nc.cancelBackground()
	nc.background, nc.cancelBackground = context.WithCancel(context.Background())
	stores := slices.Collect(maps.Values(nc.stores))
	nc.mu.Unlock()
	for _, sc := range stores {
		sc.turn <- struct{}{}
		<-sc.turn
	}
}

// supplyInTurn is trySupply for the holder of the turn.
func (sc *storeController) supplyInTurn(ctx context.Context, name string, probes bool) (enough bool, err error) {
	s, err := sc.readyState(ctx, name)
	if err != nil {
		return false, err
	}
	unusable := 0
	if !probes {
		unusable = freeCount(s.poolState(name), string(pool.GrantedUnproven))
	}
	if freeCount(s.poolState(name), pool.GrantedChars) > unusable {
		return true, nil
	}
	if sc.clock().Sub(sc.filledAt[name]) < answerTimeout/2 {
		return false, nil // Another ADD has just looked for all that wait.
	}
	// The ADD that began this can have given up by now. It comes again, and needs an address then.
	err = sc.fill(ctx, name, unusable+max(sc.waitingCount(name), 1))
	if sc.filledAt[name] = sc.clock(); err != nil {
		return false, err
	}
	s, err = sc.state(ctx)
	return err == nil && freeCount(s.poolState(name), pool.GrantedChars) > unusable, err
}

// freeCount is how many addresses of the pool with one of the characters in their grants the store can give now.
func freeCount(p lease.PoolState, chars string) (n int) {
	for _, g := range p.Grants {
		n += p.Free(g, chars)
	}
	return n
}

// waitingCount is how many ADDs of this node wait for an address of the pool.
func (sc *storeController) waitingCount(name string) int {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return sc.waiting[name]
}

// addWaiting notes that n more ADDs wait for the pool.
func (sc *storeController) addWaiting(name string, n int) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.waiting[name] += n
}

// arrivalSignal returns the channel that is closed when the store gets addresses.
func (sc *storeController) arrivalSignal() <-chan struct{} {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	return sc.arrivals
}
