package node

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/relink-cni/relink/pkg/pool"
)

// A node that has more than the API says keeps it, and stops the pool. A node that was fenced has lost it.
func TestAdoptAndAlarm(t *testing.T) {
	for name, test := range map[string]struct {
		has string // what the API has given the node before, "" for nothing
		now string // what it says now, "" for nothing
		// change changes the block of now.
		change func(*pool.Block)
		err    string
		want   string
		alarm  string
	}{
		"all of a new block":      {"", "AAAA me", nil, "", "++++", ""},
		"nothing of another's":    {"", "AAAA node2", nil, "", "", ""},
		"more":                    {"AA.. me", "AAA. me", func(b *pool.Block) { b.Status.Epoch, b.Status.Holders[0].Epoch = 11, 11 }, "", "+++.", ""},
		"more of an older state":  {"AA.. me", "AAA. me", nil, "the party got its last address in epoch 10, and this node knows of 10 and has less", "++..", "and has less"},
		"it was fenced":           {"AAAA me", "AABB me! node2", nil, "", "....", ""},
		"some is lost":            {"AAAA me", "AA.. me", nil, "this node has 2 addresses that are not its own there", "++++", "2 addresses"},
		"all is another's":        {"AAAA me", "AAAA node2", nil, "this node has 4 addresses that are not its own there", "++++", "4 addresses"},
		"an older state":          {"AAAA me", "AAAA me", func(b *pool.Block) { b.Status.Epoch = 1 }, "the API has an older state than this node: epoch 1, and this node knows of 10", "++++", "epoch 1"},
		"the block is gone":       {"AAAA me", "", nil, "it does not exist, and this node has 4 addresses of it", "++++", "it does not exist"},
		"another's block is gone": {"AAAA node2", "", nil, "", "", ""},
		"it was made anew":        {"AAAA me", "AAAA me", func(b *pool.Block) { b.Metadata.UID = "other" }, "its UID is other", "++++", "its UID is other"},
		"made up": {"", "AAAA me", func(b *pool.Block) {
			b.Spec.First, b.Spec.Last = netip.MustParseAddr("10.3.0.1"), netip.MustParseAddr("10.3.0.4")
		}, "AddressBlock lan-1 has the addresses 10.3.0.1-10.3.0.4, and the pool has others there: delete it if no pod has any of them", "", ""},
		"damaged": {"", "AAAZ me", nil, `10.3.0.7 is of "Z", who is no holder`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestNode(t)
			if test.has != "" {
				s.putBlock(1, test.has)
				s.adoptBlocks(1)
				s.EditBlock("lan-1", func(*pool.Block) {}) // It is another version from now on.
			}
			before, _ := s.Block(t.Context(), "lan-1")
			s.Forget("lan-1")
			if test.now != "" {
				s.putBlock(1, test.now)
				s.EditBlock("lan-1", func(b *pool.Block) {
					if before.Metadata.UID != "" {
						b.Metadata.UID = before.Metadata.UID
					}
					if test.change != nil {
						test.change(b)
					}
				})
			}
			var err error
			if b, missing := s.Block(t.Context(), "lan-1"); missing == nil {
				_, err = s.reconcile(t.Context(), b, 0)
			} else {
				err = s.adoptDeletion(t.Context(), "lan", 1)
			}
			wantError(t, "adopt", err, test.err)
			wantEqual(t, "the store", s.grants(), test.want)
			if why := s.recoveryReason(); (why == "") != (test.alarm == "") || !strings.Contains(why, test.alarm) {
				t.Errorf("the pool recovers because of %q, want %q", why, test.alarm)
			}
		})
	}
}

// A node that was declared dead leaves a block when no pod has any of its addresses. It looks again by itself: nobody else would
// tell it.
func TestLeave(t *testing.T) {
	s := newTestNode(t)
	s.putBlock(1, "AAAA me")
	s.adoptBlocks(1)
	first, one := s.add("")
	second, two := s.add("web-0")
	s.EditBlock("lan-1", func(b *pool.Block) {
		*b, _ = b.Fence(func(p pool.Party) bool { return p.SameParty(s.party()) }, "proof")
	})
	for range 3 {
		s.noError(s.balance(t.Context()))
		s.noError(s.sync(t.Context()))
	}
	wantEqual(t, "while pods have addresses", s.blockText(1), "AAAA me!")
	wantEqual(t, "the store", s.grant(1), "....")
	if n := strings.Count(s.log.String(), "this node was declared dead"); n != 1 || !strings.Contains(s.log.String(), first.String()+" "+second.String()) {
		t.Errorf("it was said %d times:\n%s", n, s.log.String())
	}
	s.del(one)
	s.noError(s.balance(t.Context()))
	wantEqual(t, "one pod is left", s.blockText(1), "AAAA me!")
	s.del(two) // The address goes on waiting for its owner, but no pod has it.
	s.noError(s.balance(t.Context()))
	wantEqual(t, "no pod is left", s.blockText(1), "none")
	if len(s.fenced) != 0 {
		t.Errorf("it goes on looking at %v", s.fenced)
	}
}
