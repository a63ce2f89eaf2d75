package node

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/relink-cni/relink/pkg/pool"
)

// While a pool recovers, each node writes what it has into the blocks again, and its name into the recovery.
func TestRecover(t *testing.T) {
	for name, test := range map[string]struct {
		has string
		// now is the block after the loss, "" for none.
		now   string
		want  string
		store string
		says  string
	}{
		"the block is lost":        {"AA.. me", "", "AA.. me", "++..", ""},
		"some of it is lost":       {"AAA. me", "A... me", "AAA. me", "+++.", ""},
		"the node is lost":         {"A..B me node2", "...A node2", "B..A node2 me", "+...", ""},
		"another node has it":      {"AA.. me", "BA.. me node2", "BA.. me node2", ".+..", ""},
		"and a pod has it here":    {"A... me", "B... me node2", "B... node2", "....", "another node has an address that this node has, too"},
		"nothing is lost":          {"AA.. me", "AA.. me", "AA.. me", "++..", ""},
		"more than the node knows": {"AA.. me", "AAAA me", "AA.. me", "++..", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestNode(t)
			s.putBlock(1, test.has)
			s.adoptBlocks(1)
			if test.says != "" {
				s.add("")
			}
			s.Forget("lan-1")
			if test.now != "" {
				s.putBlock(1, test.now)
			}
			s.EditPool("lan", func(p *pool.Pool) {
				*p = p.WithRecovery(&pool.Recovery{Message: "a loss", Asserted: []string{"node2"}})
			})
			s.noError(s.recoverPools(t.Context()))
			wantEqual(t, "the block", s.blockText(1), test.want)
			wantEqual(t, "the store", s.grant(1), test.store)
			if (test.says != "") != strings.Contains(s.log.String(), "another node has") || !strings.Contains(s.log.String(), test.says) {
				t.Errorf("the log has %s, want %s", s.log.String(), test.says)
			}
			p, err := s.Pool(t.Context(), "lan")
			s.noError(err)
			wantEqual(t, "who has asserted", fmt.Sprint(p.Status.Recovery.Asserted), "[node2 node1]")
			before := len(s.Requests())
			s.noError(s.recoverPools(t.Context()))
			wantEqual(t, "once more", fmt.Sprint(s.changes(before)), "[]")
		})
	}
}

// A node that has seen a newer status of the pool knows that the API has lost something, also if it has nothing itself.
func TestAnOlderStatusIsALoss(t *testing.T) {
	s := newTestNode(t)
	sequence := func(n int64) {
		s.EditPool("lan", func(p *pool.Pool) { p.Status.Sequence = n })
		s.noError(s.recoverPools(t.Context()))
	}
	sequence(7)
	sequence(8)
	wantEqual(t, "while it grows", s.recoveryReason(), "")
	sequence(5)
	wantEqual(t, "when it is less", s.recoveryReason(), "node node1: it has seen a newer status of the pool")
	s.noError(s.recoverPools(t.Context())) // It asserts, and begins with the status that the pool has.
	s.EditPool("lan", func(p *pool.Pool) { *p = p.WithRecovery(nil) })
	s.noError(s.recoverPools(t.Context()))
	wantEqual(t, "after the recovery", s.recoveryReason(), "")
}

// Others change the recovery at the same time.
func TestAssertingAtTheSameTime(t *testing.T) {
	s := newTestNode(t)
	s.EditPool("lan", func(p *pool.Pool) { *p = p.WithRecovery(&pool.Recovery{Message: "a loss"}) })
	again := 2
	s.BeforeRequest = func(r string) error {
		if r == "update status of pool lan" && again > 0 {
			again--
			s.EditPool("lan", func(p *pool.Pool) {
				next, _ := p.Status.Recovery.WithAsserted(fmt.Sprint("other", again))
				*p = p.WithRecovery(&next)
			})
		}
		return nil
	}
	s.noError(s.recoverPools(t.Context()))
	p, err := s.Pool(t.Context(), "lan")
	s.noError(err)
	wantEqual(t, "who has asserted", fmt.Sprint(p.Status.Recovery.Asserted), "[other1 other0 node1]")
}

// A person has removed the pool's finalizer, and has made another pool of the same name. What this node has of the old one is no part
// of it.
func TestRecoverOfAnotherPool(t *testing.T) {
	for name, test := range map[string]struct {
		ranges string
		size   int
		// now is the block of the new pool, "" for none.
		now string
	}{
		"it has no such block":      {"10.3.0.0-10.3.0.3", 4, ""},
		"its blocks are smaller":    {"10.3.0.0-10.3.0.15", 2, "AA node2"},
		"its blocks are larger":     {"10.3.0.0-10.3.0.63", 16, "AAAAAAAAAAAAAAAA node2"},
		"it has others there":       {"10.3.0.100-10.3.0.115", 4, "AA.. node2"},
		"nobody has anything there": {"10.3.0.100-10.3.0.115", 4, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestNode(t)
			s.putBlock(1, "AA.. me")
			s.adoptBlocks(1)
			held, _ := s.add("")
			s.Forget("lan-1")
			s.EditPool("lan", func(p *pool.Pool) {
				p.Metadata.UID, p.Spec.Ranges, p.Spec.BlockSize = "uid-of-the-next", []string{test.ranges}, test.size
			})
			p, err := s.Pool(t.Context(), "lan")
			s.noError(err)
			if l, err := p.Layout(); err != nil {
				t.Fatal(err)
			} else if test.now != "" {
				b, _ := pool.NewBlock(l, 1, partyOf("node2"), "boot")
				s.AddBlock(b)
			}
			for range 3 {
				s.Reconcile(t.Context())
			}
			if g := s.grant(1); strings.Trim(g, ".") != "" {
				t.Errorf("the store still has %s", g)
			}
			if p, err = s.Pool(t.Context(), "lan"); err != nil {
				t.Fatal(err)
			}
			if r := p.Status.Recovery; r == nil || fmt.Sprint(r.Asserted) != "[node1]" {
				t.Errorf("it has asserted: %v", r.Asserted)
			}
			if l, err := s.store.Get(t.Context(), held); err != nil || len(l.Holders) != 1 {
				t.Errorf("the pod has %+v, %v", l, err)
			}
			if test.now != "" {
				if b, err := s.Block(t.Context(), "lan-1"); err != nil || len(b.Status.Holders) != 1 || b.Status.Holders[0].Node != "node2" {
					t.Errorf("the block of the new pool is %+v, %v", b.Spec, err)
				}
			}
		})
	}
}

// While a pool recovers, nobody knows which address an owner has: its pod waits.
func TestOwnersWaitForARecovery(t *testing.T) {
	s := newTestNode(t)
	s.Reconcile(t.Context())
	a := pool.Acquisition{Network: "pods", Pool: "lan", IfName: "eth0", Owner: ownerOf("web-0")}
	_, err := s.Acquire(t.Context(), a)
	s.noError(err)
	s.EditPool("lan", func(p *pool.Pool) { *p = p.WithRecovery(&pool.Recovery{Message: "a loss"}) })
	if _, err := s.Acquire(t.Context(), a); !errors.Is(err, pool.ErrUnavailable) || !strings.Contains(err.Error(), "the pool lan recovers, and which addresses owners have is known after that: a loss") {
		t.Error(err)
	}
}

// A node that was declared dead lives, and a pod still has an address. A recovery does not make the address free: who takes it probes.
func TestRecoveryWhileADeclaredDeadNodeLives(t *testing.T) {
	s := newTestNode(t)
	s.putBlock(1, "AA.. me")
	s.adoptBlocks(1)
	_, key := s.add("")
	s.declareDead("lan-1")
	s.Reconcile(t.Context())
	s.EditPool("lan", func(p *pool.Pool) { *p = p.WithRecovery(&pool.Recovery{Message: "a loss"}) })
	s.noError(s.recoverPools(t.Context()))
	wantEqual(t, "after the recovery", s.blockText(1), "AA.. me!")
	s.EditPool("lan", func(p *pool.Pool) { *p = p.WithRecovery(nil) })
	s.del(key)
	s.Reconcile(t.Context())
	if b := s.blockText(1); strings.Contains(b, "me!") {
		t.Errorf("after the pod has ended: %s", b)
	}
}

// A node had left a block after a fence, and has taken addresses of it again. Then the API forgets that: it has the fence once more. The
// recovery goes on as long as a pod has an address that others could take without a probe.
func TestRecoveryWithAFenceThatIsOver(t *testing.T) {
	s := newTestNode(t)
	s.putBlock(1, "AA.. me")
	s.adoptBlocks(1)
	_, one := s.add("")
	_, two := s.add("")
	s.EditBlock("lan-1", func(b *pool.Block) {
		b.Status.Addresses, b.Status.Holders[0].Fenced, b.Status.Epoch = "A...", "proof", b.Status.Epoch-1
	})
	s.EditPool("lan", func(p *pool.Pool) { *p = p.WithRecovery(&pool.Recovery{Message: "a loss"}) })
	asserted := func() string {
		p, err := s.Pool(t.Context(), "lan")
		s.noError(err)
		return fmt.Sprint(p.Status.Recovery.Asserted)
	}
	wantError(t, "recover", s.recoverPools(t.Context()), "has as nobody's 10.3.0.5: delete the pods here that have them")
	s.Reconcile(t.Context())
	wantEqual(t, "who has asserted", asserted(), "[]")
	s.del(two)
	s.Reconcile(t.Context())
	wantEqual(t, "who has asserted then", asserted(), "[node1]")
	wantEqual(t, "the block", s.blockText(1), "A... me!")
	s.del(one)
}

// A node was declared dead and lives, and a pod still has an address. Then the API forgets the fence. The recovery does not make the
// address one that others take without a probe: it goes on until the pod has ended, or until another node says that it has the address.
func TestRecoveryToATimeBeforeAFence(t *testing.T) {
	for name, test := range map[string]struct {
		// now is the block after the loss, "" for none.
		now   string
		waits bool
		// then is the block when the pod has ended.
		then string
	}{
		"the node has it again":       {"AA.. me", true, "...."},
		"and another node has some":   {"AABB me node2", true, "..BB node2"},
		"nobody has it":               {".AB. me node2", true, "..B. node2"},
		"before the node had a block": {"...A node2", true, "...A node2"},
		"before the block was made":   {"", true, "none"},
		"another node has it":         {"BA.B me node2", false, "B..B node2"},
		"it has the fence":            {"AA.. me!", false, "none"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestNode(t)
			s.putBlock(1, "AA.. me")
			s.adoptBlocks(1)
			_, key := s.add("")
			s.EditBlock("lan-1", func(b *pool.Block) { b.Status.Epoch = 20 })
			s.declareDead("lan-1")
			s.Reconcile(t.Context())
			wantEqual(t, "the store", s.grant(1), "....")
			uid := s.blockUID("lan-1")
			s.Forget("lan-1")
			if test.now != "" {
				s.putBlock(1, test.now)
				s.EditBlock("lan-1", func(b *pool.Block) { b.Metadata.UID = uid })
			}
			s.EditPool("lan", func(p *pool.Pool) {
				*p = p.WithRecovery(&pool.Recovery{Message: "a loss", Asserted: []string{"node2"}})
			})
			asserted := func() string {
				p, err := s.Pool(t.Context(), "lan")
				s.noError(err)
				return fmt.Sprint(p.Status.Recovery.Asserted)
			}
			if test.waits {
				wantError(t, "recover", s.recoverPools(t.Context()), "delete the pods here that have them")
				s.Reconcile(t.Context())
				wantEqual(t, "who has asserted", asserted(), "[node2]")
			} else {
				s.noError(s.recoverPools(t.Context()))
			}
			s.del(key)
			s.Reconcile(t.Context())
			wantEqual(t, "who has asserted then", asserted(), "[node2 node1]")
			s.Reconcile(t.Context())
			wantEqual(t, "the block then", s.blockText(1), test.then)
		})
	}
}

func (s *testNode) blockUID(block string) string {
	s.t.Helper()
	b, err := s.Block(s.t.Context(), block)
	s.noError(err)
	return b.Metadata.UID
}

// The backup has a recovery in which this node has asserted. What the API has lost since then, the node asserts again: nobody waits for it.
func TestAssertedBeforeTheBackup(t *testing.T) {
	for name, older := range map[string]string{"a block": "A...", "all of it": ""} {
		s := newTestNode(t)
		s.putBlock(1, "AAAA me")
		s.adoptBlocks(1)
		b, err := s.Block(t.Context(), "lan-1")
		s.noError(err)
		if older == "" {
			s.noError(s.DeleteBlock(t.Context(), b))
		} else {
			s.EditBlock("lan-1", func(b *pool.Block) { b.Status.Addresses, b.Status.Epoch, b.Status.Holders[0].Epoch = older, 5, 5 })
		}
		s.EditPool("lan", func(p *pool.Pool) { *p = p.WithRecovery(&pool.Recovery{Message: "old", Asserted: []string{"node1"}}) })
		s.Reconcile(t.Context())
		wantEqual(t, name, s.blockText(1), "AAAA me")
	}
}
