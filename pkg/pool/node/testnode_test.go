package node

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/test/node"
	"github.com/relink-cni/relink/test/pooltest"
)

// testNode is node1 with the network pods, on an API with the pool lan: 10.3.0.0 to 10.3.0.15 in four blocks. The test sets the time.
type testNode struct {
	*pooltest.API
	*storeController
	t    *testing.T
	name string
	log  node.Log
	time time.Time
	// boot is the node's, since when it is up.
	boot   string
	booted time.Time
	pods   int
}

// lan is the pool of a site.
var lan = pool.Pool{Metadata: pool.Meta{Name: "lan"}, Spec: pool.Spec{Subnet: "10.2.0.0/15", Ranges: []string{"10.3.0.0-10.3.0.15"}, BlockSize: 4}}

// newTestNode has confirmed what it has: nothing.
func newTestNode(t *testing.T) *testNode {
	t.Helper()
	s := &testNode{API: &pooltest.API{}, t: t, name: "node1", time: time.Now(), boot: "boot", booted: time.Now().Add(-time.Hour)}
	for _, name := range []string{"node1", "node2", "node3"} {
		s.AddNode(pool.Node{Name: name, UID: "uid-" + name})
	}
	s.AddPool(lan)
	s.restart(t.TempDir())
	s.noError(s.store.SetPools(t.Context(), []string{"lan"}))
	s.noError(s.sync(t.Context()))
	return s
}

// restart starts the agent anew, with the stores of the directory.
func (s *testNode) restart(dir string) {
	s.t.Helper()
	nc := New(Config{API: s.API, Node: s.name, Dir: dir, Log: slog.New(slog.NewTextHandler(&s.log, nil)), Settling: 1, Open: func(network string) (*lease.Store, error) {
		store, err := lease.Open(dir, network)
		if err == nil {
			store.SetClock(s.boot, func() time.Time { return s.time }, func() (time.Duration, error) { return s.time.Sub(s.booted), nil })
		}
		return store, err
	}})
	nc.clock = func() time.Time { return s.time }
	sc, err := nc.storeController("pods")
	s.noError(err)
	s.storeController = sc
	_, err = nc.API.Pools(s.t.Context()) // It has heard of the API a while ago.
	s.noError(err)
	s.advance(time.Second)
}

// reboot boots the node anew, and starts its agent.
func (s *testNode) reboot() {
	s.t.Helper()
	s.advance(time.Minute)
	s.boot, s.booted = "next boot", s.time
	s.advance(time.Minute)
	s.restart(s.Dir)
}

// changed shows the controller that a pool or a block has changed.
func (s *testNode) changed(name string) {
	s.t.Helper()
	if p, err := s.Pool(s.t.Context(), name); err == nil {
		s.watches(s.t.Context(), func(h pool.Handler) { h.PoolChanged(nil, &p) })
		return
	}
	b, err := s.Block(s.t.Context(), name)
	s.noError(err)
	s.watches(s.t.Context(), func(h pool.Handler) { h.BlockChanged(&b, &b) })
}

// watches does what the controller does when a watch shows a change.
func (nc *Controller) watches(ctx context.Context, change func(pool.Handler)) {
	q := newQueue()
	defer q.ShutDown()
	change(nc.handler(q))
	for q.Len() > 0 {
		t, _ := q.Get()
		nc.do(ctx, q, t)
		q.Done(t)
	}
}

// syncClaims compares the claims of the API with what the store has.
func (s *testNode) syncClaims() {
	s.t.Helper()
	claims, err := s.storeController.API.ClaimsOf(s.t.Context(), s.name)
	s.noError(err)
	s.noError(s.withTurn(s.t.Context(), func(ctx context.Context) error { return s.reconcileClaims(ctx, claims, false) }))
}

func (s *testNode) advance(d time.Duration) { s.time = s.time.Add(d) }

func (s *testNode) noError(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// party is the party of this node.
func (s *testNode) party() pool.Party {
	s.t.Helper()
	g, err := s.state(s.t.Context())
	s.noError(err)
	return g.me
}

func partyOf(name string) pool.Party {
	return pool.Party{Node: name, NodeUID: "uid-" + name, Network: "pods", Store: "store-" + name}
}

// putBlock makes the block of the API with the text such as "AAB. me node2!": whose each address is, and the holders A, B and so on, fenced
// ones with an exclamation mark. The parties in wants ask for one address each.
func (s *testNode) putBlock(index int64, text string, wants ...string) {
	s.t.Helper()
	l, err := lan.Layout()
	s.noError(err)
	p, err := s.Pool(s.t.Context(), "lan")
	s.noError(err)
	l.UID = p.Metadata.UID
	words := strings.Fields(text)
	b, _ := pool.NewBlock(l, index, partyOf("nobody"), "boot")
	b.Status.Addresses, b.Status.Holders, b.Status.Epoch = words[0], nil, 10
	me := s.party()
	for i, name := range words[1:] {
		h := pool.Holder{ID: string(rune('A' + i)), Party: partyOf(strings.Trim(name, "!")), Epoch: 10, Boot: "boot"}
		if h.Node == "me" {
			h.Party = me
		}
		if strings.HasSuffix(name, "!") {
			h.Fenced = "proof"
		}
		b.Status.Holders = append(b.Status.Holders, h)
	}
	for _, name := range wants {
		b = b.Request(pool.Want{Party: partyOf(name), Count: 1})
	}
	s.AddBlock(b.Request(pool.Want{Party: partyOf("nobody")})) // That writes the labels.
}

// blockText is the API's block in the form of put, with the wants behind it, or "none".
func (s *testNode) blockText(index int64) string {
	s.t.Helper()
	b, err := s.Block(s.t.Context(), pool.BlockName("lan", index))
	if err != nil {
		return "none"
	}
	me := s.party()
	name := func(p pool.Party) string {
		if p.SameParty(me) {
			return "me"
		}
		return p.Node
	}
	text := b.Status.Addresses
	for _, h := range b.Status.Holders {
		text += " " + name(h.Party)
		if h.Fenced != "" {
			text += "!"
		}
	}
	for _, w := range b.Status.Want {
		text += fmt.Sprintf(", %s wants %d", name(w.Party), max(w.Count, 1))
	}
	return text
}

// adoptBlocks takes what the API has of the blocks into the store. It returns what the store has then, such as "++.. +...".
func (s *testNode) adoptBlocks(indexes ...int64) string {
	s.t.Helper()
	for _, i := range indexes {
		b, err := s.Block(s.t.Context(), pool.BlockName("lan", i))
		s.noError(err)
		_, err = s.reconcile(s.t.Context(), b, 0)
		s.noError(err)
	}
	return s.grants()
}

// grant is what the store has of the block.
func (s *testNode) grant(index int64) string {
	s.t.Helper()
	g, err := s.state(s.t.Context())
	s.noError(err)
	return g.grant("lan", index).Addresses
}

// grants is what the store has of the blocks.
func (s *testNode) grants() string {
	s.t.Helper()
	g, err := s.state(s.t.Context())
	s.noError(err)
	var all []string
	for _, g := range g.poolState("lan").Grants {
		all = append(all, g.Addresses)
	}
	return strings.Join(all, " ")
}

// add is an ADD without the agent. The pod has a name if there is an owner, and its address is the owner's.
func (s *testNode) add(owner string) (netip.Addr, attachment.Key) {
	s.t.Helper()
	s.pods++
	r := lease.Request{Attachment: attachment.Key{Network: "pods", ContainerID: fmt.Sprint("c", s.pods), IfName: "eth0"}, Pools: []string{"lan"}, QueriedPools: []string{"lan"}, Probes: true}
	if owner != "" {
		r.Policy, r.Owner = lease.Policy{Sticky: true}, ownerOf(owner)
	}
	given, err := s.store.Allocate(s.t.Context(), r)
	s.noError(err)
	return given[0].Address, r.Attachment
}

func (s *testNode) del(key attachment.Key) {
	s.t.Helper()
	s.noError(s.store.Release(s.t.Context(), key, lease.Policy{}))
}

// recoveryReason says why the pool recovers, "" if it does not.
func (s *testNode) recoveryReason() string {
	s.t.Helper()
	p, err := s.Pool(s.t.Context(), "lan")
	s.noError(err)
	if r := p.Status.Recovery; r != nil {
		return r.Message
	}
	return ""
}

// changes are the requests since the last call that have changed something.
func (s *testNode) changes(since int) (all []string) {
	for _, r := range s.Requests()[since:] {
		if verb, _, _ := strings.Cut(r, " "); slices.Contains([]string{"create", "update", "delete"}, verb) {
			all = append(all, r)
		}
	}
	return all
}

// wantError reports an error that does not have the text. No text stands for no error.
func wantError(t *testing.T, what string, err error, text string) {
	t.Helper()
	if (err == nil) != (text == "") || err != nil && !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v, want %q", what, err, text)
	}
}

func wantEqual(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func ownerOf(name string) attachment.Owner {
	return attachment.Owner{Kind: attachment.OwnerPod, Namespace: "shop", Name: name}
}
