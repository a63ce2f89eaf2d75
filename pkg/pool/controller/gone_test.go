package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/test/pooltest"
)

// addClaim makes the claim of an owner of that name.
func (w *testController) addClaim(name, address string) {
	w.AddClaim(pool.Claim{
		Metadata: pool.Meta{Name: name}, Spec: pool.ClaimSpec{Pool: "lan", IfName: "eth0", Owner: attachment.Owner{Kind: "StatefulSet", Namespace: "ns", Name: name, UID: "u"}},
		Status: pool.ClaimStatus{Address: netip.MustParseAddr(address), Epoch: 1, Active: pool.Place{Party: party("n3")}},
	})
}

// blockText is what the block has, "none" if there is none.
func (w *testController) blockText(name string) string {
	w.t.Helper()
	b, err := w.Block(w.t.Context(), name)
	if errors.Is(err, pool.ErrNotFound) {
		return "none"
	}
	return strings.TrimSpace(fmt.Sprint(b.Status.Addresses, " ", b.Status.Nodes, " ", b.Status.Unproven))
}

// A dead node that is deleted leaves its blocks. Its owners keep their addresses as long as they live. Who only has a new Node object has left, too.
func TestANodeThatIsGone(t *testing.T) {
	fence := func(w *testController) {
		w.EditBlock("lan-0", func(b *pool.Block) { *b, _ = b.Fence(func(p pool.Party) bool { return p.Node == "n3" }, "burnt") })
	}
	for name, test := range map[string]struct {
		do   func(*testController)
		err  string
		want string
		// then is what the next two looks make of it.
		then string
	}{
		"it is only gone": {func(*testController) {}, "", "BBBA n3 3, n1 1 []", "BBBA n3 3, n1 1 []"},
		"it is only dead": {func(w *testController) { fence(w); w.AddNode(pool.Node{Name: "n3", UID: "uid"}) }, "", "BBBA n3 3 (fenced), n1 1 []", "BBBA n3 3 (fenced), n1 1 []"},
		"it is both":      {fence, "", "..=A n1 1 [10.3.0.0 10.3.0.1 10.3.0.2]", "..=A n1 1 [10.3.0.0 10.3.0.1 10.3.0.2]"},
		"another machine has its name": {func(w *testController) { fence(w); w.AddNode(pool.Node{Name: "n3", UID: "new"}) }, "",
			"..=A n1 1 [10.3.0.0 10.3.0.1 10.3.0.2]", "..=A n1 1 [10.3.0.0 10.3.0.1 10.3.0.2]"},
		"it comes back at that moment": {func(w *testController) {
			fence(w)
			w.BeforeRequest = func(r string) error {
				if r == "get node n3" {
					w.AddNode(pool.Node{Name: "n3", UID: "uid"})
				}
				return nil
			}
		}, "", "BBBA n3 3 (fenced), n1 1 []", "BBBA n3 3 (fenced), n1 1 []"},
		"nobody knows": {func(w *testController) {
			fence(w)
			w.BeforeRequest = func(r string) error {
				if r == "get node n3" {
					return errAway
				}
				return nil
			}
		}, errAway.Error(), "BBBA n3 3 (fenced), n1 1 []", "..=A n1 1 [10.3.0.0 10.3.0.1 10.3.0.2]"},
		"its owner is gone":   {func(w *testController) { fence(w); w.ended = []string{"web"} }, "", "..=A n1 1 [10.3.0.0 10.3.0.1 10.3.0.2]", "...A n1 1 [10.3.0.0 10.3.0.1 10.3.0.2]"},
		"the pool is deleted": {func(w *testController) { fence(w); w.RemovePool("lan") }, "", "...A n1 1 [10.3.0.0 10.3.0.1 10.3.0.2]", "...A n1 1 [10.3.0.0 10.3.0.1 10.3.0.2]"},
		"the pool is deleted, and nobody else has any": {func(w *testController) {
			w.EditBlock("lan-0", func(b *pool.Block) { *b = b.Release(party("n1"), []int{3}, nil) })
			fence(w)
			w.RemovePool("lan")
		}, "", "none", "none"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestController(t)
			w.addBlock(0, "n1", "n3")
			w.EditBlock("lan-0", func(b *pool.Block) {
				*b = b.HandOver(party("n1"), []int{0, 1, 2}, party("n3"))
				*b, _ = b.Take(party("n1"), []int{3})
				*b = b.HandOver(party("n3"), []int{3}, party("n1"))
				for i := range b.Status.Holders {
					b.Status.Holders[i].NodeUID = "uid"
				}
			})
			w.addClaim("web", "10.3.0.2")
			w.addClaim("of-n1", "10.3.0.3")
			test.do(w)
			w.reconcile(test.err)
			if got := w.blockText("lan-0"); got != test.want {
				t.Errorf("the block is %s, want %s", got, test.want)
			}
			w.BeforeRequest = nil
			w.reconcile("")
			w.reconcile("")
			if got := w.blockText("lan-0"); w.ended != nil && got != test.want {
				t.Errorf("an owner was gone for a moment, and the block is %s, want %s", got, test.want)
			}
			w.clock = func() time.Time { return day.Add(goneLimit) }
			w.reconcile("")
			w.reconcile("")
			if got := w.blockText("lan-0"); got != test.then {
				t.Errorf("after two more looks the block is %s, want %s", got, test.then)
			}
			if _, err := w.Claim(t.Context(), "of-n1"); err != nil && test.then != "none" {
				t.Errorf("the claim of a node that lives: %v", err)
			}
		})
	}
}

// A deleted pool ends when the last dead node of it is deleted, with the claims of its owners.
func TestTheEndOfAPoolOfADeadNode(t *testing.T) {
	w := newTestController(t)
	w.addBlock(0, "n3")
	w.addClaim("web", "10.3.0.2")
	w.RemovePool("lan")
	w.AddNode(pool.Node{Name: "n3", OutOfService: true})
	w.reconcile("")
	w.reconcile("")
	if got := w.blockText("lan-0"); got != "AAAA n3 4 (fenced) []" {
		t.Errorf("the node is only dead: %s", got)
	}
	w.RemoveNode("n3")
	w.reconcile("")
	w.reconcile("")
	_, errPool := w.Pool(t.Context(), "lan")
	_, errClaim := w.Claim(t.Context(), "web")
	if !errors.Is(errPool, pool.ErrNotFound) || !errors.Is(errClaim, pool.ErrNotFound) {
		t.Errorf("pool: %v, claim: %v", errPool, errClaim)
	}
	want := []string{"lan: true: NodeFenced: others may take what node n3 has in AddressBlock lan-0: node has the taint node.kubernetes.io/out-of-service, seen 2026-03-01T11:00:00Z",
		"lan: false: NodeRemoved: node n3 is deleted, and has nothing of AddressBlock lan-0 any more", "lan: false: PoolReleased: no node has any address of it: it goes"}
	got := slices.DeleteFunc(w.events, func(e string) bool { return !slices.Contains(want, e) })
	if !slices.Equal(got, want) {
		t.Errorf("people hear of %s, want %s", strings.Join(w.events, "\n"), strings.Join(want, "\n"))
	}
}

// now is a cache that is never late.
type now struct{ *testController }

func (n now) with(f func(Cache)) {
	n.t.Helper()
	done := false
	err := pooltest.Reconcile(n.t.Context(), n.API, func(_ context.Context, c Cache, _ string) error {
		if !done {
			f(c)
		}
		done = true
		return nil
	})
	if err != nil {
		n.t.Error(err)
	}
}

func (n now) Pools() (all []pool.Pool) { n.with(func(c Cache) { all = c.Pools() }); return all }
func (n now) Pool(name string) (p pool.Pool, others []pool.Pool, found bool) {
	n.with(func(c Cache) { p, others, found = c.Pool(name) })
	return p, others, found
}
func (n now) Blocks(name string) (all []pool.Block) {
	n.with(func(c Cache) { all = c.Blocks(name) })
	return all
}
func (n now) Claims(name string) (all []pool.Claim) {
	n.with(func(c Cache) { all = c.Claims(name) })
	return all
}
func (n now) Nodes() (all []pool.Node) { n.with(func(c Cache) { all = c.Nodes() }); return all }

// A change of a pool is seen at once, one of its blocks a little later, and with others. An API that is away is asked again. A look at all pools
// comes from time to time.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestController(t)
		var away atomic.Bool
		w.BeforeRequest = func(r string) error {
			if away.Load() && r == "update status of pool lan" {
				return errAway
			}
			return nil
		}
		ctx, cancel := context.WithCancel(t.Context())
		var changed func(string, bool)
		w.Watch = func(_ context.Context, f func(string, bool)) Cache { changed = f; return now{w} }
		ended := make(chan struct{})
		go func() { w.Run(ctx); close(ended) }()
		sequence := func() int64 { synctest.Wait(); return w.pool("lan").Status.Sequence }
		if n := sequence(); n != 1 {
			t.Errorf("at the start: status %d", n)
		}
		w.addBlock(0, "n1")
		changed("lan", false)
		if n := sequence(); n != 1 {
			t.Errorf("a block: status %d at once", n)
		}
		w.addBlock(1, "n1")
		changed("lan", false)
		time.Sleep(batchDelay)
		if n := sequence(); n != 2 {
			t.Errorf("two blocks: status %d, want one more", n)
		}
		away.Store(true)
		w.EditPool("lan", func(p *pool.Pool) { p.Spec.Paused = true })
		changed("lan", true)
		if n := sequence(); n != 2 {
			t.Errorf("the API is away: status %d", n)
		}
		away.Store(false)
		time.Sleep(firstWait)
		if n := sequence(); n != 3 {
			t.Errorf("the API is back: status %d", n)
		}
		w.EditPool("lan", func(p *pool.Pool) { p.Spec.Paused = false }) // Nobody tells.
		time.Sleep(resyncInterval)
		if n := sequence(); n != 4 {
			t.Errorf("a look at all: status %d", n)
		}
		if found, _, leads := w.Seen(); len(found) != 1 || !leads {
			t.Errorf("it has seen %v, leads %t", found, leads)
		}
		cancel()
		<-ended
		if found, at, leads := w.Seen(); len(found) > 0 || !at.IsZero() || leads {
			t.Errorf("another process leads: %v, %s, %t", found, at, leads)
		}
	})
}
