package node

import (
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
)

// supplyOnce needs an address for an ADD: it takes one, or asks for one.
func (s *testNode) supplyOnce() error {
	s.addWaiting("lan", 1)
	defer s.addWaiting("lan", -1)
	s.advance(time.Second)
	_, err := s.trySupply(s.t.Context(), "lan", true)
	return err
}

// An ADD that finds nothing gets a new block, then addresses that nobody has, then those of dead nodes. Then others are asked.
func TestFill(t *testing.T) {
	claimed := func(s *testNode) {
		for _, a := range []string{"10.3.0.4", "10.3.0.5", "10.3.0.6", "10.3.0.7"} {
			s.addClaim(a)
		}
	}
	oneFree := func(s *testNode) {
		claimed(s)
		s.Forget("claim-10.3.0.6")
	}
	excluded := func(s *testNode) {
		s.EditPool("lan", func(p *pool.Pool) { p.Spec.Exclude = []string{"10.3.0.0-10.3.0.2"} })
	}
	for name, test := range map[string]struct {
		blocks []string
		// before happens before the ADD.
		before func(*testNode)
		want   []string
		has    string
	}{
		"a new block":     {[]string{"AAAA node2", "AAAA node2", "AAAA node2"}, nil, []string{"AAAA node2", "AAAA node2", "AAAA node2", "AAAA me"}, "++++"},
		"what nobody has": {[]string{"AAAA node2", "AAAA node2", "AA.. node2", "AA.. node3"}, nil, []string{"AAAA node2", "AAAA node2", "AABB node2 me", "AA.. node3"}, "..++"},
		"of a dead node":  {[]string{"AAAA node2", "AAAA node3!", "AAAA node2", "AAAA node2"}, nil, []string{"AAAA node2", "BAAA node3! me", "AAAA node2", "AAAA node2"}, "?..."},
		"of a dead node, but not what an owner has":  {[]string{"AAAA node2", "AAAA node3!", "AAAA node2", "AAAA node2"}, oneFree, []string{"AAAA node2", "AABA node3! me", "AAAA node2", "AAAA node2"}, "..?."},
		"owners have all that the dead node had":     {[]string{"AAAA node2", "AAAA node3!", "AAAA node2", "AAAA node2"}, claimed, []string{"AAAA node2", "AAAA node3!", "AAAA node2", "AAAA node2, me wants 1"}, ""},
		"what the pool excludes by now is of no use": {[]string{"...A node2", "AAAA node2", "AAAA node3", "AAA. node2"}, excluded, []string{"...A node2", "AAAA node2", "AAAA node3", "AAAB node2 me"}, "...+"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestNode(t)
			for i, text := range test.blocks {
				s.putBlock(int64(i), text)
			}
			if test.before != nil {
				test.before(s)
			}
			s.noError(s.supplyOnce())
			for i, want := range test.want {
				wantEqual(t, pool.BlockName("lan", int64(i)), s.blockText(int64(i)), want)
			}
			var has []string
			for _, g := range strings.Fields(s.grants()) {
				if strings.Trim(g, ".") != "" {
					has = append(has, g)
				}
			}
			wantEqual(t, "the store", strings.Join(has, " "), test.has)
		})
	}
}

// In a pool that is in pieces, a node that has no free address takes single ones before a pod has to wait.
func TestReserveOfAPoolInPieces(t *testing.T) {
	s := newTestNode(t)
	for i, text := range []string{"A.B. me node2", "BBBB node3 node2", "BBB. node3 node2", "B==. node3 node2"} {
		s.putBlock(int64(i), text)
	}
	s.adoptBlocks(0)
	s.noError(s.balance(t.Context()))
	wantEqual(t, "with half a block free", s.blockText(0), "AAB. me node2")
	s.add("")
	s.add("")
	s.noError(s.balance(t.Context()))
	wantEqual(t, "too early", s.blockText(0), "AAB. me node2")
	s.advance(balanceInterval)
	s.noError(s.balance(t.Context()))
	wantEqual(t, "the first block", s.blockText(0), "AABA me node2")
	wantEqual(t, "what waits for owners", s.blockText(3), "B==. node3 node2")
	if g, err := s.state(t.Context()); err != nil || freeCount(g.poolState("lan"), pool.GrantedChars) != 2 {
		t.Errorf("it has %s, %v", s.grants(), err)
	}
}

// A plugin that cannot probe needs an address that needs no probe.
func TestSupplyWithoutProbes(t *testing.T) {
	s := newTestNode(t)
	s.putBlock(0, "AABB me node2")
	s.EditBlock("lan-0", func(b *pool.Block) { b.Status.Unproven = []netip.Addr{b.Address(0), b.Address(1)} })
	s.adoptBlocks(0)
	_, err := s.supplyInTurn(t.Context(), "lan", true)
	s.noError(err)
	wantEqual(t, "a plugin that probes", s.grants(), "??..")
	enough, err := s.supplyInTurn(t.Context(), "lan", false)
	s.noError(err)
	wantEqual(t, "a plugin that does not", strconv.FormatBool(enough)+" "+s.grants(), "true ??.. ++++ ++++")
}

// addClaim makes a claim of the address.
func (s *testNode) addClaim(a string) {
	s.AddClaim(pool.Claim{Metadata: pool.Meta{Name: "claim-" + a}, Spec: pool.ClaimSpec{Pool: "lan"}, Status: pool.ClaimStatus{Address: netip.MustParseAddr(a)}})
}

// Two nodes are asked at a time, first those that have most. Who has not answered within the limit is asked again after it.
func TestAskNext(t *testing.T) {
	s := newTestNode(t)
	s.putBlock(0, "AAAA node2")
	s.putBlock(1, "ABBC node2 node3 node4")
	s.putBlock(2, "AAAA node3")
	s.putBlock(3, "A--- node5!")
	s.addClaim("10.3.0.12")
	for _, step := range []struct {
		what  string
		after time.Duration
		want  string
	}{
		{"first", 0, "update block lan-2, update block lan-1"},
		{"at once again", 0, ""},
		{"when they had their time", pool.AgentLimit, "update block lan-2, update block lan-1"},
	} {
		s.advance(step.after)
		before := len(s.Requests())
		s.noError(s.supplyOnce())
		asked := slices.DeleteFunc(s.changes(before), func(r string) bool { return !strings.HasPrefix(r, "update block") })
		wantEqual(t, step.what, strings.Join(asked, ", "), step.want)
	}
	wantEqual(t, "on lan-1", s.blockText(1), "ABBC node2 node3 node4, me wants 1")
}

// A pool that gives nothing new says why.
func TestClosedPools(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*testNode)
		want   string
	}{
		"paused":        {func(s *testNode) { s.EditPool("lan", func(p *pool.Pool) { p.Spec.Paused = true }) }, "the pool lan gives nothing new: spec.paused is true"},
		"being deleted": {func(s *testNode) { s.EditPool("lan", func(p *pool.Pool) { p.Metadata.DeletionTimestamp = "now" }) }, "the pool lan gives nothing new: it is being deleted"},
		"it recovers": {func(s *testNode) {
			s.EditPool("lan", func(p *pool.Pool) { *p = p.WithRecovery(&pool.Recovery{Message: "a loss"}) })
		}, "waits for all nodes: a loss"},
		"it is not":      {func(s *testNode) { s.RemovePool("lan") }, "there is no AddressPool lan: make it, or correct ipam.pool"},
		"a wrong spec":   {func(s *testNode) { s.EditPool("lan", func(p *pool.Pool) { p.Spec.BlockSize = 65 }) }, `invalid spec.blockSize "65"`},
		"it overlaps":    {func(s *testNode) { s.AddPool(older()) }, "10.3.0.0-10.3.0.15 of it is in AddressPool old"},
		"older status":   {func(s *testNode) { s.sequence["lan uid-1"] = 9 }, "the API has an older state of it than this node has seen"},
		"just come back": {func(s *testNode) { s.noteAnswer(false); s.noteAnswer(true); s.Settling = time.Hour }, "the Kubernetes API has just come back"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestNode(t)
			test.change(s)
			before := len(s.Requests())
			wantError(t, "an ADD", s.supplyOnce(), test.want)
			if got := s.changes(before); got != nil {
				t.Errorf("it has changed something: %v", got)
			}
		})
	}
}

func older() pool.Pool {
	p := lan
	p.Metadata = pool.Meta{Name: "old", CreationTimestamp: "2020-01-01T00:00:00Z"}
	return p
}

// younger is a pool that overlaps lan, and must give nothing.
func younger() pool.Pool {
	p := lan
	p.Metadata, p.Spec.BlockSize = pool.Meta{Name: "young", CreationTimestamp: "2099-01-01T00:00:00Z"}, 1
	return p
}

// putYounger makes the younger pool, and gives addresses of it to node3: lan has got the range later.
func (s *testNode) putYounger(addresses ...string) {
	s.t.Helper()
	l, err := s.AddPool(younger()).Layout()
	s.noError(err)
	for _, a := range addresses {
		index, _ := l.Index(netip.MustParseAddr(a))
		b, _ := pool.NewBlock(l, index, partyOf("node3"), "boot")
		s.AddBlock(b)
	}
}

// What another pool has given, nobody takes out of a block that exists: not if it is nobody's, not if a dead node had it, and not for an
// owner.
func TestWhatAnotherPoolHasGiven(t *testing.T) {
	for name, text := range map[string]string{"nobody's": "AAA. node2", "a dead node's": "AAAB node2 node3!"} {
		t.Run(name, func(t *testing.T) {
			s := newTestNode(t)
			for i := range int64(3) {
				s.putBlock(i, "AAAA node2")
			}
			s.putBlock(3, text)
			s.putYounger("10.3.0.15")
			s.noError(s.supplyOnce())
			wantError(t, "an owner's ADD", func() error {
				_, err := s.Acquire(t.Context(), pool.Acquisition{Network: "pods", Pool: "lan", IfName: "eth0", Owner: ownerOf("web-0"), Requested: netip.MustParseAddr("10.3.0.15")})
				return err
			}(), "10.3.0.15 is in a block of another AddressPool, too")
			wantEqual(t, "the block", strings.Fields(s.blockText(3))[0], strings.Fields(text)[0])
		})
	}
}

// An agent ends after it has made a block, and before it has looked at the other pools. Until it comes back, another pool gives the addresses,
// or an older one has got them. It gives none of them, and goes on with everything else.
func TestABlockThatWasNotCompared(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(*testNode)
		want      string
	}{
		"nothing happens":        {func(*testNode) {}, "AAAA"},
		"a younger pool is made": {func(s *testNode) { s.AddPool(younger()) }, "AAAA"},
		"a younger pool gives":   {func(s *testNode) { s.putYounger("10.3.0.13") }, ""},
		"an older pool is made":  {func(s *testNode) { s.AddPool(older()) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestNode(t)
			for i := range int64(3) {
				s.putBlock(i, "AAAA node2")
			}
			made := false
			s.BeforeRequest = func(r string) error {
				if made = made || r == "create block lan-3"; made && r == "list pools" {
					return errUnclear
				}
				return nil
			}
			wantError(t, "an ADD", s.supplyOnce(), errUnclear.Error())
			s.BeforeRequest = nil
			test.meanwhile(s)
			s.reboot()
			s.Reconcile(t.Context())
			if got := strings.TrimSpace(s.grants()); strings.Contains(got, "++++") != (test.want != "") {
				t.Errorf("the store has %s, want %q", got, test.want)
			}
			wantEqual(t, "the block", s.blockText(3), "AAAA me")
			if g, err := s.store.Granted(t.Context()); err != nil || !g.Confirmed {
				t.Errorf("it has not confirmed what it has: %v\n%s", err, s.log.String())
			}
			if told := strings.Contains(s.log.String(), "AddressBlock lan-3: another AddressPool has addresses of it: delete it if no pod has any of it"); told != (test.want == "") {
				t.Errorf("the log has %s", s.log.String())
			}
		})
	}
}

// An ADD whose time is over gets an address all the same: it comes again. With a slow API it would never get one otherwise.
func TestAnADDThatHasGivenUpIsSupplied(t *testing.T) {
	s := newTestNode(t)
	for i, text := range []string{"AAAA node2", "AAAA node3!", "AAAA node2", "AAAA node2"} {
		s.putBlock(int64(i), text)
	}
	s.advance(time.Second)
	enough, err := s.trySupply(t.Context(), "lan", true) // Nobody waits.
	if s.noError(err); !enough {
		t.Error("there is no address for the next try")
	}
	wantEqual(t, "the dead node's block", s.blockText(1), "BAAA node3! me")
}

var errUnclear = errors.New("the connection was lost")

// After an unclear answer, a block that this node had before is not taken for the new one, which can be deleted again.
func TestMakingABlockThatThisNodeHas(t *testing.T) {
	s := newTestNode(t)
	s.putBlock(3, "AAAA me")
	s.adoptBlocks(3)
	s.add("")
	v, err := s.readView(t.Context(), "lan")
	s.noError(err)
	before, err := s.state(t.Context())
	s.noError(err)
	s.BeforeRequest = func(r string) error {
		if !strings.HasPrefix(r, "create block") {
			return nil
		}
		s.EditPool("lan", func(p *pool.Pool) { p.Spec.Paused = true })
		return errUnclear
	}
	if _, err := s.createBlock(t.Context(), v, 3, before); !errors.Is(err, pool.ErrExists) {
		t.Error(err)
	}
	wantEqual(t, "the block", s.blockText(3), "AAAA me")
}

// What a node has made, it has, even if it does not hear the answer. What the pool does not allow meanwhile, it removes.
func TestMakingABlock(t *testing.T) {
	lose := func(s *testNode) {
		s.AfterRequest = func(r string) error {
			if strings.HasPrefix(r, "create block") {
				return errUnclear
			}
			return nil
		}
	}
	during := func(change func(*testNode)) func(*testNode) {
		return func(s *testNode) {
			s.AfterRequest = func(r string) error {
				if strings.HasPrefix(r, "create block") {
					change(s)
				}
				return nil
			}
		}
	}
	for name, test := range map[string]struct {
		before func(*testNode)
		err    string
		want   string
	}{
		"it works":                          {func(*testNode) {}, "", "AAAA me"},
		"the answer is lost":                {lose, "", "AAAA me"},
		"paused meanwhile":                  {during(func(s *testNode) { s.EditPool("lan", func(p *pool.Pool) { p.Spec.Paused = true }) }), "the pool lan has changed: spec.paused is true", "none"},
		"made anew meanwhile":               {during(func(s *testNode) { s.EditPool("lan", func(p *pool.Pool) { p.Metadata.UID = "other" }) }), "the pool lan has changed: it is another one", "none"},
		"overlaps meanwhile":                {during(func(s *testNode) { s.AddPool(older()) }), "the pool lan has changed: 10.3.0.0-10.3.0.15 of it is in AddressPool old", "none"},
		"a younger pool overlaps meanwhile": {during(func(s *testNode) { s.AddPool(younger()) }), "", "AAAA me"},
		"a younger pool has some":           {func(s *testNode) { s.putYounger("10.3.0.15") }, "", "none"},
		"a younger pool has some meanwhile": {during(func(s *testNode) { s.putYounger("10.3.0.12") }), "the pool lan has changed: it is another one, or another AddressPool has some of the block", "none"},
		"a younger pool recovers": {func(s *testNode) {
			s.AddPool(younger().WithRecovery(&pool.Recovery{Message: "a loss"}))
		}, "", "none"},
		"refused": {func(s *testNode) {
			s.BeforeRequest = func(r string) error {
				if strings.HasPrefix(r, "create block") {
					return pool.ErrRefused
				}
				return nil
			}
		}, "the Kubernetes API refuses", "none"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestNode(t)
			for i := range int64(3) {
				s.putBlock(i, "AAAA node2")
			}
			test.before(s)
			wantError(t, "an ADD", s.supplyOnce(), test.err)
			wantEqual(t, "the block", s.blockText(3), test.want)
			if p, err := s.Pool(t.Context(), "lan"); err != nil || len(p.Metadata.Finalizers) != 1 {
				t.Errorf("the pool does not stay: %+v, %v", p.Metadata, err)
			}
		})
	}
}
