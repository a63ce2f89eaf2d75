package controller

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
)

// fakeAPI is an API with one pool and one block. Nodes 1 to 4 renew their Leases; node1 and node2 have addresses of the block.
type fakeAPI struct {
	pool.API
	lan    pool.Pool
	block  pool.Block
	leases map[string]pool.NodeLease
	// away says that the API does not answer about Leases. beforeLease is called when a Lease is read alone.
	away        bool
	beforeLease func()
	version     int
}

func (f *fakeAPI) nextVersion() string { f.version++; return fmt.Sprint(f.version) }

func (f *fakeAPI) Pools(context.Context) ([]pool.Pool, error) { return []pool.Pool{f.lan}, nil }

func (f *fakeAPI) Nodes(context.Context) ([]pool.Node, error) {
	return []pool.Node{{Name: "node1"}}, nil
}

func (f *fakeAPI) Blocks(context.Context, string) ([]pool.Block, error) {
	return []pool.Block{f.block}, nil
}

func (f *fakeAPI) UpdatePoolStatus(_ context.Context, p pool.Pool) (pool.Pool, error) { return p, nil }

func (f *fakeAPI) UpdatePool(_ context.Context, p pool.Pool) (pool.Pool, error) { return p, nil }

func (f *fakeAPI) UpdateBlock(_ context.Context, b pool.Block) (pool.Block, error) {
	if b.Metadata.ResourceVersion != f.block.Metadata.ResourceVersion {
		return b, pool.ErrConflict
	}
	b.Metadata.ResourceVersion = f.nextVersion()
	f.block = b
	return b, nil
}

func (f *fakeAPI) NodeLease(_ context.Context, node string) (pool.NodeLease, error) {
	if f.beforeLease != nil {
		f.beforeLease()
	}
	l, is := f.leases[node]
	if !is {
		return l, pool.ErrNotFound
	}
	return l, nil
}

func (f *fakeAPI) NodeLeases(context.Context) (all []pool.NodeLease, err error) {
	if f.away {
		return nil, context.DeadlineExceeded
	}
	for _, l := range f.leases {
		all = append(all, l)
	}
	return all, nil
}

// renew is what kubelets do.
func (f *fakeAPI) renew(nodes ...int) {
	for _, n := range nodes {
		name := fmt.Sprint("node", n)
		l, is := f.leases[name]
		if l.Node, l.Version = name, f.nextVersion(); !is {
			l.UID = l.Version
		}
		f.leases[name] = l
	}
}

func silentParty(n int) pool.Party {
	return pool.Party{Node: fmt.Sprint("node", n), Network: "lan", Store: fmt.Sprint("store", n)}
}

// writeHolderState has the agent of a node write something into the block.
func (f *fakeAPI) writeHolderState(n int, boot string, fenceAfter time.Duration) {
	f.block, _ = f.block.WithFenceAfter(silentParty(n), fenceAfter)
	f.block, _ = f.block.Confirm(silentParty(n), boot)
	f.block.Metadata.ResourceVersion = f.nextVersion()
}

// cluster is the controller, the API, and the time.
type cluster struct {
	*fakeAPI
	*Controller
	at  time.Time
	log strings.Builder
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	p := pool.Pool{Metadata: pool.Meta{Name: "lan", UID: "pool"}, Spec: pool.Spec{Subnet: "10.3.0.0/24", BlockSize: 4, FenceAfter: "30m"}}
	l, err := p.Layout()
	if err != nil {
		t.Fatal(err)
	}
	b, _ := pool.NewBlock(l, 0, silentParty(1), "boot")
	b = b.HandOver(silentParty(1), []int{3}, silentParty(2))
	b.Metadata.UID = "block"
	c := &cluster{fakeAPI: &fakeAPI{lan: p, block: b, leases: map[string]pool.NodeLease{}}, at: time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)}
	c.Controller = New(c.fakeAPI, slog.New(slog.NewTextHandler(&c.log, nil)))
	c.SetClock(func() time.Time { return c.at })
	c.writeHolderState(1, "boot", 30*time.Minute)
	c.renew(1, 2, 3, 4)
	return c
}

// advance lets time pass. The controller looks each half minute, and these nodes renew their Leases before each look.
func (c *cluster) advance(d time.Duration, alive ...int) {
	for range d / reconcileInterval {
		c.at = c.at.Add(reconcileInterval)
		c.renew(alive...)
		_ = c.Reconcile(context.Background()) // A table has errors, too.
	}
}

// A node is fenced if its Lease is the same for as long as the pool and the node say, as the controller has seen without a gap.
func TestSilentNodesAreFenced(t *testing.T) {
	const whole = 30 * time.Minute
	first := 30 * time.Second // The first look is then.
	for name, test := range map[string]struct {
		happens func(*cluster)
		// fenced are the reasons of node1 and node2.
		fenced [2]string
	}{
		"not yet":        {func(c *cluster) { c.advance(whole, 2, 3, 4) }, [2]string{}},
		"after the time": {func(c *cluster) { c.advance(whole+first, 2, 3, 4) }, [2]string{"silent since 2026-03-01T11:00:30Z (spec.fenceAfter 30m0s)", ""}},
		"it lives":       {func(c *cluster) { c.advance(2*whole, 1, 2, 3, 4) }, [2]string{}},
		"it came back": {func(c *cluster) {
			c.advance(whole, 2, 3, 4)
			c.advance(reconcileInterval, 1, 2, 3, 4)
			c.advance(whole-first, 2, 3, 4)
		}, [2]string{}},
		"the pool does not want it": {func(c *cluster) { c.lan.Spec.FenceAfter = ""; c.advance(2*whole, 2, 3, 4) }, [2]string{}},
		"the pool wants it only now": {func(c *cluster) {
			c.lan.Spec.FenceAfter = ""
			c.advance(whole, 2, 3, 4)
			c.lan.Spec.FenceAfter = "30m"
			c.advance(whole, 2, 3, 4)
		}, [2]string{}},
		"the spec is wrong":          {func(c *cluster) { c.lan.Spec.FenceAfter = "1m"; c.advance(2*whole, 2, 3, 4) }, [2]string{}},
		"the holder does not say it": {func(c *cluster) { c.advance(2*whole, 1, 3, 4) }, [2]string{}},
		"the holder says it later": {func(c *cluster) {
			c.advance(whole, 1, 3, 4)
			c.writeHolderState(2, "boot", whole)
			c.advance(whole, 1, 3, 4)
		}, [2]string{}},
		"both": {func(c *cluster) { c.writeHolderState(2, "boot", whole); c.advance(whole+first, 3, 4) },
			[2]string{"silent since 2026-03-01T11:00:30Z (spec.fenceAfter 30m0s)", "silent since 2026-03-01T11:00:30Z (spec.fenceAfter 30m0s)"}},
		"the holder says a longer time":  {func(c *cluster) { c.writeHolderState(1, "boot", 2*whole); c.advance(2*whole, 2, 3, 4) }, [2]string{}},
		"the holder says a shorter time": {func(c *cluster) { c.writeHolderState(1, "boot", whole/2); c.advance(whole, 2, 3, 4) }, [2]string{}},
		"the holder begins anew": {func(c *cluster) {
			c.advance(whole, 2, 3, 4)
			c.writeHolderState(1, "boot.1", whole)
			c.advance(whole, 2, 3, 4)
		}, [2]string{}},
		"its Lease is gone": {func(c *cluster) {
			c.advance(whole/2, 1, 2, 3, 4)
			delete(c.leases, "node1")
			c.advance(whole+reconcileInterval, 2, 3, 4)
		},
			[2]string{"silent since 2026-03-01T11:15:30Z (spec.fenceAfter 30m0s)", ""}},
		"its Lease is gone, not yet": {func(c *cluster) { c.advance(whole/2, 2, 3, 4); delete(c.leases, "node1"); c.advance(whole, 2, 3, 4) }, [2]string{}},
		"it never had a Lease":       {func(c *cluster) { delete(c.leases, "node1"); c.advance(whole+first, 2, 3, 4) }, [2]string{"silent since 2026-03-01T11:00:30Z (spec.fenceAfter 30m0s)", ""}},
		"its Lease was made anew": {func(c *cluster) {
			c.advance(whole/2, 2, 3, 4)
			delete(c.leases, "node1")
			c.renew(1)
			c.advance(whole, 2, 3, 4)
		}, [2]string{}},
		"a new leader": {func(c *cluster) { c.advance(whole, 2, 3, 4); c.silence = silenceTracker{}; c.advance(whole, 2, 3, 4) }, [2]string{}},
		"the API was away": {func(c *cluster) {
			c.advance(whole, 2, 3, 4)
			c.away = true
			c.advance(maxGap, 2, 3, 4)
			c.away = false
			c.advance(whole, 2, 3, 4)
		}, [2]string{}},
		"the API was away for a moment": {func(c *cluster) {
			c.advance(whole/2, 2, 3, 4)
			c.away = true
			c.advance(maxGap-reconcileInterval, 2, 3, 4)
			c.away = false
			c.advance(whole/2, 2, 3, 4)
		}, [2]string{"silent since 2026-03-01T11:00:30Z (spec.fenceAfter 30m0s)", ""}},
		"while the API is away": {func(c *cluster) { c.advance(whole, 2, 3, 4); c.away = true; c.advance(whole, 2, 3, 4) }, [2]string{}},
		"half of the nodes":     {func(c *cluster) { c.advance(whole+first, 3, 4) }, [2]string{"silent since 2026-03-01T11:00:30Z (spec.fenceAfter 30m0s)", ""}},
		"more than half":        {func(c *cluster) { c.advance(2*whole, 4) }, [2]string{}},
		"all":                   {func(c *cluster) { c.advance(2 * whole) }, [2]string{}},
		"nobody has a Lease":    {func(c *cluster) { clear(c.leases); c.advance(2 * whole) }, [2]string{}},
		"a recovery": {func(c *cluster) {
			c.lan = c.lan.WithRecovery(&pool.Recovery{Asserted: nil})
			c.advance(2*whole, 2, 3, 4)
		}, [2]string{}},
		"it renews at the last read": {func(c *cluster) { c.beforeLease = func() { c.renew(1) }; c.advance(whole+first, 2, 3, 4) }, [2]string{}},
		"it begins anew at the last read": {func(c *cluster) {
			c.beforeLease = func() { c.writeHolderState(1, "boot.1", whole) }
			c.advance(whole+first, 2, 3, 4)
		}, [2]string{}},
		"its Lease comes at the last read": {func(c *cluster) {
			delete(c.leases, "node1")
			c.beforeLease = func() { c.renew(1) }
			c.advance(whole+first, 2, 3, 4)
		}, [2]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			test.happens(c)
			var got [2]string
			for i := range got {
				h, _ := c.block.Holder(silentParty(i + 1))
				got[i] = h.Fenced
			}
			if got != test.fenced {
				t.Errorf("%q, want %q\n%s", got, test.fenced, c.log.String())
			}
		})
	}
}

// People hear why nobody is fenced, once for each look.
func TestSparedNodesAreTold(t *testing.T) {
	c := newCluster(t)
	c.writeHolderState(2, "boot", 30*time.Minute)
	c.advance(30*time.Minute+reconcileInterval, 4)
	if n := strings.Count(c.log.String(), "more than half of the nodes show no sign of life: none is fenced for that"); n != 1 {
		t.Errorf("%d times:\n%s", n, c.log.String())
	}
	if c.advance(time.Hour, 1, 2, 3, 4); len(c.silence.holders) != 2 || len(c.silence.nodes) != 4 {
		t.Errorf("%+v", c.silence)
	}
	c.block = c.block.Release(silentParty(2), []int{3})
	delete(c.leases, "node2")
	if c.advance(reconcileInterval, 1, 3, 4); len(c.silence.holders) != 1 || len(c.silence.nodes) != 3 {
		t.Errorf("what is gone stays: %+v", c.silence)
	}
}
