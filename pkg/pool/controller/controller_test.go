package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/owner"
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
	// events are those that people have been told.
	events []string
	// ended are the names of the owners that are gone.
	ended []string
}

var day = time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC)

func newTestController(t *testing.T) *testController {
	t.Helper()
	w := &testController{API: &pooltest.API{}, t: t}
	w.AddNode(pool.Node{Name: "n1"})
	w.AddNode(pool.Node{Name: "n2"})
	w.AddPool(pool.Pool{Metadata: pool.Meta{Name: "lan", Finalizers: []string{pool.Finalizer}}, Spec: pool.Spec{Subnet: "10.2.0.0/15", Ranges: []string{"10.3.0.0-10.3.0.11"}, BlockSize: 4}})
	w.Controller = New(Config{API: w.API, Owners: w, Log: slog.New(slog.NewTextHandler(&w.log, nil)), Event: func(p pool.Pool, warning bool, reason, message string) {
		w.events = append(w.events, fmt.Sprintf("%s: %t: %s: %s", p.Metadata.Name, warning, reason, message))
	}})
	w.clock = func() time.Time { return day }
	return w
}

// Judge implements owner.Judge.
func (w *testController) Judge(_ context.Context, owners []attachment.Owner) (all []owner.Judgement) {
	for _, o := range owners {
		standing := owner.Exists
		if slices.Contains(w.ended, o.Name) {
			standing = owner.Gone
		}
		all = append(all, owner.Judgement{Owner: o, Standing: standing})
	}
	return all
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
	if err := pooltest.Reconcile(w.t.Context(), w.API, w.Reconcile); (err == nil) != (text == "") || err != nil && !strings.Contains(err.Error(), text) {
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
	for _, h := range b.Status.Holders {
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
			w.EditBlock("lan-0", func(b *pool.Block) { b.Status.Holders[1].Fenced = "burnt" })
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
	if err != nil || len(b.Status.Want) != 1 || b.Status.Want[0].Node != "n1" {
		t.Errorf("%+v, %v", b.Status.Want, err)
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
	}{
		"nobody":                               {nil, nodes(n1, n2), "n1 n2"},
		"some":                                 {[]string{"n2"}, nodes(n1, n2), "n1"},
		"all":                                  {[]string{"n2", "n1"}, nodes(n1, n2), ""},
		"all that exist":                       {[]string{"n1", "n9"}, nodes(n1), ""},
		"one is dead":                          {[]string{"n1"}, nodes(n1, deadN2), ""},
		"one has nothing of the pool":          {[]string{"n1", "n2"}, nodes(n1, n2, pool.Node{Name: "n3"}), "n3, later none"},
		"one has nothing, and knows of a loss": {[]string{"n1", "n2"}, nodes(n1, n2, pool.Node{Name: "n4"}), "n4"},
		"one is fenced":                        {[]string{"n1", "n2"}, nodes(n1, n2, pool.Node{Name: "n5"}), "n5, later none"},
	} {
		p := pool.Pool{}.WithRecovery(&pool.Recovery{Message: "a loss", Nodes: []string{"n4"}, Asserted: test.asserted})
		p.Status.Conditions = []pool.Condition{{Type: pool.Recovering, Status: pool.True, LastTransitionTime: day.Add(-24 * time.Hour).Format(time.RFC3339)}} // Of an earlier one.
		held := pool.Block{Status: pool.BlockStatus{Holders: []pool.Holder{{Party: party("n1")}, {Party: party("n2")}, {Party: party("n5"), Fenced: "burnt"}}}}
		waits := func(after time.Duration) (names []string) {
			c, instant := New(Config{}), day
			c.SetClock(func() time.Time { return instant })
			c.noteRecovery(p)
			instant = day.Add(after)
			for _, n := range c.unasserted(p, []pool.Block{held}, test.nodes) {
				names = append(names, n.Name)
			}
			return names
		}
		got := strings.Join(waits(silenceLimit-1), " ")
		if later := strings.Join(waits(silenceLimit), " "); later != got {
			got += ", later " + cmp.Or(later, "none")
		}
		if got != test.waits {
			t.Errorf("%s: it waits for %s, want %s", name, got, test.waits)
		}
	}
	c, instant := New(Config{}), day
	c.SetClock(func() time.Time { return instant })
	recovers := func(message string, asserted ...string) time.Duration {
		instant = instant.Add(time.Minute)
		return instant.Sub(c.noteRecovery(pool.Pool{}.WithRecovery(&pool.Recovery{Message: message, Asserted: asserted})))
	}
	for _, step := range []struct {
		seen, want time.Duration
	}{
		{recovers("a loss", "n2"), 0}, {recovers("a loss", "n2", "n1"), time.Minute}, {recovers("a loss", "n1"), 0},
		{recovers("a loss", "n1"), time.Minute}, {recovers("by hand", "n1"), 0}, {recovers("by hand"), 0}, {recovers("by hand"), time.Minute},
	} {
		if step.seen != step.want {
			t.Errorf("it is seen for %s, want %s", step.seen, step.want)
		}
	}
	w := newTestController(t)
	w.addBlock(0, "n1", "n2")
	assert := func(names ...string) {
		w.EditPool("lan", func(p *pool.Pool) {
			*p = p.WithRecovery(&pool.Recovery{Message: "a loss", Asserted: names})
		})
		w.reconcile("")
	}
	assert("n1")
	if w.pool("lan").Status.Recovery == nil {
		t.Error("the recovery has ended, and n2 has said nothing")
	}
	assert("n1", "n2")
	if w.pool("lan").Status.Recovery != nil {
		t.Error("the recovery goes on")
	}
	w.BeforeRequest = func(r string) error {
		if r == "update status of pool lan" {
			return pool.ErrConflict
		}
		return nil
	}
	assert("n1", "n2") // The next look decides anew.
	if w.pool("lan").Status.Recovery == nil {
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
	w.EditBlock("lan-1", func(b *pool.Block) { *b = b.Release(party("n1"), []int{0}, nil) })
	w.reconcile("")
	first := w.pool("lan").Status
	want := pool.Status{Blocks: 3, Existing: 1, Addresses: "12", Granted: 3, Free: "BQ==", Sequence: 1, Updated: "2026-03-01T11:00:00Z", Conditions: first.Conditions}
	if !reflect.DeepEqual(first, want) {
		t.Errorf("%+v, want %+v", first, want)
	}
	w.clock = func() time.Time { return day.Add(time.Hour) }
	w.reconcile("")
	if got := w.pool("lan").Status; !reflect.DeepEqual(got, first) {
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
	if !strings.Contains(got.Problem(), `invalid spec.subnet "nonsense"`) || got.Sequence != 3 {
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
		if r == "update status of pool a" || r == "update status of pool lan" {
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
	w.EditBlock("lan-0", func(b *pool.Block) { b.Status.Holders[1].Fenced = "burnt" })
	w.AddPool(pool.Pool{Metadata: pool.Meta{Name: "held"}, Spec: pool.Spec{Subnet: "10.4.0.0/24", Paused: true}})
	w.AddPool(pool.Pool{Metadata: pool.Meta{Name: "twice"}, Spec: pool.Spec{Subnet: "10.4.0.0/24", Ranges: []string{"10.4.0.9"}}})
	w.EditPool("lan", func(p *pool.Pool) { *p = p.WithRecovery(&pool.Recovery{Asserted: []string{"n1"}}) })
	w.setLeading(true)
	w.reconcile("")
	w.noteSuccess()
	found, at, leads := w.Seen()
	var got []string
	for _, f := range found {
		got = append(got, fmt.Sprintf("%s: %d fenced, stopped %t, recovering %t, paused %t, %d unasserted, problem %t, %s addresses, %d granted",
			f.Pool, f.Fenced, f.Stopped, f.Recovering, f.Paused, f.Unasserted, f.Status.Problem() != "", f.Status.Addresses, f.Status.Granted))
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
	b := pool.Block{Spec: pool.BlockSpec{Index: maxHinted, First: netip.MustParseAddr("fd00::1")}, Status: pool.BlockStatus{Addresses: "A."}}
	s := Status(p, nil, []pool.Block{b, {Spec: pool.BlockSpec{Index: 0}}}, nil)
	if len(s.Free) != (maxHinted/8+2)/3*4 || !strings.HasPrefix(s.Free, "/v//") || s.Existing != 2 || s.Granted != 1 {
		t.Errorf("%d characters, %s, taken %d, granted %d", len(s.Free), s.Free[:8], s.Existing, s.Granted)
	}
}

// The conditions say why, the first reason in Ready. People hear of each change, once.
func TestConditions(t *testing.T) {
	w := newTestController(t)
	w.EditPool("lan", func(p *pool.Pool) { p.Metadata.CreationTimestamp = "2026-01-01T00:00:00Z" })
	whole := pool.Pool{Metadata: pool.Meta{Name: "x", CreationTimestamp: "2026-01-02T00:00:00Z"}, Spec: pool.Spec{Subnet: "10.3.0.0/24"}}
	recovery := &pool.Recovery{Message: "a loss"}
	for _, step := range []struct {
		do         func()
		conditions string
		events     string
	}{
		{func() {}, "Ready True Available, Exhausted False AddressesFree, Overlapping False NoOtherPool, Recovering False StateKnown, Terminating False NotDeleted", ""},
		{func() {
			for i := range int64(3) {
				w.addBlock(i, "n1")
			}
		}, "Ready True Available, Exhausted True NoAddressFree, Overlapping False NoOtherPool, Recovering False StateKnown, Terminating False NotDeleted",
			"lan: true: NoAddressFree: nodes have all addresses: add a range, or delete what nobody needs"},
		{func() { w.Forget("lan-2"); w.AddPool(whole) },
			"Ready True Available, Exhausted False AddressesFree, Overlapping True YoungerPool, Recovering False StateKnown, Terminating False NotDeleted",
			"lan: false: AddressesFree: nobody has some of the addresses; lan: true: YoungerPool: AddressPool x has addresses of it, too, and gives nothing new; " +
				"x: true: OlderPool: 10.3.0.1-10.3.0.254 of it is in AddressPool lan (10.3.0.0-10.3.0.11), too: make a pool of other addresses"},
		{func() {
			w.RemovePool("x")
			w.EditPool("lan", func(p *pool.Pool) { *p = p.WithRecovery(recovery); p.Spec.Paused = true })
		}, "Ready False StateLost, Exhausted False AddressesFree, Overlapping False NoOtherPool, Recovering True StateLost, Terminating False NotDeleted",
			"lan: false: NoOtherPool: no other pool has addresses of it; lan: true: StateLost: the nodes say what they have, and 2 have not said it: a loss"},
		{func() { w.EditPool("lan", func(p *pool.Pool) { *p = p.WithRecovery(nil); p.Spec.Subnet = "x" }) },
			"Ready False InvalidSpec, Exhausted Unknown InvalidSpec, Overlapping False NoOtherPool, Recovering False StateKnown, Terminating False NotDeleted",
			`lan: true: InvalidSpec: AddressPool lan: invalid spec.subnet "x": must be a network such as 10.3.0.0/24; lan: false: StateKnown: the API knows what nodes have`},
		{func() { w.EditPool("lan", func(p *pool.Pool) { p.Spec.Subnet = "10.2.0.0/15" }); w.RemovePool("lan") },
			"Ready False Deleted, Exhausted False AddressesFree, Overlapping False NoOtherPool, Recovering False StateKnown, Terminating True Deleted",
			"lan: false: AddressesFree: nobody has some of the addresses; lan: false: Deleted: it is being deleted, and waits for the end of 2 blocks"},
	} {
		step.do()
		w.events = nil
		w.reconcile("")
		var got []string
		for _, c := range w.pool("lan").Status.Conditions {
			got = append(got, fmt.Sprint(c.Type, " ", c.Status, " ", c.Reason))
		}
		if s := strings.Join(got, ", "); s != step.conditions {
			t.Errorf("the conditions are\n%s, want\n%s", s, step.conditions)
		}
		if s := strings.Join(w.events, "; "); s != step.events {
			t.Errorf("the events are\n%s, want\n%s", s, step.events)
		}
		w.clock = func() time.Time { return day.Add(time.Hour) }
		w.events = nil
		w.reconcile("")
		if w.events != nil {
			t.Errorf("nothing has changed: %v", w.events)
		}
	}
	if m := w.pool("lan").Status.Condition(pool.Ready).Message; m != "it is being deleted, and waits for the end of 2 blocks, and spec.paused is true" {
		t.Errorf("Ready says %s", m)
	}
	if c := w.pool("lan").Status.Condition(pool.Recovering); c.LastTransitionTime != "2026-03-01T12:00:00Z" {
		t.Errorf("the end of the recovery was at %s", c.LastTransitionTime)
	}
}
