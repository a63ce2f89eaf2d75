package node

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
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
			s.EditBlock("lan-1", func(b *pool.Block) { b.Spec.Want = append(b.Spec.Want, want) })
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
