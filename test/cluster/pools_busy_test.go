package cluster

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/pool/node"
)

// busyAPI is an API that takes its time to make a block.
type busyAPI struct {
	pool.API
	takes time.Duration
}

func (s busyAPI) CreateBlock(ctx context.Context, b pool.Block) (pool.Block, error) {
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return pool.Block{}, ctx.Err()
	}
	return s.API.CreateBlock(ctx, b)
}

// An ADD does not wait for a busy API for longer than it may. What it has asked for comes all the same, and the next ADD has it.
func (a *api) busy(t *testing.T, users map[string]user) {
	a.newPool(t, users, "10.38.0.0/24")
	pools := a.poolsOf(t, "node1", users["node1"])
	dir := t.TempDir()
	k := node.New(node.Config{API: busyAPI{pools, pool.AgentLimit + time.Second}, Node: "node1", Dir: dir, Log: slog.New(slog.DiscardHandler), Settling: time.Nanosecond})
	start := time.Now()
	err := k.Refill(t.Context(), pool.Demand{Network: "lan", Pools: []string{"lan"}, Probes: true})
	if took := time.Since(start); !errors.Is(err, pool.ErrUnavailable) || took > pool.AgentLimit+time.Second/2 {
		t.Errorf("%v after %s", err, took)
	}
	store, err := lease.Open(dir, "lan")
	if err != nil {
		t.Fatal(err)
	}
	m := &member{name: "node1"}
	await(t, 30*time.Second, "the block", func() bool {
		_, err := store.Allocate(t.Context(), m.request(lease.Policy{}, ""))
		if err != nil && !errors.Is(err, lease.ErrExhausted) {
			t.Fatal(err)
		}
		return err == nil
	})
}
