package pool

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// ownersOf says who has each address of a block: the store, "" for nobody, "-" for an address that is never given. Of a fenced
// party it is known by the second.
func ownersOf(b Block) (stores []string, fenced []bool) {
	for i := range len(b.Status.Addresses) {
		h, is := b.HolderOf(i)
		switch {
		case is:
			stores = append(stores, h.Store)
		case b.Status.Addresses[i] == Excluded:
			stores = append(stores, "-")
		default:
			stores = append(stores, "")
		}
		fenced = append(fenced, h.Fenced != "")
	}
	return stores, fenced
}

// drawStep draws one step of one party. may says which changes of an address's owner it allows.
func drawStep(t *rapid.T, b Block, parties []Party) (_ Block, what string, may func(i int, from, to string, fenced bool) bool) {
	me := rapid.SampledFrom(parties).Draw(t, "party")
	offsets := rapid.SliceOfNDistinct(rapid.IntRange(0, len(b.Status.Addresses)-1), 0, 4, func(i int) int { return i }).Draw(t, "addresses")
	mine := func(i int, from, _ string, fenced bool) bool {
		return from == me.Store && !fenced && slices.Contains(offsets, i)
	}
	never := func(int, string, string, bool) bool { return false }
	switch what = rapid.SampledFrom([]string{"take", "ask", "give back", "pass on", "fence", "leave", "confirm", "settle"}).Draw(t, "step"); what {
	case "take":
		b, n := b.Take(me, offsets)
		if n > len(offsets) {
			t.Fatalf("Take has taken %d of %v", n, offsets)
		}
		return b, what, func(i int, from, to string, fenced bool) bool {
			return to == me.Store && (from == "" || fenced) && slices.Contains(offsets, i)
		}
	case "ask":
		w := Want{Party: me, Count: rapid.IntRange(0, 3).Draw(t, "count")}
		if rapid.Bool().Draw(t, "an owner's") {
			w = Want{Party: me, Address: b.Address(rapid.IntRange(0, len(b.Status.Addresses)-1).Draw(t, "wanted")), Claim: rapid.SampledFrom([]string{"claim", ""}).Draw(t, "claim")}
		}
		return b.Request(w), what, never
	case "give back":
		if h, is := b.Holder(me); is && h.Fenced != "" {
			return b, what, never // Who is fenced has nothing to give back: Settle knows that.
		}
		return b.Release(me, offsets, nil), what, mine
	case "pass on":
		to := rapid.SampledFrom(parties).Filter(func(p Party) bool { return !p.SameParty(me) }).Draw(t, "to")
		return b.HandOver(me, offsets, to), what, mine
	case "fence":
		b, _ := b.Fence(me.SameParty, "proof")
		return b, what, never
	case "leave":
		return b.Unfence(me, nil), what, func(_ int, from, to string, fenced bool) bool { return from == me.Store && fenced && to == "" }
	case "confirm":
		b, _ := b.Confirm(me, rapid.SampledFrom([]string{"boot-1", "boot-2"}).Draw(t, "boot"))
		return b, what, never
	}
	g, _, err := Grant{}.Adopt(b, me)
	if err != nil {
		t.Fatal(err)
	}
	if b.IsFenced(me) {
		what = "leave"
	}
	o, err := Reconcile(b, g.Mark(offsets), localOf(me))
	if err != nil || o.Delete && (!o.Block.Unused() || !o.Write) {
		t.Fatalf("%s is to be deleted: %v", blockText(o.Block), err)
	}
	return o.Block, what, func(_ int, from, to string, fenced bool) bool { return from == me.Store && (!fenced || to == "") }
}

// TestAnySteps draws steps of several parties on one block. It stays a block that Check accepts. An address changes its owner
// only by a step of who has it, or if nobody has it any more. A new owner of a fenced party's address has to probe.
func TestAnySteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parties := make([]Party, rapid.IntRange(2, 5).Draw(t, "parties"))
		for i := range parties {
			parties[i] = partyOf(fmt.Sprint(i))
		}
		l := Layout{Name: "p", UID: "u", BlockSize: 8, Ranges: []Span{span("10.3.0.0", "10.3.0.7")}, Gateway: addr("10.3.0.3")}
		b, _ := NewBlock(l, 0, parties[0], "boot-1")
		b.Metadata.UID = "uid"
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			was := b.clone()
			next, what, may := drawStep(t, b, parties)
			if blockText(was) != blockText(b) {
				t.Fatalf("%s changes what it was given, %s, to %s", what, blockText(was), blockText(b))
			}
			b = next
			checkStep(t, what, was, b, may)
		}
	})
}

// checkStep checks one change of a block.
func checkStep(t *rapid.T, what string, was, is Block, may func(i int, from, to string, fenced bool) bool) {
	if err := is.Check(); err != nil {
		t.Fatalf("%s makes %s of %s: %v", what, blockText(is), blockText(was), err)
	}
	from, fenced := ownersOf(was)
	to, _ := ownersOf(is)
	moved := false
	for i := range from {
		if from[i] == to[i] {
			continue
		}
		moved = true
		if from[i] == "-" || to[i] == "-" || !may(i, from[i], to[i], fenced[i]) {
			t.Fatalf("%s makes %s of %s: address %d", what, blockText(is), blockText(was), i)
		}
		h, _ := is.HolderOf(i)
		if h.Fenced != "" || fenced[i] && to[i] != "" && !slices.Contains(is.Status.Unproven, is.Address(i)) {
			t.Fatalf("%s makes %s of %s: the new owner of address %d is fenced, or need not probe", what, blockText(is), blockText(was), i)
		}
	}
	if moved && is.Status.Epoch <= was.Status.Epoch || is.Status.Epoch < was.Status.Epoch {
		t.Fatalf("%s makes %s of %s: the epoch is %d, and was %d", what, blockText(is), blockText(was), is.Status.Epoch, was.Status.Epoch)
	}
	for _, h := range is.Status.Holders {
		if h.Fenced == "" && !strings.Contains(is.Status.Addresses, h.ID) {
			t.Fatalf("%s makes %s of %s: node %s has nothing, and stays", what, blockText(is), blockText(was), h.Node)
		}
	}
	checkOwners(t, is)
}

// checkOwners checks that what the grants of all parties give are different addresses.
func checkOwners(t *rapid.T, b Block) {
	gives := map[int]string{}
	for _, h := range b.Status.Holders {
		g, lost, err := Grant{}.Adopt(b, h.Party)
		if err != nil || len(lost) > 0 {
			t.Fatalf("Adopt = %v, %v", lost, err)
		}
		for _, i := range g.Offsets(GrantedChars) {
			if other, is := gives[i]; is {
				t.Fatalf("%s: nodes %s and %s give address %d", blockText(b), other, h.Node, i)
			}
			gives[i] = h.Node
			if _, probe := g.Assignable(i); probe != slices.Contains(b.Status.Unproven, b.Address(i)) {
				t.Fatalf("%s: node %s gives address %d, with a probe: %t", blockText(b), h.Node, i, probe)
			}
		}
	}
}
