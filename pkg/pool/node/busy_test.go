package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
)

// errorAPI is an API that answers each question for all pools with an error.
type errorAPI struct {
	pool.API
	err error
}

func (a *errorAPI) Pools(context.Context) ([]pool.Pool, error) { return nil, a.err }

// A controller takes nothing new for a while after the API was away. An API that was only busy has lost nothing meanwhile.
func TestABusyAPIIsNotAway(t *testing.T) {
	for name, test := range map[string]struct {
		with    error
		settled bool
	}{
		"it answers":       {nil, true},
		"it refuses":       {fmt.Errorf("list: %w", pool.ErrRefused), true},
		"it is busy":       {fmt.Errorf("list: %w", pool.ErrBusy), true},
		"it is not there":  {errors.New("connection refused"), false},
		"it took too long": {context.DeadlineExceeded, false},
	} {
		api := &errorAPI{}
		nc := New(Config{API: api, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
		now := time.Now()
		nc.clock = func() time.Time { return now }
		ask := func() { _, _ = nc.API.Pools(t.Context()) }
		ask()
		now = now.Add(2 * defaultSettling)
		api.err = test.with
		ask()
		api.err = nil
		ask()
		if got := nc.settled(); got != test.settled {
			t.Errorf("%s: the keeper may take something is %t", name, got)
		}
	}
	api := &errorAPI{err: pool.ErrBusy}
	nc := New(Config{API: api, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Settling: time.Nanosecond})
	_, _ = nc.API.Pools(t.Context())
	time.Sleep(time.Millisecond)
	if nc.settled() {
		t.Error("an API that was only ever busy has been seen")
	}
}

// busyAPI is an API with a pool, which is too busy to make a block.
type busyAPI struct {
	pool.API
	asked []string
}

func (b *busyAPI) Pool(context.Context, string) (pool.Pool, error) {
	return pool.Pool{
		Metadata: pool.Meta{Name: "lan", UID: "1", ResourceVersion: "1", Finalizers: []string{pool.Finalizer}}, Spec: pool.Spec{Subnet: "10.0.0.0/24"},
	}, nil
}

func (b *busyAPI) Pools(ctx context.Context) ([]pool.Pool, error) {
	p, err := b.Pool(ctx, "lan")
	return []pool.Pool{p}, err
}

func (b *busyAPI) Node(context.Context, string) (pool.Node, error) {
	return pool.Node{Name: "node1", UID: "1"}, nil
}

func (b *busyAPI) BlocksOf(context.Context, string) ([]pool.Block, error) { return nil, nil }

func (b *busyAPI) Block(_ context.Context, name string) (pool.Block, error) {
	b.asked = append(b.asked, "get "+name)
	return pool.Block{}, pool.ErrNotFound
}

func (b *busyAPI) CreateBlock(context.Context, pool.Block) (pool.Block, error) {
	b.asked = append(b.asked, "create")
	return pool.Block{}, fmt.Errorf("create AddressBlock: %w", pool.ErrBusy)
}

// A block that the API was too busy to make was not made. Nobody asks a busy API whether it was.
func TestABusyAPIHasMadeNothing(t *testing.T) {
	api := &busyAPI{}
	nc := New(Config{API: api, Node: "node1", Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Settling: time.Nanosecond})
	err := nc.Refill(t.Context(), pool.Demand{Network: "lan", Pools: []string{"lan"}, Probes: true})
	if !errors.Is(err, pool.ErrUnavailable) || !errors.Is(err, pool.ErrBusy) {
		t.Errorf("%v", err)
	}
	if fmt.Sprint(api.asked) != "[create]" {
		t.Errorf("the API was asked %q", api.asked)
	}
}
