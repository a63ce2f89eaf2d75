package node

import (
	"context"
	"errors"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
)

// apiHealth is an API that tells the controller whether it answers.
type apiHealth struct {
	pool.API
	controller *Controller
}

// promptAnswer is the longest time in which an API that works answers.
const promptAnswer = time.Second

// observeRequest makes a request, and notes what the error says of the API: each of package pool's errors is an answer. A request that its
// caller has ended early says nothing. ErrBusy says nothing, too: the API is there, but has not looked at its objects.
func observeRequest[T any](ctx context.Context, w apiHealth, ask func() (T, error)) (T, error) {
	began := w.controller.clock()
	result, err := ask()
	if errors.Is(err, pool.ErrBusy) {
		return result, err
	}
	reachable := isAnswer(err)
	if reachable || ctx.Err() == nil || w.controller.clock().Sub(began) > promptAnswer {
		w.controller.noteAnswer(reachable)
	}
	return result, err
}

// LastAnswer returns when the API answered last. Before the first answer it is when the controller was made. uses says whether a
// network of this node has a pool, so that the controller asks all the time.
func (nc *Controller) LastAnswer() (instant time.Time, uses bool) {
	select {
	case <-nc.poolsUsed:
		uses = true
	default:
	}
	nc.mu.Lock()
	defer nc.mu.Unlock()
	if instant = nc.lastAnswer; instant.IsZero() {
		instant = nc.startedAt
	}
	return instant, uses
}

func isAnswer(err error) bool {
	return ignore(err, pool.ErrNotFound, pool.ErrExists, pool.ErrConflict, pool.ErrRefused) == nil
}

func (w apiHealth) Pool(ctx context.Context, name string) (pool.Pool, error) {
	return observeRequest(ctx, w, func() (pool.Pool, error) { return w.API.Pool(ctx, name) })
}

func (w apiHealth) Pools(ctx context.Context) ([]pool.Pool, error) {
	return observeRequest(ctx, w, func() ([]pool.Pool, error) { return w.API.Pools(ctx) })
}

func (w apiHealth) Block(ctx context.Context, name string) (pool.Block, error) {
	return observeRequest(ctx, w, func() (pool.Block, error) { return w.API.Block(ctx, name) })
}

func (w apiHealth) Blocks(ctx context.Context, name string) ([]pool.Block, error) {
	return observeRequest(ctx, w, func() ([]pool.Block, error) { return w.API.Blocks(ctx, name) })
}

func (w apiHealth) BlocksOf(ctx context.Context, node string) ([]pool.Block, error) {
	return observeRequest(ctx, w, func() ([]pool.Block, error) { return w.API.BlocksOf(ctx, node) })
}
