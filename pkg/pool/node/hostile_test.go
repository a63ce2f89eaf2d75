package node

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/pool/controller"
	"github.com/relink-cni/relink/test/pooltest"
)

// A broken node asks for something that nobody can give. The node that has the block works as before, also after a boot.
func TestWantsThatNobodyCanAnswer(t *testing.T) {
	x := netip.MustParseAddr("10.3.0.4")
	for name, want := range map[string]pool.Want{
		"an address that is not of the block":     {Address: netip.MustParseAddr("10.9.9.9"), Claim: "lan-000000000000000000000000"},
		"an address of IPv6":                      {Address: netip.MustParseAddr("fd00::4"), Claim: "lan-000000000000000000000000"},
		"for a claim without a name":              {Address: x},
		"for a claim that no object can have":     {Address: x, Claim: "lan-a/../b"},
		"for a claim of something else":           {Address: x, Claim: "lan-0"},
		"for a claim that does not exist":         {Address: x, Claim: "lan-000000000000000000000000"},
		"more addresses than there are":           {Count: 65536},
		"nothing":                                 {},
		"an address that nobody has, and a count": {Address: x.Next(), Claim: "lan-1", Count: 3},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestNode(t)
			s.putBlock(1, "A..A me")
			s.adoptBlocks(1)
			_, key := s.add("web-0") // It is 10.3.0.4.
			want.Party = partyOf("node2")
			s.EditBlock("lan-1", func(b *pool.Block) { b.Status.Want = append(b.Status.Want, want) })
			s.BeforeRequest = func(r string) error {
				if claim, is := strings.CutPrefix(r, "get claim "); is && (claim == "" || strings.Contains(claim, "/")) {
					return errors.New("invalid resource name") // The client of the API says so.
				}
				return nil
			}
			s.reboot()
			s.Reconcile(t.Context())
			if g, err := s.state(t.Context()); err != nil || !g.Confirmed {
				t.Errorf("it has not confirmed what it has: %v\n%s", err, s.log.String())
			}
			s.EditBlock("lan-1", func(b *pool.Block) {
				*b = b.Request(pool.Want{Party: partyOf("node3"), Address: x, Claim: pool.ClaimName("lan", "eth0", ownerOf("web-0"))})
			})
			s.del(key)
			s.advance(time.Minute)
			s.Reconcile(t.Context())
			wantEqual(t, "the owner's address is that of", s.holder("lan", x), "node3")
		})
	}
}

// The store cannot note a block that it has just made. It does so when it can.
func TestABlockIsMadeAndTheStoreFails(t *testing.T) {
	s := newTestNode(t)
	fails := false
	s.store.SetClock(s.boot, func() time.Time { return s.time }, func() (time.Duration, error) {
		if fails {
			return 0, errors.New("the disk fails")
		}
		return s.time.Sub(s.booted), nil
	})
	s.AfterRequest = func(r string) error {
		fails = fails || strings.HasPrefix(r, "create block ")
		return nil
	}
	wantError(t, "fill", s.fill(t.Context(), "lan", 0), "the disk fails")
	fails, s.AfterRequest = false, nil
	s.noError(s.withTurn(t.Context(), s.sync))
	wantEqual(t, "the store", s.grants(), "++++")
}

// madeUp is lan-1 as nobody makes it: with other addresses than the pool has there.
func madeUp(first, last, addresses string) pool.Block {
	return pool.Block{Metadata: pool.Meta{Name: "lan-1"}, Spec: pool.BlockSpec{
		Pool: "lan", PoolUID: "x", Index: 1, Node: "node2", First: netip.MustParseAddr(first), Last: netip.MustParseAddr(last),
	}, Status: pool.BlockStatus{Epoch: 1, Addresses: addresses, Holders: []pool.Holder{{ID: "A", Party: partyOf("node2"), Epoch: 1}}}}
}

// The API refuses what the node takes of one block. It takes of the others.
func TestTheAPIRefusesABlock(t *testing.T) {
	s := newTestNode(t)
	for i := range int64(4) {
		s.putBlock(i, "A... node2")
	}
	s.BeforeRequest = func(r string) error {
		if r == "update block lan-0" {
			return fmt.Errorf("%w: AddressBlock lan-0 is invalid (status 422)", pool.ErrRefused)
		}
		return nil
	}
	s.noError(s.Refill(t.Context(), pool.Demand{Network: "pods", Pools: []string{"lan"}, Probes: true}))
	if n := strings.Count(s.grants(), "+"); n == 0 {
		t.Error("the node has got nothing")
	}
	if want := "AddressBlock lan-0 is invalid"; !strings.Contains(s.log.String(), want) {
		t.Errorf("want %q in the log:\n%s", want, s.log.String())
	}
}

// The Node object is made anew while the agent runs. The blocks get its UID, so that the node is no deleted one when it is declared dead later.
func TestANodeObjectIsMadeAnew(t *testing.T) {
	s := newTestNode(t)
	s.putBlock(1, "AAAA me")
	s.adoptBlocks(1)
	s.AddNode(pool.Node{Name: "node1", UID: "anew"})
	_, err := s.readNode(t.Context())
	s.noError(err)
	s.Reconcile(t.Context())
	s.AddNode(pool.Node{Name: "node1", UID: "anew", OutOfService: true})
	c := controller.New(controller.Config{API: s.API, Log: slog.New(slog.DiscardHandler)})
	for range 2 {
		s.noError(pooltest.Reconcile(t.Context(), s.API, c.Reconcile))
	}
	b, err := s.Block(t.Context(), "lan-1")
	if s.noError(err); b.Status.Nodes != "node1 4 (fenced)" {
		t.Errorf("after the taint: %s", b.Status.Nodes)
	}
	s.AddNode(pool.Node{Name: "node1", UID: "anew"})
	s.reboot()
	s.Reconcile(t.Context())
	wantEqual(t, "the recovery, after the node's boot", s.recoveryReason(), "")
}

// A block that somebody has made up stops neither an agent nor the controller.
func TestBlocksThatAreMadeUp(t *testing.T) {
	s := newTestNode(t)
	s.AddBlock(madeUp("10.2.9.0", "10.2.9.3", "AAAA"))
	_, _, err := s.tryAcquire(t.Context(), pool.Acquisition{Network: "pods", Pool: "lan", IfName: "eth0", Owner: ownerOf("web-0")}, netip.MustParseAddr("10.3.0.5"))
	wantError(t, "an ADD of an address that is not in its block", err, "AddressBlock lan-1 does not have 10.3.0.5")
	s.Forget("lan-1")
	s.AddBlock(madeUp("10.3.0.0", "10.3.0.255", "A"))
	s.addClaim("10.3.0.9")
	c := controller.New(controller.Config{API: s.API, Log: slog.New(slog.DiscardHandler)})
	s.noError(pooltest.Reconcile(t.Context(), s.API, c.Reconcile))
	s.EditPool("lan", func(p *pool.Pool) { p.Spec.Paused = true })
	inBroken, inNew := netip.MustParseAddr("10.3.0.5"), netip.MustParseAddr("10.3.0.14")
	result, err := s.Import(t.Context(), pool.Import{Network: "pods", Pools: []string{"lan"}, Addresses: []netip.Addr{inBroken, inNew}})
	s.noError(err)
	wantEqual(t, "an import beside it", fmt.Sprint(result.Pools, result.Refused), "map[10.3.0.14:lan] "+
		"map[10.3.0.5:AddressBlock lan-1 is not as relink writes it: it has 1 characters for the addresses 10.3.0.0-10.3.0.255]")
}

// A pod has an address that the pool excludes by now, and the API forgets the block. The address stays the pod's, also when the pool gives it again.
func TestAnExcludedAddressSurvivesARestore(t *testing.T) {
	s := newTestNode(t)
	s.putBlock(1, "AAAA me")
	s.adoptBlocks(1)
	x, _ := s.add("")
	s.EditPool("lan", func(p *pool.Pool) { p.Spec.Exclude = []string{x.String()} })
	s.Reconcile(t.Context())
	s.Forget("lan-1")
	for range 3 {
		s.Reconcile(t.Context())
		s.advance(time.Minute)
	}
	wantEqual(t, "the block", s.blockText(1), "AAAA me")
	wantEqual(t, "it is that of", s.holder("lan", x), "node1")
}

// A node that has few addresses is asked, too: pods can use all that larger ones have.
func TestASmallHolderIsAsked(t *testing.T) {
	s := newTestNode(t)
	s.EditPool("lan", func(p *pool.Pool) { p.Spec.Ranges = []string{"10.3.0.0-10.3.0.127"} })
	l, err := s.readPool(t.Context(), "lan")
	s.noError(err)
	n2 := s.peer("node2")
	for i := range int64(32) {
		b, _ := pool.NewBlock(l, i, partyOf(fmt.Sprint("full", i)), "boot")
		if i >= 30 {
			b, _ = pool.NewBlock(l, i, n2.party(), "boot")
			b.Status.Addresses = "A---"
		}
		if b = s.AddBlock(b); i >= 30 {
			_, err := n2.reconcile(t.Context(), b, 0)
			s.noError(err)
		}
	}
	s.addWaiting("lan", 1)
	for range 200 {
		if supplied, err := s.trySupply(t.Context(), "lan", true); err != nil || supplied {
			s.noError(err)
			return
		}
		reconcileAll(n2, s)()
		s.advance(answerTimeout)
		n2.advance(answerTimeout)
	}
	t.Errorf("nobody has asked node2, which has %s", n2.grants())
}
