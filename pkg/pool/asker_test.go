package pool

import (
	"testing"
)

// An owner's address goes to the node that has asked for it last: the owner's pod does not start any more where it was asked for before.
// The other node goes on asking.
func TestTheLastWhoAsksForAnAddressGetsIt(t *testing.T) {
	l := Layout{Name: "lan", UID: "uid", Ranges: []Span{{addr("10.3.0.0"), addr("10.3.0.3")}}, BlockSize: 4}
	of := func(name string) Party { return Party{Node: name, Network: "pods", Store: "store-" + name} }
	b, _ := NewBlock(l, 0, of("n1"), "boot")
	for _, name := range []string{"n2", "n3", "n4"} {
		b = b.Request(Want{Party: of(name), Address: addr("10.3.0.2"), Claim: "claim"})
	}
	b = b.Request(Want{Party: of("n4"), Address: addr("10.3.0.3"), Claim: "claim"}).Request(Want{Party: of("n5"), Count: 1})
	b = b.Release(of("n1"), []int{2}, nil)
	if h, _ := b.HolderOf(2); h.Node != "n4" {
		t.Errorf("%s has it", h.Node)
	}
	if len(b.Status.Want) != 4 || b.Status.Want[0].Node != "n2" || b.Status.Want[1].Node != "n3" {
		t.Errorf("they ask: %+v", b.Status.Want)
	}
}
