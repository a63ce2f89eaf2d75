package node

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
	"k8s.io/client-go/util/workqueue"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

const (
	// batchDelay is how long the controller waits after a change of a store: ADDs come in groups.
	batchDelay = 50 * time.Millisecond
	// retryDelay is the pause after the first failure of a task. The pauses double, up to balanceInterval.
	retryDelay = time.Second
	// balanceInterval is the time between two looks at each store. A controller reads all of its blocks anew after syncInterval.
	balanceInterval = 30 * time.Second
	syncInterval    = 10 * time.Minute
	// idleInterval is the time between two questions of a node without pools.
	idleInterval = 5 * time.Minute
	// workers is how many tasks are done at a time, each of another store.
	workers = 4
)

// task is what there is to do: the zero task is to bring all stores and the API together. The queue has each task once.
type task struct {
	// network is the store that has to be balanced, and block the block that it has to reconcile.
	network, block string
	// pool is the pool that has changed.
	pool string
}

// String says what is done, for the log.
func (t task) String() string {
	switch {
	case t.pool != "":
		return "read AddressPool " + t.pool
	case t.block != "":
		return "look at AddressBlock " + t.block
	}
	return "keep the pools"
}

// queue is the tasks that wait.
type queue = workqueue.TypedRateLimitingInterface[task]

func newQueue() queue {
	return workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[task](retryDelay, balanceInterval))
}

// Run keeps the stores until ctx ends. It watches nothing before a network of this node has a pool: most clusters have none.
func (nc *Controller) Run(ctx context.Context) {
	defer nc.stopBackground()
	if nc.usesPools(ctx) {
		nc.noteUse()
	}
	if !nc.waitForPools(ctx) {
		return
	}
	q := newQueue()
	var running sync.WaitGroup
	defer running.Wait()
	defer q.ShutDown()
	if nc.Watch != nil {
		running.Go(func() { nc.Watch(ctx, nc.handler(q)) })
	}
	running.Go(func() { nc.watchStores(ctx, q) })
	running.Go(func() { nc.watchAPI(ctx, q) })
	nc.do(ctx, q, task{}) // Before what the watches show: that is the same.
	for range workers {
		running.Go(func() {
			for t, ended := q.Get(); !ended; t, ended = q.Get() {
				nc.do(ctx, q, t)
				q.Done(t)
			}
		})
	}
	<-ctx.Done()
}

// do does a task, and puts it back for the next time.
func (nc *Controller) do(ctx context.Context, q queue, t task) {
	var err error
	next := time.Duration(0) // A block and a pool wait for a change.
	switch {
	case t == task{}:
		err, next = nc.syncAll(ctx), syncInterval+rand.N(syncInterval/4)
		for network := range nc.knownStores() {
			q.Add(task{network: network})
		}
	case t.pool != "":
		err = nc.reconcilePool(ctx, t.pool)
	default:
		sc, wrong := nc.storeController(t.network)
		switch {
		case wrong != nil:
			err = wrong
		case len(sc.turn) > 0: // Whoever waits for a store that hangs keeps the others from a worker.
			q.AddAfter(t, batchDelay)
			return
		case t.block != "":
			err = sc.withTurn(ctx, func(ctx context.Context) error { return sc.reconcileChanged(ctx, t.block) })
		default:
			err, next = sc.withTurn(ctx, sc.balance), balanceInterval
		}
	}
	nc.logOnce(t.String()+" "+t.network, t.String(), err)
	switch {
	case err != nil && ctx.Err() == nil:
		q.AddRateLimited(t)
		return
	case next > 0:
		q.AddAfter(t, next)
	}
	q.Forget(t)
}

// waitForPools waits until a network of this node has a pool. It returns false if ctx ends first. A whole pool that recovers waits for all nodes, so
// this node says from time to time that it has nothing. It does so even in a cluster without pools.
func (nc *Controller) waitForPools(ctx context.Context) bool {
	tick := time.NewTicker(idleInterval + rand.N(idleInterval/4))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-nc.poolsUsed:
			return true
		case <-tick.C:
			_ = nc.recoverPools(ctx)
		}
	}
}

// usesPools says whether a network of this node has a pool.
func (nc *Controller) usesPools(ctx context.Context) (uses bool) {
	stores, err := nc.allStores()
	nc.logOnce("stores", "open the stores", err)
	for _, sc := range stores {
		if g, err := sc.store.Granted(ctx); err == nil && g.ID != "" {
			sc.noteGranted(g)
			uses = true
		}
	}
	return uses
}

// watchAPI reads all blocks of all stores as soon as the API answers again, because what was read before may be lost, and as soon as the node has
// changed. It asks for the pools if nothing else has asked the API for a while, so that a controller knows whether the API is there. Its pauses
// are shorter than half of the time that a controller waits before it takes anything new. Meanwhile a controller that knows of a loss can report it.
func (nc *Controller) watchAPI(ctx context.Context, q queue) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(nc.Settling/5 + rand.N(nc.Settling/5+1)):
		}
		switch {
		case nc.takeMissed():
			q.Add(task{})
		case nc.apiIdle():
			nc.logOnce("API", "ask the Kubernetes API", nc.recoverPools(ctx))
		}
	}
}

// watchStores balances a store that has changed. A further change does not put it off: ADDs can come all the time.
func (nc *Controller) watchStores(ctx context.Context, q queue) {
	err := os.MkdirAll(nc.Dir, 0o700)
	var w *fsnotify.Watcher
	if err == nil {
		w, err = fsnotify.NewWatcher()
	}
	if err == nil {
		defer func() { _ = w.Close() }()
		err = w.Add(nc.Dir)
	}
	if err != nil {
		nc.Log.Warn("changes of the addresses are seen only every "+balanceInterval.String(), "error", err)
		return
	}
	for {
		select {
		case <-ctx.Done():
			return
		case err := <-w.Errors:
			nc.Log.Warn("some changes of the addresses are seen only after "+balanceInterval.String(), "error", err)
		case e := <-w.Events:
			if network, found := strings.CutSuffix(filepath.Base(e.Name), ".db"); found && lease.CheckName(network) == nil {
				q.AddAfter(task{network: network}, batchDelay)
			}
		}
	}
}

// handler puts into the queue what the watches show. Only stores that have to do with a block look at it.
func (nc *Controller) handler(q queue) pool.Handler {
	return pool.Handler{
		APIDown:     func() { nc.noteAnswer(false) },
		NodeChanged: nc.noteNode,
		PoolChanged: func(before, after *pool.Pool) {
			if after != nil && nc.actsOn(before, *after) {
				q.Add(task{pool: after.Metadata.Name})
			}
		},
		BlockChanged: func(before, after *pool.Block) {
			b := cmp.Or(after, before)
			nc.noteVersion(b.Metadata.Name, after)
			for network, known := range nc.knownStores() {
				if known.names(nc.Node, before) || known.names(nc.Node, after) || slices.Contains(known.blocks, b.Metadata.Name) {
					q.Add(task{network: network, block: b.Metadata.Name})
				}
			}
		},
	}
}

// Reconcile does at once for each store what Run does again and again.
func (nc *Controller) Reconcile(ctx context.Context) {
	nc.logOnce("sync", "read the pools", nc.syncAll(ctx))
	nc.logOnce("balance", "keep the pools", nc.eachStore(ctx, (*storeController).balance))
}

// logOnce logs an error of the operation, unless it is the same as the last one with this key.
func (nc *Controller) logOnce(key, operation string, err error) {
	nc.mu.Lock()
	defer nc.mu.Unlock()
	if err == nil {
		delete(nc.loggedErrors, key)
		return
	}
	if text := err.Error(); text != nc.loggedErrors[key] {
		nc.loggedErrors[key] = text
		nc.Log.Warn(operation, "error", err)
	}
}

// syncAll reads all blocks of the node, and brings the stores and the API together.
func (nc *Controller) syncAll(ctx context.Context) error {
	_, _ = nc.readNode(ctx) // Without an answer, what was known of it counts.
	pools, err := nc.API.Pools(ctx)
	if err != nil {
		return err
	}
	for _, p := range pools {
		_, _ = nc.cacheLayout(p)
	}
	blocks, err := nc.API.BlocksOf(ctx, nc.Node)
	if err != nil {
		return err
	}
	err = nc.eachStore(ctx, func(sc *storeController, ctx context.Context) error {
		return errors.Join(sc.chooseAgain(ctx), sc.syncBlocks(ctx, blocks))
	})
	claims, wrong := nc.API.ClaimsOf(ctx, nc.Node)
	if wrong == nil {
		wrong = nc.eachStore(ctx, func(sc *storeController, ctx context.Context) error { return sc.reconcileClaims(ctx, claims, false) })
	}
	return errors.Join(err, wrong, nc.recoverPools(ctx), nc.eachStore(ctx, (*storeController).relayLayouts))
}

// withTurn calls f when it is the store's turn.
func (sc *storeController) withTurn(ctx context.Context, f func(context.Context) error) error {
	release, err := sc.takeTurn(ctx)
	if err != nil {
		return err
	}
	defer release()
	return ignore(f(ctx), lease.ErrNotLeased)
}
