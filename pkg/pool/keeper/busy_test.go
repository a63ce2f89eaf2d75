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
