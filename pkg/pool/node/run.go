package node

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

const (
	// batchDelay is how long the controller waits after a change of a store: ADDs come in groups.
	batchDelay = 50 * time.Millisecond
	// balanceInterval is the time between two looks at each store. A controller reads all of its blocks anew after syncInterval.
	balanceInterval = 30 * time.Second
	syncInterval    = 10 * time.Minute
	// idleInterval is the time between two questions of a node without pools.
	idleInterval = 5 * time.Minute
)

// Run keeps the stores until ctx ends. It watches nothing before a network of this node has a pool: most clusters have none.
func (nc *Controller) Run(ctx context.Context) {
	defer nc.stopBackground()
	if nc.usesPools(ctx) {
		nc.noteUse()
	}
	if !nc.waitForPools(ctx) {
		return
	}
	changes := make(chan pool.Change)
	var beside sync.WaitGroup
	defer beside.Wait()
	if nc.Watch != nil {
		beside.Go(func() { nc.Watch(ctx, changes) })
	}
	nc.reconcileLoop(ctx, changes)
}

// waitForPools waits until a network of this node has a pool. It returns false if ctx ends first. A pool that recovers waits for all nodes, so
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
func (nc *Controller) usesPools(ctx context.Context) bool {
	stores, err := nc.allStores()
	nc.logOnce("open the stores", err)
	return slices.ContainsFunc(stores, func(sc *storeController) bool {
		g, err := sc.store.Granted(ctx)
		return err == nil && g.ID != ""
	})
}

// reconcileLoop is Run for a node that has pools. The changes only say where to look.
func (nc *Controller) reconcileLoop(ctx context.Context, changes <-chan pool.Change) {
	var stored <-chan fsnotify.Event
	if w, err := nc.watchStores(); err != nil {
		nc.Log.Warn("changes of the addresses are seen only every "+balanceInterval.String(), "error", err)
	} else {
		defer func() { _ = w.Close() }()
		stored = w.Events
	}
	tick := time.NewTicker(balanceInterval)
	defer tick.Stop()
	due := time.NewTimer(0)
	isDue := true // A further event does not put it off: ADDs can come all the time.
	next := nc.clock()
	back := time.NewTimer(nc.apiCheckDelay())
	defer back.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-changes:
			nc.handleChange(ctx, c)
			continue
		case <-back.C:
			nc.checkAPI(ctx)
			back.Reset(nc.apiCheckDelay())
			continue
		case e := <-stored:
			if filepath.Ext(e.Name) == ".db" && !isDue {
				due.Reset(batchDelay)
				isDue = true
			}
			continue
		case <-tick.C:
		case <-due.C:
			isDue = false
		}
		if instant := nc.clock(); !instant.Before(next) {
			next = instant.Add(syncInterval + rand.N(syncInterval/4))
			nc.logOnce("read the pools", nc.syncAll(ctx))
		}
		nc.logOnce("keep the pools", nc.eachStore(ctx, (*storeController).balance))
		if nc.apiIdle() {
			nc.logOnce("ask the Kubernetes API", nc.recoverPools(ctx))
		}
	}
}

// apiCheckDelay is the pause between two checks whether the API is back. It is less than half of the time that a controller waits before it takes
// anything new. Meanwhile a controller that knows of a loss can report it.
func (nc *Controller) apiCheckDelay() time.Duration { return nc.Settling/5 + rand.N(nc.Settling/5+1) }

// checkAPI reads all blocks of all stores as soon as the API answers again. What was read before may be lost.
func (nc *Controller) checkAPI(ctx context.Context) {
	if !nc.takeMissed() {
		return
	}
	if err := nc.syncAll(ctx); nc.apiReachable() {
		nc.logOnce("read the pools", err)
	}
}

// watchStores watches the directory of the stores.
func (nc *Controller) watchStores() (*fsnotify.Watcher, error) {
	if err := os.MkdirAll(nc.Dir, 0o700); err != nil {
		return nil, err
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := w.Add(nc.Dir); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// logOnce logs an error of the operation, unless it is the same as the last one.
func (nc *Controller) logOnce(operation string, err error) {
	nc.mu.Lock()
	defer nc.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == nc.loggedErrors[operation] {
		return
	}
	nc.loggedErrors[operation] = text
	if err != nil {
		nc.Log.Warn(operation, "error", err)
	}
}

// Reconcile does at once for each store what Run does every few seconds.
func (nc *Controller) Reconcile(ctx context.Context) {
	nc.logOnce("read the pools", nc.syncAll(ctx))
	nc.logOnce("keep the pools", nc.eachStore(ctx, (*storeController).balance))
}

// handleChange looks at what a watch has named.
func (nc *Controller) handleChange(ctx context.Context, c pool.Change) {
	if c.APIDown {
		nc.noteAnswer(false)
		return
	}
	if c.Pool != "" {
		nc.logOnce("read the pools that have changed", errors.Join(nc.recoverPools(ctx), nc.relayAllLayouts(ctx)))
		return
	}
	err := nc.eachStore(ctx, func(sc *storeController, ctx context.Context) error { return sc.reconcileChange(ctx, c) })
	nc.logOnce("look at AddressBlock "+c.Block, err)
}

// reconcileChange looks at a block that has changed.
func (sc *storeController) reconcileChange(ctx context.Context, c pool.Change) error {
	name, index, ok := pool.ParseBlockName(c.Block)
	if !ok || sc.handledVersions[c.Block] == c.Version {
		return nil // This store has made the change.
	}
	s, err := sc.state(ctx)
	if err != nil || s.ID == "" {
		return err
	}
	return sc.reconcileBlock(ctx, name, index)
}

// syncAll reads all blocks of all stores.
func (nc *Controller) syncAll(ctx context.Context) error {
	nc.readUID(ctx)
	return errors.Join(nc.eachStore(ctx, (*storeController).sync), nc.eachStore(ctx, func(sc *storeController, ctx context.Context) error { return sc.reconcileClaims(ctx, false) }), nc.recoverPools(ctx), nc.relayAllLayouts(ctx))
}

// relayAllLayouts tells the stores what the pools are like now: their exclude, gateway and routes hold for the next ADD.
func (nc *Controller) relayAllLayouts(ctx context.Context) error {
	return nc.eachStore(ctx, (*storeController).relayLayouts)
}

// relayLayouts tells the store what its pools are like now. It leaves out pools of which the store has never had an address.
func (sc *storeController) relayLayouts(ctx context.Context) error {
	s, err := sc.state(ctx)
	if err != nil {
		return err
	}
	sc.mu.Lock()
	layouts := maps.Clone(sc.layouts)
	sc.mu.Unlock()
	for _, p := range s.Pools {
		if l, found := layouts[p.Name]; found && p.Layout.Name != "" {
			err = errors.Join(err, sc.store.PutGrants(ctx, l, nil))
		}
	}
	return err
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
