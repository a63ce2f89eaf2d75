package pool

import (
	"fmt"
	"slices"
)

// SignOfLife says what the party has done with the block since b was read, empty if nothing shows that it lives. current is the block
// as it was read later.
//
// A change of its part alone is no sign: other nodes give a party addresses that it asked for before it died.
func (b Block) SignOfLife(current Block, p Party) string {
	before, held := b.Holder(p)
	after, holds := current.Holder(p)
	switch {
	case held && before.Fenced != "", holds && after.Fenced != "":
		return ""
	case held && !holds:
		return "it has given back all that it had"
	case after.Boot != before.Boot:
		return "it has confirmed what it has"
	}
	for i := range min(len(b.Status.Addresses), len(current.Status.Addresses)) {
		heldBefore, heldAfter := b.HeldBy(p, i), current.HeldBy(p, i)
		previous, assigned := b.HolderOf(i)
		switch {
		case heldBefore && !heldAfter:
			return fmt.Sprintf("it has given back %s", b.Address(i))
		case heldAfter && !heldBefore && (!assigned || previous.Fenced != ""):
			return fmt.Sprintf("it has taken %s", b.Address(i))
		}
	}
	if slices.ContainsFunc(current.Status.Want, func(w Want) bool { return w.SameParty(p) && !b.hasRequest(w) }) {
		return "it asks for addresses"
	}
	return ""
}

// hasRequest says whether the block has what the party wants, or more of it.
func (b Block) hasRequest(w Want) bool {
	return slices.ContainsFunc(b.Status.Want, func(o Want) bool { return o.SameParty(w.Party) && o.Address == w.Address && o.Count >= w.Count })
}
