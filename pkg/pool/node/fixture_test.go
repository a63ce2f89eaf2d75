package node

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
	"github.com/relink-cni/relink/test/pooltest"
)

// tester is a test, or a draw of one.
type tester interface {
	rapid.TB
	Context() context.Context
}

// errAway is the error of an API that does not answer.
var errAway = errors.New("the API does not answer")

// agentFixture is an API with the pool lan, and a node whose network has that pool. The test sets the time.
type agentFixture struct {
	*pooltest.API
	lease   pool.NodeLease // without a UID it does not exist
	version int
	// away says that the node does not reach the API. lost says that it gets no answer of its next change, which the API makes.
	away, lost     bool
	dir            string
	boot           string
	uptime         time.Duration
	nodeController *Controller
	log            strings.Builder
	pods           int
}

func newAgentFixture(t testing.TB) *agentFixture {
	w := &agentFixture{dir: t.TempDir(), boot: "boot-1", uptime: time.Hour}
	w.API = &pooltest.API{BeforeRequest: w.beforeRequest, AfterRequest: w.dropAnswer}
	// The last block has two addresses without these. A node takes another block beside it.
	w.AddPool(pool.Pool{Metadata: pool.Meta{Name: "lan"}, Spec: pool.Spec{Subnet: "10.3.0.0/24", BlockSize: 4, Exclude: []string{"10.3.0.253-10.3.0.254"}}})
	w.taint(false)
	w.renew()
	w.restart()
	must(t, w.store(t).SetPools(t.Context(), []string{"lan"}))
	return w
}

// beforeRequest says whether a request comes to the API.
func (w *agentFixture) beforeRequest(string) error {
	if w.away {
		return errAway
	}
	return nil
}

// dropAnswer says whether the answer of a change gets lost.
func (w *agentFixture) dropAnswer(request string) error {
	_, what, _ := strings.Cut(request, " ")
	if !w.lost || !strings.HasPrefix(what, "block ") || strings.HasPrefix(request, "get ") {
		return nil
	}
	w.lost, w.away = false, true
	return errAway
}

// restart starts the agent anew.
func (w *agentFixture) restart() {
	w.nodeController = New(Config{
		API: w.API, Node: "node1", Dir: w.dir, Log: slog.New(slog.NewTextHandler(io.Writer(&w.log), nil)), Settling: 1,
		Open:   func(network string) (*lease.Store, error) { return w.open(network) },
		Uptime: func() (time.Duration, error) { return w.uptime, nil },
	})
}

func (w *agentFixture) open(network string) (*lease.Store, error) {
	s, err := lease.Open(w.dir, network)
	if err == nil {
		s.SetClock(w.boot, time.Now, func() (time.Duration, error) { return w.uptime, nil })
	}
	return s, err
}

func (w *agentFixture) store(t tester) *lease.Store {
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
func (w *agentFixture) granted(t tester) (lease.PoolState, pool.Party) {
	t.Helper()
	g, err := w.store(t).Granted(t.Context())
	must(t, err)
	at := slices.IndexFunc(g.Pools, func(p lease.PoolState) bool { return p.Name == "lan" })
	return g.Pools[at], pool.Party{Node: "node1", Network: "pods", Store: g.ID}
}

// add is an ADD, without the agent.
func (w *agentFixture) add(t tester) (given lease.Lease, key attachment.Key, err error) {
	w.pods++
	key = attachment.Key{Network: "pods", ContainerID: fmt.Sprint("c", w.pods), IfName: "eth0"}
	all, err := w.store(t).Allocate(t.Context(), lease.Request{Attachment: key, Pools: []string{"lan"}, Probes: true})
	if err != nil {
		return given, key, err
	}
	return all[0], key, nil
}

// The kubelet, and people.

func (w *agentFixture) nextVersion() string { w.version++; return fmt.Sprint(w.version) }

func (w *agentFixture) renew() {
	if w.lease.Version = w.nextVersion(); w.lease.UID == "" {
		w.lease.Node, w.lease.UID = "node1", w.lease.Version
	}
	w.SetLease(w.lease)
}

// deleteLease deletes the Lease.
func (w *agentFixture) deleteLease() {
	w.lease = pool.NodeLease{}
	w.SetLease(pool.NodeLease{Node: "node1"})
}

func (w *agentFixture) taint(dead bool) {
	w.AddNode(pool.Node{Name: "node1", UID: "uid", OutOfService: dead})
}

func (w *agentFixture) fenceAfter(text string) {
	w.EditPool("lan", func(p *pool.Pool) { p.Spec.FenceAfter = text })
}

// blocks are those of the API, whether the node reaches it or not.
func (w *agentFixture) blocks(t tester) []pool.Block {
	t.Helper()
	away := w.away
	w.away = false
	defer func() { w.away = away }()
	all, err := w.Blocks(t.Context(), "lan")
	must(t, err)
	return all
}
