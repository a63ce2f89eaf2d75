package pool

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestShares(t *testing.T) {
	rebooted, _ := blockOf("AAB.", "b", "a").wanted(anyOf("c", 2), oneOf("c", "10.3.0.11"), anyOf("a", 1)).Confirm(partyOf("b"), "next")
	got := Shares([]Block{blockOf("ABB-", "a", "b!"), rebooted, blockOf("A", "b!")})
	want := []Share{
		{Party: partyOf("a"), Addresses: 2, Blocks: 2, Boots: []string{"boot"}, Wants: 1},
		{Party: partyOf("b"), Addresses: 5, Blocks: 3, FencedAddresses: 3, FencedBlocks: 2, Fenced: []string{"proof"}, Boots: []string{"boot", "next"}},
		{Party: partyOf("c"), Wants: 3},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := Shares(nil); got != nil {
		t.Errorf("of no blocks: %+v", got)
	}
}

func TestStanding(t *testing.T) {
	b := blockOf("AB.-", "a", "b!").unproven(1, 2).wanted(oneOf("c", "10.3.0.10"), anyOf("c", 1))
	a, fenced := b.Status.Holders[0], b.Status.Holders[1]
	for i, want := range []AddressStatus{{Holder: &a, Want: []Want{oneOf("c", "10.3.0.10")}}, {Holder: &fenced, Unproven: true}, {Unproven: true}, {Excluded: true}} {
		want.Pool, want.Block, want.Address = "p", "p-0", b.Address(i)
		if diff := cmp.Diff(want, b.AddressStatus(b.Address(i)), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("%d: (-want +got):\n%s", i, diff)
		}
	}
	if got := b.AddressStatus(addr("10.3.0.99")); got.Holder != nil || got.Excluded || got.Pool != "p" {
		t.Errorf("of another block: %+v", got)
	}
}
