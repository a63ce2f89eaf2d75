package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// tester is a test, or a draw of one.
type tester interface {
	rapid.TB
	Context() context.Context
}

// errAway is the error of an API that does not answer.
var errAway = errors.New("the API does not answer")

// world is an API with the pool lan, and a node whose network has that pool. The test sets the time.
type world struct {
	pool.API
	lan     pool.Pool
	blocks  map[string]pool.Block
	lease   pool.NodeLease // without a UID it does not exist
	taint   bool
	version int
	// away says that the node does not reach the API. lost says that it gets no answer of its next change, which the API makes.
	away, lost bool
	dir        string
	boot       string
	uptime     time.Duration
	keeper     *Keeper
	log        strings.Builder
	pods       int
}

func newWorld(t testing.TB) *world {
	w := &world{dir: t.TempDir(), boot: "boot-1", uptime: time.Hour, blocks: map[string]pool.Block{}}
	w.lan = pool.Pool{Metadata: pool.Meta{Name: "lan", UID: "pool"}, Spec: pool.Spec{Subnet: "10.3.0.0/24", BlockSize: 4}}
	w.renew()
	w.restart()
	must(t, w.store(t).WantPools(t.Context(), []string{"lan"}))
	return w
}

// restart starts the agent anew.
func (w *world) restart() {
	w.keeper = New(Options{
		API: w, Node: "node1", Dir: w.dir, Log: slog.New(slog.NewTextHandler(io.Writer(&w.log), nil)), Settling: 1,
		Open:   func(network string) (*lease.Store, error) { return w.open(network) },
		Uptime: func() (time.Duration, error) { return w.uptime, nil },
	})
}

func (w *world) open(network string) (*lease.Store, error) {
	s, err := lease.Open(w.dir, network)
	if err == nil {
		s.SetClock(w.boot, time.Now, func() (time.Duration, error) { return w.uptime, nil })
	}
	return s, err
}

func (w *world) store(t tester) *lease.Store {
	s, err := w.open("pods")
	must(t, err)
	return s
}

func must(t tester, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// granted returns what the store has of the pool, and who the store is.
func (w *world) granted(t tester) (lease.PoolState, pool.Party) {
	t.Helper()
	g, err := w.store(t).Granted(t.Context())
	must(t, err)
	at := slices.IndexFunc(g.Pools, func(p lease.PoolState) bool { return p.Name == "lan" })
	return g.Pools[at], pool.Party{Node: "node1", Network: "pods", Store: g.ID}
}

// add is an ADD, without the agent.
func (w *world) add(t tester) (given lease.Lease, key attachment.Key, err error) {
	w.pods++
	key = attachment.Key{Network: "pods", ContainerID: fmt.Sprint("c", w.pods), IfName: "eth0"}
	all, err := w.store(t).Allocate(t.Context(), lease.Request{Attachment: key, Pools: []string{"lan"}, Probes: true})
	if err != nil {
		return given, key, err
	}
	return all[0], key, nil
}

// The kubelet, and who deletes the Node.

func (w *world) next() string { w.version++; return fmt.Sprint(w.version) }

func (w *world) renew() {
	if w.lease.Version = w.next(); w.lease.UID == "" {
		w.lease.Node, w.lease.UID = "node1", w.lease.Version
	}
}

// The API as the node reaches it, and the controller.

func (w *world) reach() error {
	if w.away {
		return errAway
	}
	return nil
}

func (w *world) Pool(context.Context, string) (pool.Pool, error) { return w.lan, w.reach() }

func (w *world) Pools(context.Context) ([]pool.Pool, error) {
	return []pool.Pool{w.lan}, w.reach()
}

func (w *world) UpdatePool(_ context.Context, p pool.Pool) (pool.Pool, error) {
	if w.away {
		return p, errAway
	}
	w.lan = p
	return p, nil
}

func (w *world) UpdatePoolStatus(_ context.Context, p pool.Pool) (pool.Pool, error) { return p, nil }

func (w *world) Block(_ context.Context, name string) (pool.Block, error) {
	b, is := w.blocks[name]
	if !is && !w.away {
		return b, pool.ErrNotThere
	}
	return b, w.reach()
}

func (w *world) Blocks(context.Context, string) (all []pool.Block, err error) {
	for _, b := range w.blocks {
		all = append(all, b)
	}
	return all, w.reach()
}

func (w *world) BlocksOf(_ context.Context, node string) (all []pool.Block, err error) {
	for _, b := range w.blocks {
		if _, is := b.Metadata.Labels[pool.NodeLabel(node)]; is {
			all = append(all, b)
		}
	}
	return all, w.reach()
}

// change makes a change, unless it does not come to that. The answer can get lost.
func (w *world) change(made pool.Block, err error, do func()) (pool.Block, error) {
	if w.away {
		return pool.Block{}, errAway
	}
	if err == nil {
		do()
	}
	if w.lost {
		w.lost, w.away = false, true
		return pool.Block{}, errAway
	}
	return made, err
}

func (w *world) CreateBlock(_ context.Context, b pool.Block) (pool.Block, error) {
	_, is := w.blocks[b.Metadata.Name]
	var err error
	if is {
		err = pool.ErrExists
	}
	b.Metadata.ResourceVersion = w.next()
	b.Metadata.UID = b.Metadata.ResourceVersion
	return w.change(b, err, func() { w.blocks[b.Metadata.Name] = b })
}

func (w *world) isCurrent(b pool.Block) error {
	is, there := w.blocks[b.Metadata.Name]
	switch {
	case !there:
		return pool.ErrNotThere
	case is.Metadata.UID != b.Metadata.UID || is.Metadata.ResourceVersion != b.Metadata.ResourceVersion:
		return pool.ErrConflict
	}
	return nil
}

func (w *world) UpdateBlock(_ context.Context, b pool.Block) (pool.Block, error) {
	err := w.isCurrent(b)
	b.Metadata.ResourceVersion = w.next()
	return w.change(b, err, func() { w.blocks[b.Metadata.Name] = b })
}

func (w *world) DeleteBlock(_ context.Context, b pool.Block) error {
	_, err := w.change(b, w.isCurrent(b), func() { delete(w.blocks, b.Metadata.Name) })
	return err
}

func (w *world) ClaimsOf(context.Context, string) ([]pool.Claim, error) { return nil, w.reach() }

func (w *world) Node(context.Context, string) (pool.Node, error) {
	return pool.Node{Name: "node1", UID: "uid", OutOfService: w.taint}, w.reach()
}

func (w *world) NodeLease(context.Context, string) (pool.NodeLease, error) {
	if w.lease.UID == "" && !w.away {
		return pool.NodeLease{}, pool.ErrNotThere
	}
	return w.lease, w.reach()
}
