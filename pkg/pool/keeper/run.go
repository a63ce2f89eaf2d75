package keeper

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

const (
	// pause is how long the keeper waits after a change of a store: ADDs come in groups.
	pause = 50 * time.Millisecond
	// every is the time between two looks at each store. A keeper reads all of its blocks anew after syncEvery.
	every     = 30 * time.Second
	syncEvery = 10 * time.Minute
	// idleEvery is the time between two questions of a node without pools.
	idleEvery = 5 * time.Minute
)

// Run keeps the stores until ctx ends. It watches nothing before a network of this node has a pool: most clusters have none.
func (k *Keeper) Run(ctx context.Context) {
	defer k.rest()
	if k.usesPools(ctx) {
		k.use.Do(func() { close(k.used) })
	}
	if !k.idle(ctx) {
		return
	}
	changes := make(chan pool.Change)
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { k.live(ctx) })
	if k.Watch != nil {
		beside.Go(func() { k.Watch(ctx, changes) })
	}
	k.keep(ctx, changes)
}

// idle waits until a network of this node has a pool. It returns false if ctx ends before. Pools that recover wait for all nodes, so
// the node says from time to time that it has nothing. It does not matter here whether the cluster has pools.
func (k *Keeper) idle(ctx context.Context) bool {
	tick := time.NewTicker(idleEvery + rand.N(idleEvery/4))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-k.used:
			return true
		case <-tick.C:
			_ = k.recover(ctx)
		}
	}
}

// usesPools says whether a network of this node has a pool.
func (k *Keeper) usesPools(ctx context.Context) bool {
	all, err := k.all()
	k.report("open the stores", err)
	return slices.ContainsFunc(all, func(m *member) bool {
		g, err := m.store.Granted(ctx)
		return err == nil && g.ID != ""
	})
}

// keep is Run for a node that has pools. The changes only say where to look.
func (k *Keeper) keep(ctx context.Context, changes <-chan pool.Change) {
	stores, err := k.watchStores()
	if err != nil {
		k.Log.Warn("changes of the addresses are seen only every "+every.String(), "error", err)
	} else {
		defer func() { _ = stores.Close() }()
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	due := time.NewTimer(0)
	isDue := true // A further event does not put it off: ADDs can come all the time.
	next := k.now()
	back := time.NewTimer(k.soon())
	defer back.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case c := <-changes:
			k.changed(ctx, c)
			continue
		case <-back.C:
			k.lookForAPI(ctx)
			back.Reset(k.soon())
			continue
		case e := <-events(stores):
			if networkOf(e.Name) != "" && !isDue {
				due.Reset(pause)
				isDue = true
			}
			continue
		case <-tick.C:
		case <-due.C:
			isDue = false
		}
		if now := k.now(); !now.Before(next) {
			next = now.Add(syncEvery + rand.N(syncEvery/4))
			k.report("read the pools", k.syncAll(ctx))
		}
		k.report("keep the pools", k.balanceAll(ctx))
		if k.quiet() {
			k.report("ask the Kubernetes API", k.recover(ctx))
		}
	}
}

// soon is after which time a keeper looks whether the API is back. All keepers do within half of the time that they wait before they
// take anything new: who knows of a loss can tell it meanwhile.
func (k *Keeper) soon() time.Duration { return k.Settling/5 + rand.N(k.Settling/5+1) }

// lookForAPI reads all blocks of all stores as soon as the API answers again. What was read before may be lost.
func (k *Keeper) lookForAPI(ctx context.Context) {
	if !k.hasMissed() {
		return
	}
	if err := k.syncAll(ctx); k.answers() {
		k.report("read the pools", err)
	}
}

// watchStores watches the directory of the stores.
func (k *Keeper) watchStores() (*fsnotify.Watcher, error) {
	if err := os.MkdirAll(k.Dir, 0o700); err != nil {
		return nil, err
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := w.Add(k.Dir); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func events(w *fsnotify.Watcher) chan fsnotify.Event {
	if w == nil {
		return nil
	}
	return w.Events
}

// report logs an error once, until it is another one.
func (k *Keeper) report(what string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text == k.reported[what] {
		return
	}
	k.reported[what] = text
	if err != nil {
		k.Log.Warn(what, "error", err)
	}
}

// Look does at once what Run does every some seconds for each store.
func (k *Keeper) Look(ctx context.Context) {
	k.report("read the pools", k.syncAll(ctx))
	k.report("keep the pools", k.balanceAll(ctx))
}

// changed looks at what a watch has named.
func (k *Keeper) changed(ctx context.Context, c pool.Change) {
	if c.Away {
		k.contact(false)
		return
	}
	if c.Pool != "" {
		k.report("read the pools that have changed", errors.Join(k.recover(ctx), k.relay(ctx)))
		return
	}
	all, err := k.all()
	for _, m := range all {
		err = errors.Join(err, m.look(ctx, c))
	}
	k.report("look at AddressBlock "+c.Block, err)
}

// look visits a block that has changed, if it concerns the store.
func (m *member) look(ctx context.Context, c pool.Change) error {
	done, err := m.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if m.seen[c.Block] == c.Version {
		return nil // This store has made the change.
	}
	s, err := m.state(ctx)
	if err != nil || s.ID == "" {
		return ignore(err, lease.ErrNone)
	}
	b, err := m.API.Block(ctx, c.Block)
	switch {
	case errors.Is(err, pool.ErrNotThere):
		name := poolOf(s, c.Block)
		for _, g := range s.of(name).Grants {
			if g.Name() == c.Block && !g.Empty() {
				return m.visit(ctx, name, g.Index)
			}
		}
		return nil
	case err != nil:
		return unavailable(err)
	case !m.concerns(s, b):
		return nil
	}
	err = m.meet(ctx, b)
	if errors.Is(err, pool.ErrConflict) || errors.Is(err, pool.ErrNotThere) {
		return m.visit(ctx, b.Spec.Pool, b.Spec.Index)
	}
	return err
}

// syncAll reads all blocks of all stores.
func (k *Keeper) syncAll(ctx context.Context) error {
	all, err := k.all()
	if len(all) > 0 {
		k.readUID(ctx)
	}
	for _, m := range all {
		err = errors.Join(err, m.alone(ctx, m.sync), m.alone(ctx, m.checkClaims))
	}
	return errors.Join(err, k.recover(ctx), k.relay(ctx))
}

// relay tells the stores what the pools are like now: their exclude, gateway and routes hold for the next ADD.
func (k *Keeper) relay(ctx context.Context) error {
	all, err := k.all()
	for _, m := range all {
		err = errors.Join(err, m.alone(ctx, m.relay))
	}
	return err
}

// relay tells the store of pools that have changed since it was told last. One of which it has never had anything does not matter.
func (m *member) relay(ctx context.Context) error {
	m.mu.Lock()
	now := maps.Clone(m.layouts)
	m.mu.Unlock()
	maps.DeleteFunc(now, func(name string, l pool.Layout) bool { return reflect.DeepEqual(m.told[name], l) })
	if len(now) == 0 {
		return nil
	}
	s, err := m.state(ctx)
	if err != nil {
		return err
	}
	for _, p := range s.Pools {
		l, changed := now[p.Name]
		if !changed || p.Layout.Name == "" {
			continue
		}
		if err := m.store.PutGrants(ctx, l, nil); err != nil {
			return err
		}
	}
	maps.Copy(m.told, now)
	return nil
}

// balanceAll takes and gives back for all stores.
func (k *Keeper) balanceAll(ctx context.Context) error {
	all, err := k.all()
	for _, m := range all {
		err = errors.Join(err, m.alone(ctx, m.balance))
	}
	return err
}

// alone calls f when it is the store's turn.
func (m *member) alone(ctx context.Context, f func(context.Context) error) error {
	done, err := m.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	return ignore(f(ctx), lease.ErrNone)
}
