package pool

import (
	"fmt"
	"slices"
)

// SignOfLife says what the party has done with the block since b was read, empty if nothing shows that it lives. now is the block
// as it was read later.
//
// A change of its part alone is no sign: other nodes give a party addresses that it asked for before it died.
func (b Block) SignOfLife(now Block, p Party) string {
	was, held := b.Holder(p)
	is, holds := now.Holder(p)
	switch {
	case held && was.Fenced != "", holds && is.Fenced != "":
		return ""
	case held && !holds:
		return "it has given back all that it had"
	case is.Boot != was.Boot, is.FenceAfter != was.FenceAfter:
		return "it has confirmed what it has"
	}
	for i := range min(len(b.Spec.Addresses), len(now.Spec.Addresses)) {
		had, has := b.Has(p, i), now.Has(p, i)
		from, others := b.HolderOf(i)
		switch {
		case had && !has:
			return fmt.Sprintf("it has given back %s", b.At(i))
		case has && !had && (!others || from.Fenced != ""):
			return fmt.Sprintf("it has taken %s", b.At(i))
		}
	}
	if slices.ContainsFunc(now.Spec.Want, func(w Want) bool { return w.Is(p) && !b.wants(w) }) {
		return "it asks for addresses"
	}
	return ""
}

// wants says whether the block has what the party wants, or more of it.
func (b Block) wants(w Want) bool {
	return slices.ContainsFunc(b.Spec.Want, func(o Want) bool { return o.Is(w.Party) && o.Address == w.Address && o.Count >= w.Count })
}
