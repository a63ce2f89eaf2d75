package pool

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// A node that is dead and deleted leaves the block. What owners have of it is kept for them, and all of it stays unproven.
func TestRemoveDeleted(t *testing.T) {
	for name, test := range map[string]struct {
		before Block
		// claimed are the offsets of the addresses that owners have.
		claimed []int
		want    string
		changed bool
	}{
		"it is dead and gone":               {blockOf("AAB.-", "a!", "b"), nil, "..B.-, B=b, unproven 0, unproven 1", true},
		"owners have some":                  {blockOf("AAB.-", "a!", "b"), []int{1, 2}, ".=B.-, B=b, unproven 0, unproven 1", true},
		"it is only gone":                   {blockOf("AAB.-", "a", "b"), nil, "AAB.-, A=a, B=b", false},
		"another is only dead":              {blockOf("AAB.-", "a", "b!"), nil, "AAB.-, A=a, B=b!", false},
		"others have taken all that it had": {blockOf("BB", "a!", "b").unproven(0), nil, "BB, B=b, unproven 0", true},
		"an owner has one as before":        {blockOf("A=", "b"), []int{1}, "A=, A=b", false},
		"an owner has one no more":          {blockOf("A=", "b"), nil, "A., A=b", true},
	} {
		gone := func(h Holder) bool { return h.Node == "a" }
		claimed := func(a netip.Addr) bool { return slices.Contains(test.claimed, test.before.Offset(a)) }
		got, changed := test.before.RemoveDeleted(gone, claimed)
		if blockText(got) != test.want || changed != test.changed || got.Check() != nil {
			t.Errorf("%s: %s, changed %t, %v", name, blockText(got), changed, got.Check())
		}
		if got.Status.Addresses != test.before.Status.Addresses && got.Status.Epoch <= test.before.Status.Epoch {
			t.Errorf("%s: the epoch is %d", name, got.Status.Epoch)
		}
		if again, changed := got.RemoveDeleted(gone, claimed); changed {
			t.Errorf("%s: it changes again: %s", name, blockText(again))
		}
	}
}

// What the pool excludes no more can be given: it is nobody's.
func TestReadmit(t *testing.T) {
	l := Layout{Name: "p", UID: "u", Subnet: netip.MustParsePrefix("10.3.0.0/24"), BlockSize: 4, Gateway: addr("10.3.0.10"), Ranges: []Span{span("10.3.0.10", "10.3.0.13")}}
	for exclude, want := range map[string]string{"": "-.A., A=a", "10.3.0.11": "--A., A=a", "10.3.0.13": "-.A-, A=a"} {
		if l.Exclude = nil; exclude != "" {
			l.Exclude = []Span{span(exclude, exclude)}
		}
		before := blockOf("--A-", "a")
		got, changed := before.Readmit(l)
		if blockText(got) != want || !changed {
			t.Errorf("without %q: %s, want %s", exclude, blockText(got), want)
		}
		checkUnchanged(t, exclude, before.clone(), before, got)
		if again, changed := got.Readmit(l); changed {
			t.Errorf("it changes again: %s", blockText(again))
		}
	}
}

// An address that waits for an owner stays in its block, and so does one that is unproven.
func TestWhatIsLeftOfADeletedNode(t *testing.T) {
	b := blockOf("=.A", "b").unproven(0)
	taken, n := b.Take(partyOf("c"), []int{0})
	if blockText(taken) != "B.A, A=b, B=c, unproven 0" || n != 1 {
		t.Errorf("%s, %d", blockText(taken), n)
	}
	released := taken.Release(partyOf("c"), []int{0}, nil).Release(partyOf("b"), []int{2}, nil)
	if got := fmt.Sprint(b.FreeOffsets(), blockOf("=.").Unused(), released.Unused(), blockOf("..").Unused()); got != "[1] false false true" {
		t.Errorf("free, unused: %s", got)
	}
}

// People see who has how much of a block.
func TestNodesOfABlock(t *testing.T) {
	b := blockOf("AABBB.-", "a", "b")
	fenced, _ := b.Fence(func(p Party) bool { return p.Node == "a" }, "proof")
	released := fenced.Release(partyOf("b"), []int{2, 3, 4}, nil)
	if got, want := b.Status.Nodes+"; "+fenced.Status.Nodes+"; "+released.Status.Nodes, "a 2, b 3; a 2 (fenced), b 3; a 2 (fenced)"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestWhyANodeLeaves(t *testing.T) {
	drained := func(value string) Node { return Node{Labels: map[string]string{DrainLabel: value}} }
	for name, test := range map[string]struct {
		node   Node
		reason string
	}{
		"it stays":                       {Node{}, ""},
		"kubectl relink drain":           {drained(""), "drained"},
		"kubectl label drained=true":     {drained("true"), "drained"},
		"somebody has taken that back":   {drained("false"), ""},
		"its Node is deleted":            {Node{Deleted: true}, "has no such Node"},
		"taken back, and it is deleted ": {Node{Deleted: true, Labels: drained("false").Labels}, "has no such Node"},
	} {
		if got := test.node.LeaveReason(); !strings.Contains(got, test.reason) || got == "" != (test.reason == "") {
			t.Errorf("%s: %q, want %q", name, got, test.reason)
		}
	}
}
