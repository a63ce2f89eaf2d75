package keeper

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
)

// excludes makes the pool exclude all but the last block. With a hint, the controller has said that all blocks are free.
func (s *site) excludes(hint string) {
	s.EditPool("lan", func(p *pool.Pool) { p.Spec.Exclude, p.Status.Free = []string{"10.3.0.0-10.3.0.11"}, hint })
}

// Nobody makes a block of which the pool excludes all addresses, and the search goes on to the others.
func TestBlocksThatAreExcluded(t *testing.T) {
	for name, hint := range map[string]string{"without a hint": "", "with a hint": "Dw=="} {
		for range 8 { // The first guess is a random one.
			t.Run(name, func(t *testing.T) {
				s := newSite(t)
				s.excludes(hint)
				s.ok(s.fill(t.Context(), "lan", 1))
				is(t, "the store", s.grants(), "++++")
				all, err := s.Blocks(t.Context(), "lan")
				s.ok(err)
				is(t, "blocks", fmt.Sprint(len(all)), "1")
			})
		}
	}
}

// With one address in each block, the gateway has a block of its own, which nobody makes.
func TestBlocksOfOneAddress(t *testing.T) {
	s := newSite(t)
	s.EditPool("lan", func(p *pool.Pool) { p.Spec.BlockSize, p.Spec.Gateway = 1, "10.3.0.5" })
	for range 15 {
		s.ok(s.fill(t.Context(), "lan", 1))
		s.add("")
	}
	if err := s.fill(t.Context(), "lan", 1); err != nil {
		t.Error(err)
	}
	is(t, "the block of the gateway", s.told(5), "none")
	is(t, "the store", strings.ReplaceAll(s.grants(), " ", ""), "+++++++++++++++")
}

// A node leaves a block of which it has nothing, and deletes it if nobody else has anything: an earlier agent has made such blocks.
// Otherwise a deleted pool would never go.
func TestABlockOfWhichTheNodeHasNothing(t *testing.T) {
	for put, want := range map[string]string{"---- me": "none", "--.. me": "none", "--B. me node2": "--B. node2", "--.. me!": "none"} {
		t.Run(put, func(t *testing.T) {
			s := newSite(t)
			s.put(1, put)
			s.EditPool("lan", func(p *pool.Pool) { p.Spec.Paused = true })
			s.Look(t.Context())
			s.later(time.Minute)
			s.Look(t.Context())
			is(t, "the block", s.told(1), want)
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
			s := newSite(t)
			s.put(1, "AAAA me")
			s.has(1)
			if test.held {
				s.add("")
			}
			s.put(3, "AAAA me")
			s.has(3)
			s.excludes("")
			if test.deleted {
				s.EditPool("lan", func(p *pool.Pool) { p.Metadata.Finalizers = []string{pool.Finalizer} })
				s.RemovePool("lan")
			}
			for range 4 {
				s.Look(t.Context())
				s.later(s.Surplus)
			}
			is(t, "the excluded block", s.told(1), test.want)
			is(t, "the other one", s.told(3), map[bool]string{false: "AAAA me", true: "none"}[test.deleted])
		})
	}
}

// The pool excludes the address of an owner, and no pod has it. The owner's next pod gets another one, wherever it starts. A machine that
// migrates has the address still.
func TestOwnersOfExcludedAddresses(t *testing.T) {
	for _, where := range []string{"node1", "node2"} {
		t.Run(where, func(t *testing.T) {
			n1 := newSite(t)
			n2 := n1.beside("node2")
			x, key := n1.launched(virtualMachine("lan", "u1"), nil)
			n1.EditPool("lan", func(p *pool.Pool) { p.Spec.Exclude = []string{x.String()} })
			someLooks(n1, n2)()
			if _, err := n2.Acquire(t.Context(), virtualMachine("lan", "u2", "u1")); !errors.Is(err, pool.ErrUnknown) {
				t.Errorf("a machine that migrates: %v", err)
			}
			n1.del(key)
			on := map[string]*site{"node1": n1, "node2": n2}[where]
			if found, err := on.Acquire(t.Context(), virtualMachine("lan", "u3")); err != nil || found.Address.IsValid() {
				t.Errorf("it finds %+v, %v", found, err)
			}
			y, _ := on.launched(virtualMachine("lan", "u3"), someLooks(n1, n2))
			someLooks(n1, n2)()
			c, err := n1.Claim(t.Context(), pool.ClaimName("lan", "eth0", virtualMachine("lan", "").Owner))
			if err != nil || y == x || c.Spec.Address != y || c.Spec.Active.Node != where {
				t.Errorf("it had %s and has %s, and the claim is %+v, %v", x, y, c.Spec, err)
			}
			is(t, "the address before is", n1.leased(x), "free")
		})
	}
}
