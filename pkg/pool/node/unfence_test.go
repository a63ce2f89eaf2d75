package node

import (
	"errors"
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
	"github.com/relink-cni/relink/pkg/pool/controller"
)

// reserveFor makes an address wait here for the owner, as after its pod has ended.
func (s *testNode) reserveFor(owner string) netip.Addr {
	s.t.Helper()
	x, key := s.add(owner)
	s.del(key)
	s.AddClaim(pool.Claim{Metadata: pool.Meta{Name: pool.ClaimName("lan", "eth0", ownerOf(owner))}, Spec: pool.ClaimSpec{
		Pool: "lan", IfName: "eth0", Owner: ownerOf(owner), Address: x, Epoch: 1, Active: pool.Place{Party: s.party()},
	}})
	s.noError(s.store.MarkClaimed(s.t.Context(), x, ownerOf(owner)))
	return x
}

// declareDead fences this node in the block.
func (s *testNode) declareDead(block string) {
	me := s.party()
	s.EditBlock(block, func(b *pool.Block) { *b, _ = b.Fence(me.SameParty, "proof") })
}

// A node that was declared dead comes back at a moment when it may not take anything, or its agent is ended at any step. The address of
// its owner waits here again in the end.
func TestOwnersOfANodeThatComesBackWithTrouble(t *testing.T) {
	errLost := errors.New("the answer is lost")
	for name, trouble := range map[string]func(*testNode){
		"its agent has just started": func(s *testNode) {
			s.Settling = 5 * time.Second
			s.mu.Lock()
			s.reachableSince = s.time
			s.mu.Unlock()
		},
		"the pool is paused": func(s *testNode) {
			s.EditPool("lan", func(p *pool.Pool) { p.Spec.Paused = true })
			s.Reconcile(t.Context())
			s.advance(time.Hour)
			s.Reconcile(t.Context())
			s.EditPool("lan", func(p *pool.Pool) { p.Spec.Paused = false })
		},
		"the pool recovers": func(s *testNode) {
			s.EditPool("lan", func(p *pool.Pool) { *p = p.WithRecovery(&pool.Recovery{Reason: "a loss"}) })
			s.Reconcile(t.Context())
			s.advance(time.Hour)
			s.Reconcile(t.Context())
			s.EditPool("lan", func(p *pool.Pool) { *p = p.WithRecovery(nil) })
		},
		"the agent ends after it has left": func(s *testNode) {
			s.crashAfter("update block lan-1", errLost)
		},
		"the agent ends after it has left, and begins while the pool is paused": func(s *testNode) {
			s.crashAfter("update block lan-1", errLost)
			s.EditPool("lan", func(p *pool.Pool) { p.Spec.Paused = true })
			s.Reconcile(t.Context())
			s.advance(time.Hour)
			s.Reconcile(t.Context())
			s.EditPool("lan", func(p *pool.Pool) { p.Spec.Paused = false })
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestNode(t)
			s.putBlock(1, "AAAA me")
			s.adoptBlocks(1)
			x := s.reserveFor("web-0")
			s.declareDead("lan-1")
			s.reboot()
			trouble(s)
			for range 3 {
				s.Reconcile(t.Context())
				s.advance(time.Minute)
			}
			wantEqual(t, "it is that of", s.holder("lan", x), "node1")
			wantEqual(t, "it is", s.leaseState(x), "reserved")
			c, err := s.Claim(t.Context(), pool.ClaimName("lan", "eth0", ownerOf("web-0")))
			if err != nil || c.Spec.Address != x || c.Spec.Active.Node != "node1" {
				t.Errorf("the claim is %+v, %v", c.Spec, err)
			}
		})
	}
}

// An owner's address has come to a node too late for the owner's pod, and the claim still names the node before. This one is declared dead
// at that moment, and comes back. The address waits here.
func TestAnAddressThatHasComeToANodeThatIsDead(t *testing.T) {
	n1 := newTestNode(t)
	n2 := n1.peer("node2")
	x := handOverTooLate(n1, n2)
	me := n2.party()
	blocks, err := n1.Blocks(t.Context(), "lan")
	n1.noError(err)
	for _, b := range blocks {
		n1.EditBlock(b.Metadata.Name, func(b *pool.Block) { *b, _ = b.Fence(me.SameParty, "proof") })
	}
	for range 3 {
		reconcileAll(n2, n1)()
		n1.advance(time.Minute)
		n2.advance(time.Minute)
	}
	wantEqual(t, "it is that of", n1.holder("lan", x), "node2")
	wantEqual(t, "it is", n2.leaseState(x), "reserved")
	c, err := n1.Claim(t.Context(), pool.ClaimName("lan", "eth0", virtualMachine("lan", "").Owner))
	if err != nil || c.Spec.Address != x || c.Spec.Active.Node != "node2" {
		t.Errorf("the claim is %+v, %v", c.Spec, err)
	}
}

// crashAfter looks until the API has done the request. The agent does not hear of that, and nothing of what follows. Then it starts anew.
func (s *testNode) crashAfter(request string, err error) {
	s.t.Helper()
	ended := false
	s.BeforeRequest = func(string) error {
		if ended {
			return err
		}
		return nil
	}
	s.AfterRequest = func(r string) error {
		ended = ended || r == request
		if ended {
			return err
		}
		return nil
	}
	s.Reconcile(s.t.Context())
	if s.BeforeRequest, s.AfterRequest = nil, nil; !ended {
		s.t.Fatalf("nobody asks for: %s", request)
	}
	s.restart(s.Dir)
}

// A person declares a node dead that lives. The node takes nothing while it has the taint: the controller would fence it from that again
// and again. Afterwards it goes on.
func TestANodeThatIsDeclaredDeadAndLives(t *testing.T) {
	s := newTestNode(t)
	s.Reconcile(t.Context())
	x := s.reserveFor("web-0")
	s.advance(time.Minute)
	s.AddNode(pool.Node{Name: "node1", UID: "uid-node1", OutOfService: true})
	c := controller.New(s.API, slog.New(slog.DiscardHandler))
	s.noError(c.Reconcile(t.Context()))
	before := len(s.Requests())
	for range 3 {
		blocks, err := s.Blocks(t.Context(), "lan")
		s.noError(err)
		for _, b := range blocks {
			s.handleChange(t.Context(), pool.Change{Block: b.Metadata.Name, Version: b.Metadata.ResourceVersion})
		}
		s.Reconcile(t.Context())
		s.noError(c.Reconcile(t.Context()))
		s.advance(time.Hour)
	}
	changes := slices.DeleteFunc(s.changes(before), func(r string) bool { return strings.HasPrefix(r, "update status ") })
	wantEqual(t, "while it has the taint", fmt.Sprint(changes), "[]")
	s.AddNode(pool.Node{Name: "node1", UID: "uid-node1"})
	for range 3 {
		s.Reconcile(t.Context())
		s.advance(time.Second)
	}
	wantEqual(t, "the owner's address is that of", s.holder("lan", x), "node1")
	if g, err := s.state(t.Context()); err != nil || freeCount(g.poolState("lan")) == 0 {
		t.Errorf("it has %s, %v\n%s", s.grants(), err, s.log.String())
	}
}

// A node that was declared dead lives, and its pods still have addresses of a block. An owner's address of the same block does not go to
// it: it stays where it waits.
func TestAnOwnersAddressOfABlockFromWhichANodeIsFenced(t *testing.T) {
	for _, what := range []string{"the node asks", "its agent of an earlier version asks"} {
		t.Run(what, func(t *testing.T) {
			s := newTestNode(t)
			s.putBlock(1, "ABBB me node2!")
			s.adoptBlocks(1)
			x := s.reserveFor("web-0")
			n2 := s.peer("node2")
			me := n2.party()
			s.EditBlock("lan-1", func(b *pool.Block) { b.Spec.Holders[1].Party = me })
			a := pool.Acquisition{Network: "pods", Pool: "lan", IfName: "eth0", Owner: ownerOf("web-0")}
			if what == "the node asks" {
				_, _, err := n2.tryAcquire(t.Context(), a, x)
				wantError(t, "it asks", err, "this node was declared dead, and is still in AddressBlock lan-1, which has 10.3.0.4")
			} else {
				s.EditBlock("lan-1", func(b *pool.Block) {
					b.Spec.Want = append(b.Spec.Want, pool.Want{Party: me, Address: x, Claim: pool.ClaimName("lan", "eth0", ownerOf("web-0"))})
				})
			}
			s.Reconcile(t.Context())
			wantEqual(t, "it is that of", s.holder("lan", x), "node1")
			wantEqual(t, "it is", s.leaseState(x), "reserved")
		})
	}
}

// startClaimedPod starts a pod of the owner, whose address is claimed.
func (s *testNode) startClaimedPod(owner string) (netip.Addr, attachment.Key) {
	s.t.Helper()
	x, key := s.add(owner)
	a := pool.Acquisition{Network: "pods", Pool: "lan", IfName: "eth0", Owner: ownerOf(owner)}
	s.noError(s.Controller.Claim(s.t.Context(), pool.ClaimedAddress{Acquisition: a, Address: x}))
	s.noError(s.store.MarkClaimed(s.t.Context(), x, ownerOf(owner)))
	return x, key
}

// An ADD on one node ends before it can claim the owner's address, and the owner's pod starts on another node with another address. The
// first node does not make the claim its own.
func TestAnAddressThatNobodyHasClaimed(t *testing.T) {
	n1 := newTestNode(t)
	n2 := n1.peer("node2")
	reconcileAll(n1, n2)()
	y, key := n1.add("web-0")
	n1.del(key)
	x, _ := n2.startClaimedPod("web-0")
	n1.advance(time.Minute)
	reconcileAll(n1, n2)()
	c, err := n1.Claim(t.Context(), pool.ClaimName("lan", "eth0", ownerOf("web-0")))
	if err != nil || c.Spec.Address != x || c.Spec.Active.Node != "node2" {
		t.Errorf("the claim is %+v, %v", c.Spec, err)
	}
	wantEqual(t, "the other address is", n1.leaseState(y), "free")
}

// An ADD on one node ends before it can claim the owner's address, and the owner's pod runs on another node with another address. Then it
// starts on the first node, before that one has looked: it gets the address that it had.
func TestAnAddressThatNobodyHasClaimedIsNotGiven(t *testing.T) {
	n1 := newTestNode(t)
	n2 := n1.peer("node2")
	reconcileAll(n1, n2)()
	y, key := n1.add("web-0")
	n1.del(key)
	x, key := n2.startClaimedPod("web-0")
	n2.del(key)
	a := pool.Acquisition{Network: "pods", Pool: "lan", IfName: "eth0", Owner: ownerOf("web-0")}
	r := lease.Request{Attachment: attachment.Key{Network: "pods", ContainerID: "next", IfName: "eth0"}, Pools: []string{"lan"}, Probes: true, Policy: lease.Policy{Sticky: true}, Owner: ownerOf("web-0")}
	var elsewhere *lease.ElsewhereError
	if given, err := n1.store.Allocate(t.Context(), r); !errors.As(err, &elsewhere) {
		t.Fatalf("without the agent: %v, %v", given, err)
	}
	for range 2 {
		_, _, err := n1.tryAcquire(t.Context(), a, x)
		n1.noError(err)
		reconcileAll(n2)()
	}
	r.QueriedPools, r.OwnerAddresses = r.Pools, []netip.Addr{x}
	given, err := n1.store.Allocate(t.Context(), r)
	if n1.noError(err); given[0].Address != x {
		t.Errorf("it gets %s, want %s", given[0].Address, x)
	}
	wantEqual(t, "the other address is", n1.leaseState(y), "free")
}

// A node that was fenced leaves the block when the last pod there has ended, although nobody has changed the block since.
func TestAFencedNodeLeavesWhenItsPodsHaveEnded(t *testing.T) {
	s := newTestNode(t)
	s.putBlock(0, "AA.. me")
	s.adoptBlocks(0)
	_, key := s.add("")
	s.declareDead("lan-0")
	s.Reconcile(t.Context())
	wantEqual(t, "with a pod", s.blockText(0), "AA.. me!")
	if want := "this node was declared dead, and pods still have addresses that others may have by now"; !strings.Contains(s.log.String(), want) {
		t.Errorf("want %q in the log:\n%s", want, s.log.String())
	}
	s.del(key)
	s.Reconcile(t.Context())
	if text := s.blockText(0); strings.Contains(text, "!") {
		t.Errorf("after its end, the node is still in the block: %s", text)
	}
}
