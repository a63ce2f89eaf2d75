package node

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
)

// excludeBlocks makes the pool exclude all but the last block. With a hint, the controller has said that all blocks are free.
func (s *testNode) excludeBlocks(hint string) {
	s.EditPool("lan", func(p *pool.Pool) { p.Spec.Exclude, p.Status.Free = []string{"10.3.0.0-10.3.0.11"}, hint })
}

// Nobody makes a block of which the pool excludes all addresses, and the search goes on to the others.
func TestBlocksThatAreExcluded(t *testing.T) {
	for name, hint := range map[string]string{"without a hint": "", "with a hint": "Dw=="} {
		for range 8 { // The first guess is a random one.
			t.Run(name, func(t *testing.T) {
				s := newTestNode(t)
				s.excludeBlocks(hint)
				s.noError(s.fill(t.Context(), "lan", 1))
				wantEqual(t, "the store", s.grants(), "++++")
				all, err := s.Blocks(t.Context(), "lan")
				s.noError(err)
				wantEqual(t, "blocks", fmt.Sprint(len(all)), "1")
			})
		}
	}
}

// With one address in each block, the gateway has a block of its own, which nobody makes.
func TestBlocksOfOneAddress(t *testing.T) {
	s := newTestNode(t)
	s.EditPool("lan", func(p *pool.Pool) { p.Spec.BlockSize, p.Spec.Gateway = 1, "10.3.0.5" })
	for range 15 {
		s.noError(s.fill(t.Context(), "lan", 1))
		s.add("")
	}
	if err := s.fill(t.Context(), "lan", 1); err != nil {
		t.Error(err)
	}
	wantEqual(t, "the block of the gateway", s.blockText(5), "none")
	wantEqual(t, "the store", strings.ReplaceAll(s.grants(), " ", ""), "+++++++++++++++")
}

// A node leaves a block of which it has nothing, and deletes it if nobody else has anything: an earlier agent has made such blocks.
// Otherwise a deleted pool would never go.
func TestABlockOfWhichTheNodeHasNothing(t *testing.T) {
	for put, want := range map[string]string{"---- me": "none", "--.. me": "none", "--B. me node2": "--B. node2", "--.. me!": "none"} {
		t.Run(put, func(t *testing.T) {
			s := newTestNode(t)
			s.putBlock(1, put)
			s.EditPool("lan", func(p *pool.Pool) { p.Spec.Paused = true })
			s.Reconcile(t.Context())
			s.advance(time.Minute)
			s.Reconcile(t.Context())
			wantEqual(t, "the block", s.blockText(1), want)
		})
	}
}

// A node gives back a block of which the pool excludes all by now, also if it has no surplus.
func TestAnExcludedBlockIsGivenBack(t *testing.T) {
	for name, test := range map[string]struct {
		deleted, held bool
		want          string
	}{
		"the pool goes on":        {false, false, "none"},
		"the pool is deleted":     {true, false, "none"},
		"a pod has an address":    {false, true, "AAAA me"},
		"a pod of a deleted pool": {true, true, "AAAA me"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestNode(t)
			s.putBlock(1, "AAAA me")
			s.adoptBlocks(1)
			if test.held {
				s.add("")
			}
			s.putBlock(3, "AAAA me")
			s.adoptBlocks(3)
			s.excludeBlocks("")
			if test.deleted {
				s.EditPool("lan", func(p *pool.Pool) { p.Metadata.Finalizers = []string{pool.Finalizer} })
				s.RemovePool("lan")
			}
			for range 4 {
				s.Reconcile(t.Context())
				s.advance(s.Surplus)
			}
			wantEqual(t, "the excluded block", s.blockText(1), test.want)
			wantEqual(t, "the other one", s.blockText(3), map[bool]string{false: "AAAA me", true: "none"}[test.deleted])
		})
	}
}

// The pool excludes the address of an owner, and no pod has it. The owner's next pod gets another one, wherever it starts. A machine that
// migrates has the address still.
func TestOwnersOfExcludedAddresses(t *testing.T) {
	for _, where := range []string{"node1", "node2"} {
		t.Run(where, func(t *testing.T) {
			n1 := newTestNode(t)
			n2 := n1.peer("node2")
			x, key := n1.mustStartVM(virtualMachine("lan", "u1"), nil)
			n1.EditPool("lan", func(p *pool.Pool) { p.Spec.Exclude = []string{x.String()} })
			reconcileAll(n1, n2)()
			if _, err := n2.Acquire(t.Context(), virtualMachine("lan", "u2", "u1")); !errors.Is(err, pool.ErrUnknown) {
				t.Errorf("a machine that migrates: %v", err)
			}
			n1.del(key)
			on := map[string]*testNode{"node1": n1, "node2": n2}[where]
			if found, err := on.Acquire(t.Context(), virtualMachine("lan", "u3")); err != nil || found.Address.IsValid() {
				t.Errorf("it finds %+v, %v", found, err)
			}
			y, _ := on.mustStartVM(virtualMachine("lan", "u3"), reconcileAll(n1, n2))
			reconcileAll(n1, n2)()
			c, err := n1.Claim(t.Context(), pool.ClaimName("lan", "eth0", virtualMachine("lan", "").Owner))
			if err != nil || y == x || c.Status.Address != y || c.Status.Active.Node != where {
				t.Errorf("it had %s and has %s, and the claim is %+v, %v", x, y, c.Spec, err)
			}
			wantEqual(t, "the address before is", n1.leaseState(x), "free")
		})
	}
}
