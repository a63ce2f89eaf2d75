package cluster

import (
	"context"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
)

// The controller counts every 30 s. No agent asks the API because of that.
func (a *api) statusIsNoChange(t *testing.T, users map[string]user) {
	a.newPool(t, users, "10.38.0.0/24")
	pools := a.poolsOf(t, "node1", users["node1"])
	counts := a.poolsOf(t, "controller", users["controller"])
	changes := make(chan pool.Change, 10)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go pools.Watch(ctx, "node1", slog.New(slog.DiscardHandler), changes)
	next := func(within time.Duration) string {
		for end := time.After(within); ; {
			select {
			case c := <-changes:
				if !c.APIDown { // An API that was restarted before has closed the connection.
					return c.Pool + c.Block
				}
			case <-end:
				return "none"
			}
		}
	}
	if first := next(10 * time.Second); first != "lan" {
		t.Fatalf("the first change is %s", first)
	}
	one := func() pool.Pool {
		all, err := counts.Pools(ctx)
		if err != nil || len(all) != 1 {
			t.Fatalf("%d pools, %v", len(all), err)
		}
		return all[0]
	}
	p := one()
	p.Status = pool.Status{Sequence: 7, Granted: 1}
	if _, err := counts.UpdatePoolStatus(ctx, p); err != nil {
		t.Fatal(err)
	}
	if c := next(500 * time.Millisecond); c != "none" {
		t.Errorf("a status: %s", c)
	}
	users["admin"].must(t, http.MethodPatch, "/apis/"+pool.Group+"/"+pool.Version+"/addresspools/lan", m{"spec": m{"exclude": []string{"10.38.0.9"}}}, nil)
	if c := next(10 * time.Second); c != "lan" {
		t.Errorf("a spec: %s", c)
	}
	if _, err := counts.UpdatePool(ctx, one().WithRecovery(&pool.Recovery{Since: "2030-01-01T00:00:00Z", Reason: "lost"})); err != nil {
		t.Fatal(err)
	}
	if c := next(10 * time.Second); c != "lan" {
		t.Errorf("a recovery: %s", c)
	}
}
