package keeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
)

// answers is an API that answers each question for all pools with an error.
type answers struct {
	pool.API
	with error
}

func (a *answers) Pools(context.Context) ([]pool.Pool, error) { return nil, a.with }

// A keeper takes nothing new for a while after the API was away. An API that was only busy has lost nothing meanwhile.
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
		api := &answers{}
		k := New(Options{API: api, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
		now := time.Now()
		k.now = func() time.Time { return now }
		ask := func() { _, _ = k.API.Pools(t.Context()) }
		ask()
		now = now.Add(2 * settling)
		api.with = test.with
		ask()
		api.with = nil
		ask()
		if got := k.settled(); got != test.settled {
			t.Errorf("%s: the keeper may take something is %t", name, got)
		}
	}
	api := &answers{with: pool.ErrBusy}
	k := New(Options{API: api, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Settling: time.Nanosecond})
	_, _ = k.API.Pools(t.Context())
	time.Sleep(time.Millisecond)
	if k.settled() {
		t.Error("an API that was only ever busy has been seen")
	}
}

// tooBusy is an API with a pool, which is too busy to make a block.
type tooBusy struct {
	pool.API
	asked []string
}

func (b *tooBusy) Pool(context.Context, string) (pool.Pool, error) {
	return pool.Pool{
		Metadata: pool.Meta{Name: "lan", UID: "1", ResourceVersion: "1", Finalizers: []string{pool.Finalizer}}, Spec: pool.Spec{Subnet: "10.0.0.0/24"},
	}, nil
}

func (b *tooBusy) Pools(ctx context.Context) ([]pool.Pool, error) {
	p, err := b.Pool(ctx, "lan")
	return []pool.Pool{p}, err
}

func (b *tooBusy) Node(context.Context, string) (pool.Node, error) {
	return pool.Node{Name: "node1", UID: "1"}, nil
}

func (b *tooBusy) BlocksOf(context.Context, string) ([]pool.Block, error) { return nil, nil }

func (b *tooBusy) Block(_ context.Context, name string) (pool.Block, error) {
	b.asked = append(b.asked, "get "+name)
	return pool.Block{}, pool.ErrNotThere
}

func (b *tooBusy) CreateBlock(context.Context, pool.Block) (pool.Block, error) {
	b.asked = append(b.asked, "create")
	return pool.Block{}, fmt.Errorf("create AddressBlock: %w", pool.ErrBusy)
}

// A block that the API was too busy to make was not made. Nobody asks a busy API whether it was.
func TestABusyAPIHasMadeNothing(t *testing.T) {
	api := &tooBusy{}
	k := New(Options{API: api, Node: "node1", Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Settling: time.Nanosecond})
	err := k.Refill(t.Context(), pool.Demand{Network: "lan", Pools: []string{"lan"}})
	if !errors.Is(err, pool.ErrUnavailable) || !errors.Is(err, pool.ErrBusy) {
		t.Errorf("%v", err)
	}
	if fmt.Sprint(api.asked) != "[create]" {
		t.Errorf("the API was asked %q", api.asked)
	}
}
