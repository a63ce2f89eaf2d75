package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/kube"
	"github.com/relink-cni/relink/pkg/pool"
	poolnode "github.com/relink-cni/relink/pkg/pool/node"
	"github.com/relink-cni/relink/test/node"
)

// member is a node with a store of its own: what the agent does with pools runs, and the test is the plugin.
type member struct {
	name  string
	dir   string
	store *lease.Store
	api   *faulty
	*poolnode.Controller
	log   node.Log
	end   func()
	watch func(context.Context, pool.Handler)
	// settling and surplus are the Controller's, and short if they are 0.
	settling, surplus time.Duration
	// ahead is how far the agent's clock is ahead of this machine's, in nanoseconds.
	ahead atomic.Int64
	clock *nodeClock
	// machine is the node's machine ID, empty for this machine's.
	machine string

	mu   sync.Mutex
	pods int
}

// member starts a node whose agent has that user's rights.
func (a *api) member(t *testing.T, name string, u user) *member {
	t.Helper()
	pools := a.poolsOf(t, name, u)
	m := &member{name: name, dir: t.TempDir(), api: &faulty{API: pools}, clock: &nodeClock{}}
	a.nodes = append(a.nodes, m)
	m.watch = func(ctx context.Context, h pool.Handler) { pools.Watch(ctx, name, slog.New(slog.DiscardHandler), h) }
	m.start(t, m.watch)
	m.reopen(t)
	return m
}

// poolsOf are the pools with the rights of the user.
func (a *api) poolsOf(t *testing.T, name string, u user) kube.Pools {
	t.Helper()
	return kube.NewPools(a.client(t, name, u))
}

// client returns the client of a user. There is one for each name: to connect sets the logger of all of client-go, which agents use.
func (a *api) client(t *testing.T, name string, u user) *kube.Client {
	t.Helper()
	if c := a.clients[name]; c != nil {
		return c
	}
	c, err := kube.Connect(a.config(t, "https://"+apiAddress, name+".conf", fmt.Sprintf("{token: %q}", u.token)), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	a.clients[name] = c
	return c
}

// nodeClock is the time of a node: how far its time of day is from the right one, and how much longer ago its boot is. boot is
// empty for this machine's boot.
type nodeClock struct {
	mu      sync.Mutex
	boot    string
	day, up time.Duration
}

func (c *nodeClock) set(id string, day, up time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.boot, c.day, c.up = id, day, up
}

// open opens a store of the node, with the node's time.
func (m *member) open(network string) (*lease.Store, error) {
	s, err := lease.Open(m.dir, network)
	if err != nil {
		return nil, err
	}
	if m.machine != "" {
		s.SetMachine(m.machine)
	}
	c := m.clock
	c.mu.Lock()
	defer c.mu.Unlock()
	s.SetClock(c.boot, func() time.Time {
		c.mu.Lock()
		defer c.mu.Unlock()
		return time.Now().Add(c.day)
	}, func() (time.Duration, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		up, err := boot.Uptime()
		return up + c.up, err
	})
	return s, nil
}

// reopen opens the test's store with the node's machine and boot. A change of a store that was opened before would end all pods: for it
// they are of another boot.
func (m *member) reopen(t *testing.T) {
	t.Helper()
	var err error
	if m.store, err = m.open("lan"); err != nil {
		t.Fatal(err)
	}
}

func (m *member) logger() *slog.Logger { return slog.New(slog.NewTextHandler(&m.log, nil)) }

// start starts the node's agent. end ends it.
func (m *member) start(t *testing.T, watch func(context.Context, pool.Handler)) {
	t.Helper()
	m.Controller = poolnode.New(poolnode.Config{
		API: m.api, Node: m.name, Dir: m.dir, Log: m.logger(), Watch: watch, Open: m.open,
		Surplus: cmp.Or(m.surplus, time.Second), Settling: cmp.Or(m.settling, time.Millisecond),
	})
	m.SetClock(func() time.Time { return time.Now().Add(time.Duration(m.ahead.Load())) })
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { m.Run(ctx) })
	m.end = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(m.end)
}

// rest ends the node's agent, and waits for what it does for ADDs that have given up.
func (m *member) rest() {
	m.end()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	m.Run(ctx)
}

// given is a pod with an address.
type given struct {
	key     attachment.Key
	address netip.Addr
	probe   bool
}

// request is what the next pod's ADD asks for.
func (m *member) request(policy lease.Policy, owner string) lease.Request {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pods++
	r := lease.Request{
		Attachment: attachment.Key{Network: "lan", ContainerID: fmt.Sprintf("%s-%d", m.name, m.pods), IfName: "eth0"},
		Pools:      []string{"lan"}, Probes: true, Policy: policy,
	}
	if owner != "" {
		r.Owner = attachment.Owner{Kind: attachment.OwnerPod, Namespace: "shop", Name: owner}
	}
	return r
}

// add is what an ADD does: it takes from the store, and asks the agent once if the store has nothing.
func (m *member) add(ctx context.Context, r lease.Request) (given, error) {
	store, err := m.open("lan") // Each ADD is a process.
	if err != nil {
		return given{}, err
	}
	got, err := store.Allocate(ctx, r)
	if errors.Is(err, lease.ErrExhausted) || errors.Is(err, lease.ErrUnconfirmed) {
		if err := m.Refill(ctx, pool.Demand{Network: "lan", Pools: r.Pools, Probes: r.Probes}); err != nil {
			return given{}, err
		}
		got, err = store.Allocate(ctx, r)
	}
	if err != nil {
		return given{}, err
	}
	return given{r.Attachment, got[0].Address, store.PoolAddresses()[0].Probe}, nil
}

// must is add that succeeds within some tries.
func (m *member) must(t *testing.T, r lease.Request) given {
	t.Helper()
	return m.starts(t, func() (given, error) { return m.add(t.Context(), r) })
}

// starts tries until the pod starts, as a runtime does.
func (m *member) starts(t *testing.T, start func() (given, error)) given {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		p, err := start()
		if err == nil {
			return p
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v\n%s", m.name, err, m.log.String())
		}
	}
}

// refuses tries until the pod is refused with these words. On a busy machine, the first refusals say only that the time was not enough.
func (m *member) refuses(t *testing.T, want string, start func() (given, error)) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		p, err := start()
		if errors.Is(err, pool.ErrUnavailable) && strings.Contains(err.Error(), want) {
			return
		}
		if !errors.Is(err, pool.ErrUnavailable) || time.Now().After(deadline) {
			t.Fatalf("%s: %s, %v, want %s\n%s", m.name, p.address, err, want, m.log.String())
		}
	}
}

func (m *member) del(t *testing.T, p given) {
	t.Helper()
	if err := m.store.Release(t.Context(), p.key, lease.Policy{}); err != nil {
		t.Fatal(err)
	}
}

// faulty is an API whose requests and answers get lost.
type faulty struct {
	pool.API
	mu sync.Mutex
	// lost is how many of 100 requests, and how many of 100 answers to changes, get lost. away loses all.
	lost int
	away bool
	// left is how many messages get through before the agent dies, if it dies.
	left int
	dies bool
	// stopped keeps messages on their way: the agent is stopped, and goes on later.
	stopped sync.RWMutex
}

var errLost = errors.New("the connection was lost")

// passes says whether the next message gets through.
func (f *faulty) passes() bool {
	f.stopped.RLock()
	defer f.stopped.RUnlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dies {
		f.left--
		return f.left >= 0
	}
	if f.lost > 0 {
		time.Sleep(rand.N(3 * time.Millisecond))
	}
	return !f.away && rand.IntN(100) >= f.lost
}

func (f *faulty) set(lost int, away bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lost, f.away = lost, away
}

// through makes a request. Its answer can get lost after the API has done what it was asked.
func through[T any](f *faulty, ask func() (T, error)) (T, error) {
	var none T
	if !f.passes() {
		return none, errLost
	}
	made, err := ask()
	if !f.passes() {
		return none, errLost
	}
	return made, err
}

func (f *faulty) Pool(ctx context.Context, name string) (pool.Pool, error) {
	return through(f, func() (pool.Pool, error) { return f.API.Pool(ctx, name) })
}

func (f *faulty) Pools(ctx context.Context) ([]pool.Pool, error) {
	return through(f, func() ([]pool.Pool, error) { return f.API.Pools(ctx) })
}

func (f *faulty) Block(ctx context.Context, name string) (pool.Block, error) {
	return through(f, func() (pool.Block, error) { return f.API.Block(ctx, name) })
}

func (f *faulty) Blocks(ctx context.Context, name string) ([]pool.Block, error) {
	return through(f, func() ([]pool.Block, error) { return f.API.Blocks(ctx, name) })
}

func (f *faulty) BlocksOf(ctx context.Context, node string) ([]pool.Block, error) {
	return through(f, func() ([]pool.Block, error) { return f.API.BlocksOf(ctx, node) })
}

func (f *faulty) CreateBlock(ctx context.Context, b pool.Block) (pool.Block, error) {
	return through(f, func() (pool.Block, error) { return f.API.CreateBlock(ctx, b) })
}

func (f *faulty) UpdateBlock(ctx context.Context, b pool.Block) (pool.Block, error) {
	return through(f, func() (pool.Block, error) { return f.API.UpdateBlock(ctx, b) })
}

func (f *faulty) DeleteBlock(ctx context.Context, b pool.Block) error {
	_, err := through(f, func() (struct{}, error) { return struct{}{}, f.API.DeleteBlock(ctx, b) })
	return err
}
