package node

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/pool"
)

// A node hands over what no pod has, but nothing that a pod of its own waits for.
func TestAnswerAny(t *testing.T) {
	for name, test := range map[string]struct {
		put   string
		wants []string
		// pods have addresses here, and waiting ones wait for one.
		pods, waiting int
		want          string
	}{
		"nobody asks":                 {"AAAA me", nil, 0, 0, "AAAA me"},
		"one asks":                    {"AAAA me", []string{"node2"}, 0, 0, "AAAB me node2"},
		"two ask":                     {"AAAA me", []string{"node2", "node3"}, 0, 0, "AABC me node2 node3"},
		"the last free one":           {"AAAA me", []string{"node2"}, 3, 0, "AAAB me node2"},
		"more ask than it has":        {"AA.. me", []string{"node2", "node3"}, 1, 0, "AB.. me node2, node3 wants 1"},
		"nothing is free":             {"AAAA me", []string{"node2"}, 4, 0, "AAAA me, node2 wants 1"},
		"its own pods wait":           {"AAAA me", []string{"node2"}, 0, 4, "AAAA me, node2 wants 1"},
		"its own pods wait for a few": {"AAAA me", []string{"node2"}, 0, 3, "AAAB me node2"},
		"it has nothing there":        {"AAAA node3", []string{"node2"}, 0, 0, "AAAA node3, node2 wants 1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestNode(t)
			s.putBlock(1, test.put, test.wants...)
			s.adoptBlocks(1)
			for range test.pods {
				s.add("")
			}
			s.addWaiting("lan", test.waiting)
			s.noError(s.reconcileBlock(t.Context(), "lan", 1))
			wantEqual(t, "the block", s.blockText(1), test.want)
		})
	}
}

// A node that is dead, and one that has asked for long, get nothing: nobody would use it.
func TestNothingForTheDead(t *testing.T) {
	for name, test := range map[string]struct {
		node  pool.Node
		after time.Duration
		want  string
	}{
		"it lives":         {pool.Node{Name: "node2"}, requestPeriod, "AAAB me node2"},
		"it has given up":  {pool.Node{Name: "node2"}, requestPeriod + time.Second, "AAAA me, node2 wants 1"},
		"it has no object": {pool.Node{Name: "node9"}, 0, "AAAA me, node2 wants 1"},
		"it has the taint": {pool.Node{Name: "node2", OutOfService: true}, 0, "AAAA me, node2 wants 1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestNode(t)
			s.RemoveNode("node2")
			s.AddNode(test.node)
			s.putBlock(1, "AAAA me")
			s.adoptBlocks(1)
			for range 4 {
				s.add("")
			}
			s.EditBlock("lan-1", func(b *pool.Block) { *b = b.Request(pool.Want{Party: partyOf("node2"), Count: 1}) })
			s.noError(s.reconcileBlock(t.Context(), "lan", 1))
			s.advance(test.after)
			s.del(attachment.Key{Network: "pods", ContainerID: "c4", IfName: "eth0"})
			s.noError(s.reconcileBlock(t.Context(), "lan", 1))
			wantEqual(t, "the block", s.blockText(1), test.want)
		})
	}
}

// Who asks on one block gets what is free in another one, too.
func TestPassOn(t *testing.T) {
	s := newTestNode(t)
	s.putBlock(0, "AA.. me", "node2")
	s.putBlock(2, "AAA. me")
	s.adoptBlocks(0, 2)
	s.add("")
	s.add("")
	s.noError(s.reconcileBlock(t.Context(), "lan", 0))
	wantEqual(t, "the block of which it has nothing free", s.blockText(0), "AA.. me, node2 wants 1")
	wantEqual(t, "the block with free addresses", s.blockText(2), "AAB. me node2")
	wantEqual(t, "the store", s.grants(), "++.. ++..")
}

// A node that has died since its request was read gets nothing of another block either.
func TestPassOnToADeadNode(t *testing.T) {
	for name, dead := range map[string]bool{"it lives": false, "it is dead": true} {
		s := newTestNode(t)
		s.putBlock(0, "AAAA me")
		s.putBlock(2, "AAAA me")
		s.adoptBlocks(0, 2)
		for range 8 {
			s.add("")
		}
		s.EditBlock("lan-0", func(b *pool.Block) { *b = b.Request(pool.Want{Party: partyOf("node2"), Count: 1}) })
		s.noError(s.reconcileBlock(t.Context(), "lan", 0))
		s.RemoveNode("node2")
		s.AddNode(pool.Node{Name: "node2", OutOfService: dead})
		for i := range 8 {
			s.del(attachment.Key{Network: "pods", ContainerID: fmt.Sprint("c", i+1), IfName: "eth0"})
		}
		s.noError(s.passOn(t.Context(), "lan"))
		if got := strings.Contains(s.blockText(2), "node2"); got == dead {
			t.Errorf("%s: %s, %s", name, s.blockText(0), s.blockText(2))
		}
	}
}

// An owner's address goes to the owner's next pod, if no pod has it here and nobody else is its owner.
func TestAnswerOwner(t *testing.T) {
	claim := func(owner string) string { return pool.ClaimName("lan", "eth0", ownerOf(owner)) }
	for name, test := range map[string]struct {
		// lease is the owner that has the address here, "" for nobody. held says that a pod has it.
		lease string
		held  bool
		asks  string
		want  string
	}{
		"it waits for this owner":  {"web-0", false, "web-0", "B... node2"},
		"a pod of the owner runs":  {"web-0", true, "web-0", "A... me, node2 wants 1"},
		"it waits for another one": {"db-0", false, "web-0", "A... me, node2 wants 1"},
		"a pod of another owner":   {"db-0", true, "web-0", "A... me, node2 wants 1"},
		"a pod of nobody":          {"", true, "web-0", "A... me, node2 wants 1"},
		"it is free":               {"", false, "web-0", "B... node2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestNode(t)
			s.putBlock(1, "A... me")
			s.adoptBlocks(1)
			if test.held || test.lease != "" {
				_, key := s.add(test.lease)
				if !test.held {
					s.del(key)
				}
			}
			s.EditBlock("lan-1", func(b *pool.Block) {
				*b = b.Request(pool.Want{Party: partyOf("node2"), Address: netip.MustParseAddr("10.3.0.4"), Claim: claim(test.asks)})
			})
			s.noError(s.reconcileBlock(t.Context(), "lan", 1))
			wantEqual(t, "the block", s.blockText(1), test.want)
		})
	}
}

// What is asked for and not free now is looked at again, until it is.
func TestWantedIsLookedAtAgain(t *testing.T) {
	s := newTestNode(t)
	s.putBlock(1, "A... me", "node2")
	s.adoptBlocks(1)
	_, key := s.add("")
	s.noError(s.reconcileBlock(t.Context(), "lan", 1))
	wantEqual(t, "while a pod has it", s.blockText(1), "A... me, node2 wants 1")
	s.del(key)
	s.noError(s.balance(t.Context()))
	wantEqual(t, "afterwards", s.blockText(1), "B... node2")
	s.noError(s.balance(t.Context()))
	if len(s.unmet) != 0 {
		t.Errorf("it goes on looking at %v", s.unmet)
	}
}

// What another node asks for is answered, also if this node has read the block for another reason before it hears of the change.
func TestWhatIsAskedMeanwhileIsAnswered(t *testing.T) {
	s := newTestNode(t)
	s.putBlock(1, "AAAB me node2")
	s.adoptBlocks(1)
	a := pool.Acquisition{Network: "pods", Pool: "lan", IfName: "eth0", Owner: ownerOf("web-0")}
	x := netip.MustParseAddr("10.3.0.7")
	for range 2 {
		if _, _, err := s.tryAcquire(t.Context(), a, x); err != nil {
			t.Fatal(err)
		}
		s.EditBlock("lan-1", func(b *pool.Block) { *b = b.Request(pool.Want{Party: partyOf("node3"), Count: 1}) })
	}
	if _, _, err := s.tryAcquire(t.Context(), a, x); err != nil {
		t.Fatal(err)
	}
	s.changed("lan-1")
	wantEqual(t, "the block", s.blockText(1), "ACCB me node2 node3, me wants 1")
}

// A party that does not take back what it asks for, because its agent is away, does not get all that a node has, whatever others ask. One
// that asks again gets more.
func TestPassOnToOneWhoIsAway(t *testing.T) {
	s := newTestNode(t)
	s.EditPool("lan", func(p *pool.Pool) { p.Spec.Ranges = []string{"10.3.0.0-10.3.3.31"} })
	s.putBlock(0, "AA.. me", "node2")
	s.adoptBlocks(0)
	s.add("")
	s.add("")
	got := func() (n int) {
		all, err := s.Blocks(t.Context(), "lan")
		s.noError(err)
		for _, share := range pool.Shares(all) {
			if share.Node == "node2" {
				n = share.Addresses
			}
		}
		return n
	}
	asks := func(w pool.Want) {
		s.EditBlock("lan-0", func(b *pool.Block) { *b = b.Request(w) })
		s.noError(s.reconcileBlock(t.Context(), "lan", 0))
	}
	for i := range 40 {
		s.Reconcile(t.Context())
		s.advance(20 * time.Second)
		asks(pool.Want{Party: partyOf("node3"), Address: netip.MustParseAddr("10.3.0.0"), Claim: fmt.Sprint("lan-", i%2)})
		asks(pool.Want{Party: partyOf("node3"), Address: netip.MustParseAddr("10.3.0.0")})
	}
	if n := got(); n != 1 {
		t.Errorf("node2 has asked for 1 address, and has got %d", n)
	}
	for i := range int64(3) {
		before := got()
		asks(pool.Want{Party: partyOf("node2"), Count: 1, Epoch: 100 + i})
		if n := got(); n != before+1 {
			t.Errorf("node2 has asked again for 1 address, and has got %d", n-before)
		}
		s.Reconcile(t.Context())
	}
}

// A party that has got an address of another block, and needs one more, asks once more in a way that the holder hears of.
func TestAskOnceMore(t *testing.T) {
	s := newTestNode(t)
	s.putBlock(0, "AAAA node2")
	epochs, asked := map[int64]bool{}, map[int64]bool{}
	for range 3 {
		all, err := s.Blocks(t.Context(), "lan")
		s.noError(err)
		s.noError(s.requestFromNext(t.Context(), all, s.party(), 1, true))
		s.advance(pool.AgentLimit)
		b, err := s.Block(t.Context(), "lan-0")
		s.noError(err)
		epochs[b.Status.Epoch], asked[b.Status.Want[0].Epoch] = true, true
	}
	wantEqual(t, "who asks", s.blockText(0), "AAAA node2, me wants 1")
	if len(epochs) != 3 || len(asked) != 3 {
		t.Errorf("the epochs are %v, and it asks in %v", epochs, asked)
	}
}
