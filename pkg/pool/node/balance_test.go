package node

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// balanceFor balances, and again after the time.
func (s *testNode) balanceFor(d time.Duration) {
	s.t.Helper()
	s.noError(s.balance(s.t.Context()))
	s.advance(d)
	s.noError(s.balance(s.t.Context()))
	s.noError(s.balance(s.t.Context()))
}

// A node gives back what it has had too much of for a while. It keeps one block of a pool that it goes on using, and none of a pool
// that nobody needs there.
func TestGiveBack(t *testing.T) {
	unnamed := func(s *testNode) {
		other := lan
		other.Metadata.Name, other.Spec.Subnet, other.Spec.Ranges = "other", "10.4.0.0/24", nil
		s.AddPool(other)
		s.noError(s.store.SetPools(s.t.Context(), []string{"other"}))
	}
	deleted := func(s *testNode) {
		s.EditPool("lan", func(p *pool.Pool) { p.Metadata.Finalizers = []string{pool.Finalizer} })
		s.RemovePool("lan")
		s.changed("lan")
	}
	for name, test := range map[string]struct {
		blocks []string
		pods   int
		before func(*testNode)
		after  time.Duration
		want   string
	}{
		"too much":                          {[]string{"AAAA me", "AAAA me", "AAAA me"}, 1, nil, DefaultSurplus, "AAAA me; none; none"},
		"too much, but not for long":        {[]string{"AAAA me", "AAAA me"}, 0, nil, DefaultSurplus - time.Second, "AAAA me; AAAA me"},
		"as much as it needs":               {[]string{"AAAA me", "AAAA me"}, 3, nil, DefaultSurplus, "AAAA me; AAAA me"},
		"the last block":                    {[]string{"AAAA me"}, 0, nil, DefaultSurplus, "AAAA me"},
		"a part of a block":                 {[]string{"AABB me node2", "AAAA me"}, 0, nil, DefaultSurplus, "..BB node2; AAAA me"},
		"named no more":                     {[]string{"AAAA me", "AAAA me"}, 0, unnamed, DefaultSurplus, "none; none"},
		"named no more, not for long":       {[]string{"AAAA me"}, 0, unnamed, DefaultSurplus - time.Second, "AAAA me"},
		"named no more, but a pod is there": {[]string{"AAAA me", "AAAA me"}, 1, unnamed, DefaultSurplus, "AAAA me; none"},
		"deleted":                           {[]string{"AAAA me", "AAAA me"}, 0, deleted, DefaultSurplus, "none; none"},
		"deleted, but a pod is there":       {[]string{"AAAA me", "AAAA me"}, 1, deleted, DefaultSurplus, "AAAA me; none"},
		"deleted, and others have some":     {[]string{"AABB me node2"}, 0, deleted, DefaultSurplus, "..BB node2"},
		"excluded by now": {[]string{"AAAA me", "AAAA me"}, 0, func(s *testNode) {
			s.EditPool("lan", func(p *pool.Pool) { p.Spec.Exclude = []string{"10.3.0.4-10.3.0.7"} })
			s.changed("lan")
		}, DefaultSurplus, "AAAA me; none"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestNode(t)
			for i, text := range test.blocks {
				s.putBlock(int64(i), text)
				s.adoptBlocks(int64(i))
			}
			for range test.pods {
				s.add("")
			}
			if test.before != nil {
				test.before(s)
			}
			s.balanceFor(test.after)
			var got []string
			for i := range test.blocks {
				got = append(got, s.blockText(int64(i)))
			}
			wantEqual(t, "the blocks", strings.Join(got, "; "), test.want)
		})
	}
}

// A deleted pool goes when its last pod has gone: the node gives back all, and takes nothing new.
func TestADeletedPoolGoes(t *testing.T) {
	s := newTestNode(t)
	s.noError(s.balance(t.Context()))
	_, key := s.add("")
	s.RemovePool("lan")
	s.changed("lan")
	s.balanceFor(DefaultSurplus)
	if all, err := s.Blocks(t.Context(), "lan"); err != nil || len(all) != 1 {
		t.Errorf("while a pod has an address: %d blocks, %v", len(all), err)
	}
	s.del(key)
	s.balanceFor(DefaultSurplus)
	if all, err := s.Blocks(t.Context(), "lan"); err != nil || len(all) != 0 {
		t.Errorf("afterwards: %d blocks, %v", len(all), err)
	}
	if g, err := s.store.Granted(t.Context()); err != nil || !g.Pools[0].Layout.Unneeded || g.Pools[0].Target() != 0 {
		t.Errorf("the store knows nothing of it: %+v, %v", g, err)
	}
	// The pool is gone, and its name is free again.
	s.EditPool("lan", func(p *pool.Pool) { p.Metadata.Finalizers = nil })
	s.RemovePool("lan")
	s.AddPool(lan)
	s.changed("lan")
	s.advance(time.Second)
	s.noError(s.balance(t.Context()))
	if all, err := s.Blocks(t.Context(), "lan"); err != nil || len(all) != 1 {
		t.Errorf("with a new pool: %d blocks, %v", len(all), err)
	}
}

// A change of a pool holds on the node at once. An address that is excluded by now is given to nobody, and the node takes another one.
func TestAChangedPoolIsRelayed(t *testing.T) {
	s := newTestNode(t)
	s.putBlock(0, "AAAA me")
	s.adoptBlocks(0)
	s.noError(s.store.SetPools(t.Context(), []string{"lan", "wan"}))
	wan := lan
	wan.Metadata.Name, wan.Spec.Subnet, wan.Spec.Ranges = "wan", "10.4.0.0/24", nil
	s.AddPool(wan)
	s.EditPool("lan", func(p *pool.Pool) {
		p.Spec.Exclude, p.Spec.Gateway, p.Spec.Routes = []string{"10.3.0.0-10.3.0.2"}, "10.3.0.3", []pool.Route{{Dst: "0.0.0.0/0"}}
	})
	s.changed("lan")
	g, err := s.store.Granted(t.Context())
	s.noError(err)
	l := g.Pools[0].Layout
	wantEqual(t, "the store", fmt.Sprint(l.Exclude, l.Gateway, l.Routes), "[10.3.0.0-10.3.0.2] 10.3.0.3 [{0.0.0.0/0 }]")
	if g.Pools[1].Layout.Name != "" {
		t.Errorf("a pool of which the node has nothing: %+v", g.Pools[1].Layout)
	}
	s.noError(s.supplyOnce())
	if a, _ := s.add(""); l.Excluded(a) {
		t.Errorf("%s is given", a)
	}
	before := len(s.Requests())
	s.changed("lan")
	wantEqual(t, "an event without news", fmt.Sprint(s.Requests()[before:]), "[get pool lan]") // It is the test's own.
}

// An agent that starts tells the stores what has changed meanwhile.
func TestAChangeWhileTheAgentIsAwayIsRelayed(t *testing.T) {
	s := newTestNode(t)
	s.putBlock(0, "AAAA me")
	s.adoptBlocks(0)
	s.EditPool("lan", func(p *pool.Pool) { p.Spec.Exclude = []string{"10.3.0.0"} })
	s.restart(s.Dir)
	s.Reconcile(t.Context())
	a, _ := s.add("")
	wantEqual(t, "an ADD", a.String(), "10.3.0.1")
}

// Excluded addresses are handed over to nobody, and are no reserve.
func TestExcludedAddressesAreNoReserve(t *testing.T) {
	s := newTestNode(t)
	s.putBlock(0, "AAAA me")
	s.adoptBlocks(0)
	s.EditBlock("lan-0", func(b *pool.Block) {
		*b = b.Request(pool.Want{Party: partyOf("node2"), Count: 1}).Request(pool.Want{Party: partyOf("node3"), Count: 1})
	})
	s.EditPool("lan", func(p *pool.Pool) { p.Spec.Exclude = []string{"10.3.0.2-10.3.0.3"} })
	s.changed("lan")
	s.noError(s.reconcileBlock(t.Context(), "lan", 0))
	wantEqual(t, "two ask", s.blockText(0), "BCAA me node2 node3")
	s.putBlock(1, "AAAA me")
	s.adoptBlocks(1)
	g, err := s.state(t.Context())
	s.noError(err)
	if p := g.poolState("lan"); grantedCount(p) != 4 || freeCount(p, pool.GrantedChars) != 4 {
		t.Errorf("%d addresses, %d free", grantedCount(p), freeCount(p, pool.GrantedChars))
	}
}

// The node says in each block that it still has it in this boot, and only then gives. A node that was declared dead does not.
func TestSync(t *testing.T) {
	for name, test := range map[string]struct {
		node pool.Node
		on   func(string) error
		err  string
		want string
	}{
		"alive":                         {pool.Node{Name: "node1"}, nil, "", "true, next boot, next boot"},
		"declared dead":                 {pool.Node{Name: "node1", OutOfService: true}, nil, "node node1 has the taint node.kubernetes.io/out-of-service, which declares it dead: remove the taint", "false, boot, boot"},
		"the API does not list":         {pool.Node{Name: "node1"}, failing("list blocks of node node1"), "the connection was lost", "false, boot, boot"},
		"the API does not take a block": {pool.Node{Name: "node1"}, failing("update block lan-2"), "the connection was lost", "false, next boot, boot"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestNode(t)
			s.putBlock(1, "AAAA me")
			s.putBlock(2, "AABB me node2")
			s.putBlock(3, "AAAA node2")
			s.adoptBlocks(1, 2)
			s.reboot()
			s.AddNode(test.node)
			s.BeforeRequest = test.on
			wantError(t, "sync", s.sync(t.Context()), test.err)
			s.BeforeRequest = nil
			g, err := s.store.Granted(t.Context())
			s.noError(err)
			boot := func(index int64) string {
				b, err := s.Block(t.Context(), pool.BlockName("lan", index))
				s.noError(err)
				return b.Status.Holders[0].Boot
			}
			wantEqual(t, "confirmed", fmt.Sprint(g.Confirmed, ", ", boot(1), ", ", boot(2)), test.want)
			wantEqual(t, "another's block", boot(3), "boot")
		})
	}
}

// failing returns a hook that fails a request.
func failing(request string) func(string) error { return answering(errUnclear, request) }

// conflicting returns a hook for a request that somebody else is faster with.
func conflicting(requests ...string) func(string) error {
	return answering(pool.ErrConflict, requests...)
}

func answering(err error, requests ...string) func(string) error {
	return func(r string) error {
		if slices.Contains(requests, r) {
			return err
		}
		return nil
	}
}

// What nobody waits for any more is asked for no more. An owner's address is asked for somewhat longer: the runtime tries again.
func TestWithdraw(t *testing.T) {
	for name, test := range map[string]struct {
		want    pool.Want
		waiting int
		after   time.Duration
		// conflict says that somebody changes the block at the same moment.
		conflict bool
		stays    bool
	}{
		"an ADD waits":                         {pool.Want{Count: 2}, 1, time.Hour, false, true},
		"nobody waits":                         {pool.Want{Count: 2}, 0, 0, false, false},
		"an owner's, not for long":             {pool.Want{Address: netip.MustParseAddr("10.3.0.4"), Claim: "c"}, 0, requestPeriod - time.Second, false, true},
		"an owner's, for long":                 {pool.Want{Address: netip.MustParseAddr("10.3.0.4"), Claim: "c"}, 0, requestPeriod, false, false},
		"somebody changes it at the same time": {pool.Want{Count: 2}, 0, 0, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestNode(t)
			s.putBlock(1, "AAAA node2")
			b, err := s.Block(t.Context(), "lan-1")
			s.noError(err)
			w := test.want
			w.Party = s.party()
			s.noError(s.request(t.Context(), b, w, attachment.Owner{}))
			s.addWaiting("lan", test.waiting)
			s.advance(test.after)
			if test.conflict {
				s.BeforeRequest = conflicting("update block lan-1")
			}
			g, err := s.state(t.Context())
			s.noError(err)
			if err := s.withdraw(t.Context(), g); (err != nil) != test.conflict {
				t.Error(err)
			}
			if stays := strings.Contains(s.blockText(1), "me wants"); stays != test.stays || (len(s.asks) > 0) != test.stays {
				t.Errorf("%s, and it knows of %v", s.blockText(1), s.asks)
			}
		})
	}
}

// What an earlier process of the node has asked for, the next one withdraws, also if an ADD waits when it reads that.
func TestWhatAnEarlierProcessAskedForIsWithdrawn(t *testing.T) {
	s := newTestNode(t)
	s.putBlock(1, "AAAA node2")
	b, err := s.Block(t.Context(), "lan-1")
	s.noError(err)
	s.noError(s.request(t.Context(), b, pool.Want{Party: s.party(), Count: 1}, attachment.Owner{}))
	clear(s.asks)
	s.addWaiting("lan", 1)
	s.noError(s.reconcileBlock(t.Context(), "lan", 1))
	s.addWaiting("lan", -1)
	g, err := s.state(t.Context())
	s.noError(err)
	s.noError(s.withdraw(t.Context(), g))
	wantEqual(t, "the block", s.blockText(1), "AAAA node2")
}

// If the API does not answer in the middle, or somebody changes the block, the next look goes on. The address would come, and nobody would know
// here whose it is.
func TestWithdrawGoesOn(t *testing.T) {
	s := newTestNode(t)
	s.putBlock(1, "AAAA node2")
	of, a := ownerOf("db"), netip.MustParseAddr("10.3.0.4")
	s.noError(s.store.ReserveIncoming(t.Context(), a, of, "eth0", lease.Policy{Sticky: true}, "it comes"))
	b, err := s.Block(t.Context(), "lan-1")
	s.noError(err)
	s.noError(s.request(t.Context(), b, pool.Want{Party: s.party(), Address: a, Claim: "c", PodUID: "u2"}, of))
	s.advance(requestPeriod)
	g, err := s.state(t.Context())
	s.noError(err)
	for name, fails := range map[string]func(string) error{"the API is away": failing("get block lan-1"), "it changes": conflicting("update block lan-1")} {
		s.BeforeRequest = fails
		err := s.withdraw(t.Context(), g)
		if _, notLeased := s.store.Get(t.Context(), a); err == nil || notLeased != nil || len(s.asks) == 0 {
			t.Errorf("%s: %v, the lease %v, and it knows of %v", name, err, notLeased, s.asks)
		}
	}
	s.BeforeRequest = nil
	s.noError(s.withdraw(t.Context(), g))
	wantEqual(t, "the block", s.blockText(1), "AAAA node2")
	if _, err := s.store.Get(t.Context(), a); !errors.Is(err, lease.ErrNotLeased) || len(s.asks) > 0 {
		t.Errorf("the lease %v, and it knows of %v", err, s.asks)
	}
}
