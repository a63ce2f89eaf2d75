package keeper

import (
	"context"
	"errors"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
)

// witness is an API that tells the keeper whether it answers.
type witness struct {
	pool.API
	keeper *Keeper
}

// promptly is how long an API that works takes to answer at most.
const promptly = time.Second

// saw makes a request, and notes what the error says of the API: each of package pool's errors is an answer. A request that its
// caller has ended before it was due says nothing. A busy API is not away, and has not looked at what it has: that says nothing, too.
func saw[T any](ctx context.Context, w witness, ask func() (T, error)) (T, error) {
	began := w.keeper.now()
	made, err := ask()
	if errors.Is(err, pool.ErrBusy) {
		return made, err
	}
	is := answered(err)
	if is || ctx.Err() == nil || w.keeper.now().Sub(began) > promptly {
		w.keeper.contact(is)
	}
	return made, err
}

// Writes returns how many changes of blocks and claims the keeper has made in the API.
func (k *Keeper) Writes() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.writes
}

// LastAnswer returns when the API answered last. Before the first answer it is when the keeper was made. uses says whether a
// network of this node has a pool, so that the keeper asks all the time.
func (k *Keeper) LastAnswer() (at time.Time, uses bool) {
	select {
	case <-k.used:
		uses = true
	default:
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if at = k.last; at.IsZero() {
		at = k.made
	}
	return at, uses
}

// wrote counts a change of the API, if it has succeeded.
func (k *Keeper) wrote(err error) {
	if err != nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.writes++
}

func answered(err error) bool {
	if err == nil {
		return true
	}
	for _, e := range []error{pool.ErrNotThere, pool.ErrExists, pool.ErrConflict, pool.ErrRefused} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func (w witness) Pool(ctx context.Context, name string) (pool.Pool, error) {
	return saw(ctx, w, func() (pool.Pool, error) { return w.API.Pool(ctx, name) })
}

func (w witness) Pools(ctx context.Context) ([]pool.Pool, error) {
	return saw(ctx, w, func() ([]pool.Pool, error) { return w.API.Pools(ctx) })
}

func (w witness) Block(ctx context.Context, name string) (pool.Block, error) {
	return saw(ctx, w, func() (pool.Block, error) { return w.API.Block(ctx, name) })
}

func (w witness) Blocks(ctx context.Context, name string) ([]pool.Block, error) {
	return saw(ctx, w, func() ([]pool.Block, error) { return w.API.Blocks(ctx, name) })
}

func (w witness) BlocksOf(ctx context.Context, node string) ([]pool.Block, error) {
	return saw(ctx, w, func() ([]pool.Block, error) { return w.API.BlocksOf(ctx, node) })
}
