package controller

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/test/node"
	"github.com/relink-cni/relink/test/pooltest"
)

var errAway = errors.New("the connection was lost")

// testController is an API with the pool lan: 10.3.0.0 to 10.3.0.11 in three blocks, and the nodes n1 and n2. A controller looks at it.
type testController struct {
	*pooltest.API
	*Controller
	t   *testing.T
	log node.Log
}

var day = time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)

func newTestController(t *testing.T) *testController {
	t.Helper()
	w := &testController{API: &pooltest.API{}, t: t}
	w.AddNode(pool.Node{Name: "n1"})
	w.AddNode(pool.Node{Name: "n2"})
	w.AddPool(pool.Pool{Metadata: pool.Meta{Name: "lan", Finalizers: []string{pool.Finalizer}}, Spec: pool.Spec{Subnet: "10.2.0.0/15", Ranges: []string{"10.3.0.0-10.3.0.11"}, BlockSize: 4}})
	w.Controller = New(w.API, slog.New(slog.NewTextHandler(&w.log, nil)))
	w.clock = func() time.Time { return day }
	return w
}

func party(node string) pool.Party {
	return pool.Party{Node: node, Network: "net", Store: "store-" + node}
}

// addBlock makes a block of which each of the nodes has an address.
func (w *testController) addBlock(index int64, nodes ...string) {
	w.t.Helper()
	l, err := w.pool("lan").Layout()
	if err != nil {
		w.t.Fatal(err)
	}
	b, _ := pool.NewBlock(l, index, party(nodes[0]), "boot")
	for i, n := range nodes[1:] {
		b = b.HandOver(party(nodes[0]), []int{3 - i}, party(n))
	}
	w.AddBlock(b)
}

func (w *testController) pool(name string) pool.Pool {
	w.t.Helper()
	p, err := w.Pool(w.t.Context(), name)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// reconcile looks once. No text stands for no error.
func (w *testController) reconcile(text string) {
	w.t.Helper()
	if err := w.Reconcile(w.t.Context()); (err == nil) != (text == "") || err != nil && !strings.Contains(err.Error(), text) {
		w.t.Errorf("look: %v, want %q", err, text)
	}
}

// fences says of each holder of a block why it is fenced.
func (w *testController) fences(block string) (all []string) {
	w.t.Helper()
	b, err := w.Block(w.t.Context(), block)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, h := range b.Spec.Holders {
		all = append(all, h.Node+": "+h.Fenced)
	}
	return all
}

// The holders of a node with the taint are fenced, and only these. Who has come back at the same moment is not.
func TestFence(t *testing.T) {
	const proof = "node has the taint node.kubernetes.io/out-of-service, seen 2026-03-01T11:00:00Z"
	once := func(request string, do func()) func(string) error {
		return func(r string) error {
			if r == request && do != nil {
				f := do
				do = nil
				f()
			}
			return nil
		}
	}
	dead := func(w *testController) { w.AddNode(pool.Node{Name: "n2", OutOfService: true}) }
	for name, test := range map[string]struct {
		before func(*testController)
		err    string
		want   string
		// then is what the next look makes of it.
		then string
	}{
		"nobody is dead": {func(*testController) {}, "", "[n1:  n2: ]", "[n1:  n2: ]"},
		"n2 is dead":     {dead, "", "[n1:  n2: " + proof + "]", "[n1:  n2: " + proof + "]"},
		"a node is gone": {func(w *testController) { w.addBlock(1, "n3") }, "", "[n1:  n2: ]", "[n1:  n2: ]"},
		"fenced by a hand": {func(w *testController) {
			w.EditBlock("lan-0", func(b *pool.Block) { b.Spec.Holders[1].Fenced = "burnt" })
			dead(w)
		}, "", "[n1:  n2: burnt]", "[n1:  n2: burnt]"},
		"the taint is gone at that moment": {func(w *testController) {
			dead(w)
			w.BeforeRequest = once("get node n2", func() { w.AddNode(pool.Node{Name: "n2"}) })
		}, "", "[n1:  n2: ]", "[n1:  n2: ]"},
		"n2 is back at that moment": {func(w *testController) {
			dead(w)
			w.BeforeRequest = once("update block lan-0", func() {
				w.EditBlock("lan-0", func(b *pool.Block) { *b, _ = b.Confirm(party("n2"), "next") })
			})
		}, "", "[n1:  n2: ]", "[n1:  n2: " + proof + "]"},
		"the block is gone at that moment": {func(w *testController) {
			w.addBlock(1, "n2")
			dead(w)
			w.BeforeRequest = once("update block lan-1", func() { w.Forget("lan-1") })
		}, "", "[n1:  n2: " + proof + "]", "[n1:  n2: " + proof + "]"},
		"the taint cannot be read": {func(w *testController) {
			dead(w)
			left := errAway
			w.BeforeRequest = func(r string) error {
				if r != "get node n2" {
					return nil
				}
				err := left
				left = nil
				return err
			}
		}, errAway.Error(), "[n1:  n2: ]", "[n1:  n2: " + proof + "]"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestController(t)
			w.addBlock(0, "n1", "n2")
			test.before(w)
			w.reconcile(test.err)
			if got := fmt.Sprint(w.fences("lan-0")); got != test.want {
				t.Errorf("the fences are %s, want %s", got, test.want)
			}
			w.reconcile("")
			if got := fmt.Sprint(w.fences("lan-0")); got != test.then {
				t.Errorf("the next look: the fences are %s, want %s", got, test.then)
			}
		})
	}
}

// What a dead node asks for is asked for no more.
func TestADeadNodeAsksForNothing(t *testing.T) {
	w := newTestController(t)
	w.addBlock(0, "n1")
	w.EditBlock("lan-0", func(b *pool.Block) {
		*b = b.Request(pool.Want{Party: party("n1"), Count: 1}).Request(pool.Want{Party: party("n2"), Count: 1})
	})
	w.AddNode(pool.Node{Name: "n2", OutOfService: true})
	w.reconcile("")
	b, err := w.Block(t.Context(), "lan-0")
	if err != nil || len(b.Spec.Want) != 1 || b.Spec.Want[0].Node != "n1" {
		t.Errorf("%+v, %v", b.Spec.Want, err)
	}
}

// A recovery ends when all nodes have said what they have. Dead ones cannot, and a cluster without nodes was not read right.
func TestTheEndOfARecovery(t *testing.T) {
	nodes := func(all ...pool.Node) []pool.Node { return all }
	n1, n2, deadN2 := pool.Node{Name: "n1"}, pool.Node{Name: "n2"}, pool.Node{Name: "n2", OutOfService: true}
	for name, test := range map[string]struct {
		asserted []string
		nodes    []pool.Node
		waits    string
		complete bool
	}{
		"nobody":            {nil, nodes(n1, n2), "n1 n2", false},
		"some":              {[]string{"n2"}, nodes(n1, n2), "n1", false},
		"all":               {[]string{"n2", "n1"}, nodes(n1, n2), "", true},
		"all that are left": {[]string{"n1", "n9"}, nodes(n1), "", true},
		"one is dead":       {[]string{"n1"}, nodes(n1, deadN2), "", true},
		"no nodes":          {[]string{"n1"}, nil, "", false},
	} {
		r := pool.Recovery{Reason: "a loss", Asserted: test.asserted}
		var waits []string
		for _, n := range unasserted(r, test.nodes) {
			waits = append(waits, n.Name)
		}
		if got := allAsserted(r, test.nodes); got != test.complete || strings.Join(waits, " ") != test.waits {
			t.Errorf("%s: complete %t, it waits for %v, want %t, %s", name, got, waits, test.complete, test.waits)
		}
	}
	w := newTestController(t)
	assert := func(names ...string) {
		w.EditPool("lan", func(p *pool.Pool) {
			*p = p.WithRecovery(&pool.Recovery{Reason: "a loss", Asserted: names})
		})
		w.reconcile("")
	}
	assert("n1")
	if w.pool("lan").Recovery() == nil {
		t.Error("the recovery has ended, and n2 has said nothing")
	}
	assert("n1", "n2")
	if w.pool("lan").Recovery() != nil {
		t.Error("the recovery goes on")
	}
	w.BeforeRequest = func(r string) error {
		if r == "update pool lan" {
			return pool.ErrConflict
		}
		return nil
	}
	assert("n1", "n2") // The next look decides anew.
	if w.pool("lan").Recovery() == nil {
		t.Error("the recovery has ended by a change that the API has refused")
	}
}

// A deleted pool stays as long as somebody has a block.
func TestTheEndOfAPool(t *testing.T) {
	w := newTestController(t)
	w.addBlock(0, "n1")
	w.EditPool("lan", func(p *pool.Pool) { p.Metadata.Finalizers = []string{"example.org/hold", pool.Finalizer} })
	w.RemovePool("lan")
	w.reconcile("")
	if got := w.pool("lan").Metadata.Finalizers; !slices.Contains(got, pool.Finalizer) {
		t.Errorf("while n1 has a block: %v", got)
	}
	w.Forget("lan-0")
	w.reconcile("")
	if got := fmt.Sprint(w.pool("lan").Metadata.Finalizers); got != "[example.org/hold]" {
		t.Errorf("the finalizers are %s", got)
	}
	before := len(w.Requests())
	w.reconcile("")
	if got := w.Requests()[before:]; slices.ContainsFunc(got, func(r string) bool { return strings.HasPrefix(r, "update") }) {
		t.Errorf("it goes on: %v", got)
	}
	w.EditPool("lan", func(p *pool.Pool) { p.Metadata.Finalizers = []string{pool.Finalizer} })
	w.reconcile("")
	w.reconcile("")
	if _, err := w.Pool(t.Context(), "lan"); !errors.Is(err, pool.ErrNotFound) {
		t.Errorf("the pool is there: %v", err)
	}
}

// The status tells what is taken, and is written only if it has changed.
func TestStatus(t *testing.T) {
	w := newTestController(t)
	w.addBlock(1, "n1", "n2")
	w.EditBlock("lan-1", func(b *pool.Block) { *b = b.Release(party("n1"), []int{0}) })
	w.reconcile("")
	first := w.pool("lan").Status
	want := pool.Status{Blocks: 3, Existing: 1, Addresses: "12", Granted: 3, Free: "BQ==", Sequence: 1, Updated: "2026-03-01T11:00:00Z"}
	if first != want {
		t.Errorf("%+v, want %+v", first, want)
	}
	w.clock = func() time.Time { return day.Add(time.Hour) }
	w.reconcile("")
	if got := w.pool("lan").Status; got != first {
		t.Errorf("nothing has changed: %+v", got)
	}
	w.addBlock(0, "n1")
	w.reconcile("")
	if got := w.pool("lan").Status; got.Sequence != 2 || got.Free != "BA==" || got.Updated != "2026-03-01T12:00:00Z" {
		t.Errorf("another block: %+v", got)
	}
	w.EditPool("lan", func(p *pool.Pool) { p.Spec.Subnet = "nonsense" })
	w.reconcile("")
	got := w.pool("lan").Status
	if !strings.Contains(got.Problem, `invalid spec.subnet "nonsense"`) || got.Sequence != 3 {
		t.Errorf("a wrong spec: %+v", got)
	}
	if got.Existing != 2 || got.Granted != 7 {
		t.Errorf("a wrong spec changes what nodes have: %+v", got)
	}
}

// What one pool does not get does not stop the others.
func TestPoolsDoNotStopEachOther(t *testing.T) {
	w := newTestController(t)
	for name, subnet := range map[string]string{"a": "10.4.0.0/24", "z": "10.5.0.0/24"} {
		w.AddPool(pool.Pool{Metadata: pool.Meta{Name: name}, Spec: pool.Spec{Subnet: subnet}})
	}
	w.BeforeRequest = func(r string) error {
		if r == "list blocks of pool a" || r == "update status of pool lan" {
			return errAway
		}
		return nil
	}
	w.reconcile(errAway.Error())
	if got := w.pool("z").Status; got.Blocks == 0 {
		t.Errorf("the last pool was not looked at: %+v", got)
	}
}

// What a look has found is shown, as long as the process leads.
func TestSeen(t *testing.T) {
	w := newTestController(t)
	w.addBlock(0, "n1", "n2")
	w.EditBlock("lan-0", func(b *pool.Block) { b.Spec.Holders[1].Fenced = "burnt" })
	w.AddPool(pool.Pool{Metadata: pool.Meta{Name: "held"}, Spec: pool.Spec{Subnet: "10.4.0.0/24", Paused: true}})
	w.AddPool(pool.Pool{Metadata: pool.Meta{Name: "twice"}, Spec: pool.Spec{Subnet: "10.4.0.0/24", Ranges: []string{"10.4.0.9"}}})
	w.EditPool("lan", func(p *pool.Pool) { *p = p.WithRecovery(&pool.Recovery{Asserted: []string{"n1"}}) })
	w.setLeading(true)
	w.reconcile("")
	found, at, leads := w.Seen()
	var got []string
	for _, f := range found {
		got = append(got, fmt.Sprintf("%s: %d fenced, stopped %t, recovering %t, paused %t, %d unasserted, problem %t, %s addresses, %d granted",
			f.Pool, f.Fenced, f.Stopped, f.Recovering, f.Paused, f.Unasserted, f.Status.Problem != "", f.Status.Addresses, f.Status.Granted))
	}
	want := []string{
		"held: 0 fenced, stopped true, recovering false, paused true, 0 unasserted, problem false, 254 addresses, 0 granted",
		"lan: 1 fenced, stopped true, recovering true, paused false, 1 unasserted, problem false, 12 addresses, 4 granted",
		"twice: 0 fenced, stopped true, recovering false, paused false, 0 unasserted, problem true, 1 addresses, 0 granted",
	}
	if !slices.Equal(got, want) || at != day || !leads {
		t.Errorf("%s at %s, leads %t, want\n%s", strings.Join(got, "\n"), at, leads, strings.Join(want, "\n"))
	}
	w.setLeading(false)
	if found, at, leads := w.Seen(); found != nil || !at.IsZero() || leads {
		t.Errorf("another process leads: %v, %s, %t", found, at, leads)
	}
}

// The hint has a bit for each block that does not exist, and says nothing of blocks beyond it.
func TestTheHintIsBounded(t *testing.T) {
	p := pool.Pool{Metadata: pool.Meta{Name: "big", UID: "u"}, Spec: pool.Spec{Subnet: "fd00::/64"}}
	b := pool.Block{Spec: pool.BlockSpec{Index: maxHinted, Addresses: "A.", First: netip.MustParseAddr("fd00::1")}}
	s := Status(p, nil, []pool.Block{b, {Spec: pool.BlockSpec{Index: 0}}})
	if len(s.Free) != (maxHinted/8+2)/3*4 || !strings.HasPrefix(s.Free, "/v//") || s.Existing != 2 || s.Granted != 1 {
		t.Errorf("%d characters, %s, taken %d, granted %d", len(s.Free), s.Free[:8], s.Existing, s.Granted)
	}
}
