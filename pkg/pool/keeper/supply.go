package keeper

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

// patience is how long a node that was asked for addresses has for its answer, before the next one is asked.
const patience = 200 * time.Millisecond

// supply returns when the store has an address of the pool to give.
func (m *member) supply(ctx context.Context, name string) error {
	m.wait(name, 1)
	defer m.wait(name, -1)
	for {
		news := m.listen()
		enough, err := m.trySupply(ctx, name)
		if enough || err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			none := fmt.Errorf("%w: no address of the pool %s is free, and no other node has given one in time", pool.ErrUnavailable, name)
			return errors.Join(none, err)
		case <-news:
		case <-time.After(patience):
		}
	}
}

// goesOn is how long a try goes on at most.
const goesOn = 30 * time.Second

// trySupply makes one try, as the only one for this store. If the ADD does not wait any more, the try goes on: the next ADD needs
// what it brings, and a busy API would have worked in vain.
func (m *member) trySupply(ctx context.Context, name string) (enough bool, err error) {
	done, err := m.begin(ctx)
	if err != nil {
		return false, err
	}
	type result struct {
		enough bool
		err    error
	}
	made := make(chan result, 1)
	go func() {
		defer done()
		ctx, cancel := m.goOn(ctx)
		defer cancel()
		enough, err := m.supplyNow(ctx, name)
		made <- result{enough, err}
	}()
	select {
	case r := <-made:
		return r.enough, r.err
	case <-ctx.Done():
		return false, unavailable(ctx.Err())
	}
}

// goOn returns a context for what goes on after the end of ctx. It ends with Run.
func (k *Keeper) goOn(ctx context.Context) (context.Context, context.CancelFunc) {
	k.mu.Lock()
	defer k.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goesOn)
	stop := context.AfterFunc(k.life, cancel)
	return ctx, func() { stop(); cancel() }
}

// rest ends what goes on, and waits for its end: it has the turn of its store.
func (k *Keeper) rest() {
	k.mu.Lock()
	k.die()
	k.life, k.die = context.WithCancel(context.Background())
	all := slices.Collect(maps.Values(k.members))
	k.mu.Unlock()
	for _, m := range all {
		m.turn <- struct{}{}
		<-m.turn
	}
}

// supplyNow is trySupply for who has the turn.
func (m *member) supplyNow(ctx context.Context, name string) (enough bool, err error) {
	s, err := m.ready(ctx, name)
	if err != nil {
		return false, err
	}
	if free(s.of(name)) > 0 {
		return true, nil
	}
	if m.now().Sub(m.filled[name]) < patience/2 {
		return false, nil // Another ADD has just looked for all that wait.
	}
	// The ADD that began this can have given up by now. It comes again, and needs an address then.
	err = m.fill(ctx, name, max(m.waits(name), 1))
	if m.filled[name] = m.now(); err != nil {
		return false, err
	}
	if s, err = m.state(ctx); err != nil {
		return false, unavailable(err)
	}
	return free(s.of(name)) > 0, nil
}

// free is how many addresses of the pool the store can give now.
func free(p lease.PoolState) int { return ours(p) - p.Used }

// wait notes that n more ADDs wait for the pool.
func (m *member) wait(name string, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting[name] += n
}

// listen returns what is closed when the store gets addresses.
func (m *member) listen() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.news
}
