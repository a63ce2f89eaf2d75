package node

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
)

// putMadeUp makes a block as a broken node can: it says that it is of another pool, and has addresses of a block of node3.
func (s *testNode) putMadeUp(uid, text string) {
	s.t.Helper()
	s.putBlock(0, "AAAA node3")
	s.putBlock(3, text)
	s.EditBlock("lan-3", func(b *pool.Block) {
		b.Spec.First, b.Spec.Last = netip.MustParseAddr("10.3.0.0"), netip.MustParseAddr("10.3.0.3")
		if uid != "" {
			b.Spec.PoolUID = uid
		}
	})
}

// A broken node makes up a block with addresses that other nodes have, and gives some of it to this node, or to nobody. This node takes
// nothing of it, and works as before.
func TestBlocksThatAnotherNodeMakesUp(t *testing.T) {
	for name, uid := range map[string]string{"of this pool": "", "of a pool that does not exist": "made-up"} {
		for what, text := range map[string]string{"this node has some": "AABB node2 me", "nobody has some": "AA.. node2"} {
			t.Run(name+", "+what, func(t *testing.T) {
				s := newTestNode(t)
				s.putBlock(1, "AAAA node2")
				s.putBlock(2, "AAAA node2")
				s.putMadeUp(uid, text)
				s.reboot()
				s.Reconcile(t.Context())
				_ = s.fill(t.Context(), "lan", 1)
				if g := s.grants(); strings.Trim(g, ". ") != "" {
					t.Errorf("the store has %s", g)
				}
				if g, err := s.store.Granted(t.Context()); err != nil || !g.Confirmed {
					t.Errorf("it has not confirmed what it has: %v\n%s", err, s.log.String())
				}
				wantEqual(t, "the block", s.blockText(3), text)
				if what == "this node has some" && !strings.Contains(s.log.String(), "AddressBlock lan-3 has the addresses 10.3.0.0-10.3.0.3, and the pool has others there") {
					t.Errorf("the log has %s", s.log.String())
				}
			})
		}
	}
}

// A pool was made anew, and this node hears of one of its blocks before it hears of the pool.
func TestABlockOfAPoolThatWasMadeAnew(t *testing.T) {
	s := newTestNode(t)
	s.putBlock(0, "AAAA me")
	s.adoptBlocks(0)
	s.EditPool("lan", func(p *pool.Pool) {
		p.Metadata.UID, p.Spec.Ranges = "uid-of-the-next", []string{"10.3.0.100-10.3.0.115"}
	})
	p, err := s.Pool(t.Context(), "lan")
	s.noError(err)
	l, err := p.Layout()
	s.noError(err)
	b, _ := pool.NewBlock(l, 3, s.party(), "boot")
	_, err = s.reconcile(t.Context(), s.AddBlock(b), 0)
	wantError(t, "adopt", err, "")
	wantEqual(t, "the store", s.grant(3), "++++")
	if p, err := s.store.Granted(t.Context()); err != nil || p.Pools[0].Layout.UID != "uid-of-the-next" {
		t.Errorf("the store knows the pool as %+v, %v", p.Pools[0].Layout, err)
	}
}

// A person has removed a pool of which this node still has addresses, and the finalizer of it. The network has another pool by now.
// After a boot the node gives addresses of that.
func TestAPoolThatIsGone(t *testing.T) {
	for name, left := range map[string]bool{"its blocks are left": true, "its blocks are gone, too": false} {
		t.Run(name, func(t *testing.T) {
			s := newTestNode(t)
			s.putBlock(1, "AAAA me")
			s.adoptBlocks(1)
			s.AddPool(pool.Pool{Metadata: pool.Meta{Name: "next"}, Spec: pool.Spec{Subnet: "10.4.0.0/24", BlockSize: 4}})
			s.RemovePool("lan")
			if !left {
				s.Forget("lan-1")
			}
			s.noError(s.store.SetPools(t.Context(), []string{"next"}))
			s.reboot()
			s.Reconcile(t.Context())
			s.advance(time.Minute)
			s.Reconcile(t.Context())
			g, err := s.state(t.Context())
			if err != nil || !g.Confirmed || grantedCount(g.poolState("next")) == 0 {
				t.Errorf("it has %+v, %v\n%s", g, err, s.log.String())
			}
		})
	}
}

// A broken node makes this node a holder of a block of a pool that does not exist.
func TestABlockOfAPoolThatDoesNotExist(t *testing.T) {
	s := newTestNode(t)
	l, err := lan.Layout()
	s.noError(err)
	l.Name = "none"
	b, _ := pool.NewBlock(l, 0, s.party(), "boot")
	s.AddBlock(b)
	s.reboot()
	s.Reconcile(t.Context())
	if g, err := s.state(t.Context()); err != nil || !g.Confirmed {
		t.Errorf("it has not confirmed what it has: %v\n%s", err, s.log.String())
	}
}
