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
	"github.com/relink-cni/relink/test/pooltest"
)

// reserveFor makes an address wait here for the owner, as after its pod has ended.
func (s *testNode) reserveFor(owner string) netip.Addr {
	s.t.Helper()
	x, key := s.add(owner)
	s.del(key)
	s.AddClaim(pool.Claim{Metadata: pool.Meta{Name: pool.ClaimName("lan", "eth0", ownerOf(owner))}, Spec: pool.ClaimSpec{
		Pool: "lan", IfName: "eth0", Owner: ownerOf(owner),
	}, Status: pool.ClaimStatus{Address: x, Epoch: 1, Active: pool.Place{Party: s.party()}}})
	s.noError(s.store.MarkClaimed(s.t.Context(), x, ownerOf(owner)))
	return x
}

// declareDead fences this node in the block.
func (s *testNode) declareDead(block string) {
	me := s.party()
	s.EditBlock(block, func(b *pool.Block) { *b, _ = b.Fence(me.SameParty, "proof") })
}

// A node that was declared dead comes back, and its agent is ended at any step. The address of its owner waits for the owner in the end, also if
// the pool gives nothing meanwhile, and goes to the node on which the owner starts next.
func TestOwnersOfANodeThatComesBackWithTrouble(t *testing.T) {
	errLost := errors.New("the answer is lost")
	for name, trouble := range map[string]func(*testNode){
		"the pool is paused": func(s *testNode) {
			s.EditPool("lan", func(p *pool.Pool) { p.Spec.Paused = true })
			s.Reconcile(t.Context())
			s.EditPool("lan", func(p *pool.Pool) { p.Spec.Paused = false })
		},
		"the agent ends before it leaves":  func(s *testNode) { s.crashAfter("list claims of pool lan", errLost) },
		"the agent ends after it has left": func(s *testNode) { s.crashAfter("update block lan-1", errLost) },
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
			s.waitsForItsOwner(x)
			n2 := s.peer("node2")
			a := pool.Acquisition{Network: "pods", Pool: "lan", IfName: "eth0", Owner: ownerOf("web-0")}
			found, _, err := n2.tryAcquire(t.Context(), a, x)
			if s.noError(err); found.Address != x || s.holder("lan", x) != "node2" {
				t.Errorf("the owner gets %+v, and it is that of %s", found, s.holder("lan", x))
			}
		})
	}
}

// waitsForItsOwner says that no node has the address, and that nobody but the owner of its claim gets it.
func (s *testNode) waitsForItsOwner(x netip.Addr) {
	s.t.Helper()
	blocks, err := s.Blocks(s.t.Context(), "lan")
	s.noError(err)
	for _, b := range blocks {
		if i := b.Offset(x); i >= 0 && b.Status.Addresses[i] != pool.Claimed {
			s.t.Errorf("%s is not kept for its owner: %s", x, b.Status.Addresses)
		}
	}
	claims, err := s.ClaimsAt(s.t.Context(), x)
	if len(claims) != 1 || err != nil {
		s.t.Errorf("%d claims, %v", len(claims), err)
	}
	a := pool.Acquisition{Network: "pods", Pool: "lan", IfName: "eth0", Owner: ownerOf("stranger"), Requested: x}
	if found, holder, err := s.tryAcquire(s.t.Context(), a, x); found.Address.IsValid() || err != nil || holder != "another owner's claim" {
		s.t.Errorf("a stranger gets %+v from %s: %v", found, holder, err)
	}
	s.noError(s.store.CancelIncoming(s.t.Context(), "lan", x, a.Owner))
}

// An owner's address has come to a node too late for the owner's pod, and the claim still names the node before. This one is declared dead
// at that moment, and comes back. The address waits for its owner.
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
	n1.waitsForItsOwner(x)
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
	c := controller.New(controller.Config{API: s.API, Log: slog.New(slog.DiscardHandler)})
	s.noError(pooltest.Reconcile(t.Context(), s.API, c.Reconcile))
	before := len(s.Requests())
	for range 3 {
		blocks, err := s.Blocks(t.Context(), "lan")
		s.noError(err)
		for _, b := range blocks {
			s.changed(b.Metadata.Name)
		}
		s.Reconcile(t.Context())
		s.noError(pooltest.Reconcile(t.Context(), s.API, c.Reconcile))
		s.advance(time.Hour)
	}
	changes := slices.DeleteFunc(s.changes(before), func(r string) bool { return strings.HasPrefix(r, "update status ") })
	wantEqual(t, "while it has the taint", fmt.Sprint(changes), "[]")
	s.AddNode(pool.Node{Name: "node1", UID: "uid-node1"})
	for range 3 {
		s.Reconcile(t.Context())
		s.advance(time.Second)
	}
	s.waitsForItsOwner(x)
	if g, err := s.state(t.Context()); err != nil || freeCount(g.poolState("lan"), pool.GrantedChars) == 0 {
		t.Errorf("it has %s, %v\n%s", s.grants(), err, s.log.String())
	}
}

// A node that was declared dead lives, and its pods still have addresses of a block. An owner's address of the same block does not go to
// it: it stays where it waits.
func TestAnOwnersAddressOfABlockFromWhichANodeIsFenced(t *testing.T) {
	for _, what := range []string{"the node asks", "its agent of an earlier version asks"} {
		t.Run(what, func(t *testing.T) {
			s := newTestNode(t)
			s.putBlock(1, "ABBB me node2")
			s.adoptBlocks(1)
			x := s.reserveFor("web-0")
			n2 := s.peer("node2")
			me := n2.party()
			s.EditBlock("lan-1", func(b *pool.Block) { b.Status.Holders[1].Party = me })
			n2.adoptBlocks(1)
			n2.add("")
			s.EditBlock("lan-1", func(b *pool.Block) { *b, _ = b.Fence(me.SameParty, "proof") })
			a := pool.Acquisition{Network: "pods", Pool: "lan", IfName: "eth0", Owner: ownerOf("web-0")}
			if what == "the node asks" {
				_, _, err := n2.tryAcquire(t.Context(), a, x)
				wantError(t, "it asks", err, "this node was declared dead, and is still in AddressBlock lan-1, which has 10.3.0.4")
			} else {
				s.EditBlock("lan-1", func(b *pool.Block) {
					b.Status.Want = append(b.Status.Want, pool.Want{Party: me, Address: x, Claim: pool.ClaimName("lan", "eth0", ownerOf("web-0"))})
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
	if err != nil || c.Status.Address != x || c.Status.Active.Node != "node2" {
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

// A node that leaves gives back all that no pod has. What waits for owners waits in the blocks.
func TestANodeThatLeaves(t *testing.T) {
	drained, deleted := pool.Node{Name: "node1", UID: "uid-node1", Labels: map[string]string{pool.DrainLabel: ""}}, pool.Node{Name: "node1", UID: "uid-node1", Deleted: true}
	for name, test := range map[string]struct {
		node pool.Node
		hear func(*testNode)
	}{
		"it is drained":                {drained, func(s *testNode) { s.watches(t.Context(), func(h pool.Handler) { h.NodeChanged(drained) }) }},
		"it is deleted":                {deleted, func(s *testNode) { s.watches(t.Context(), func(h pool.Handler) { h.NodeChanged(deleted) }) }},
		"it was, and the agent starts": {deleted, func(s *testNode) { s.noError(s.syncAll(t.Context())) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestNode(t)
			s.putBlock(0, "AAAA me")
			s.adoptBlocks(0)
			_, key := s.add("")
			x := s.reserveFor("web-0")
			if s.RemoveNode("node1"); !test.node.Deleted {
				s.AddNode(test.node)
			}
			for range 2 {
				test.hear(s)
				s.noError(s.balance(t.Context()))
			}
			wantEqual(t, "with a pod", s.blockText(0), "A=.. me")
			wantEqual(t, "the lease of the owner", s.leaseState(x), "free")
			wantError(t, "an ADD", s.fill(t.Context(), "lan", 1), "the pool lan is not for node node1: "+test.node.LeaveReason())
			s.del(key)
			s.noError(s.balance(t.Context()))
			wantEqual(t, "without pods", s.blockText(0), ".=..")
		})
	}
}
