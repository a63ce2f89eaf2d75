package pool

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// The characters of a Grant.
const (
	// NotGranted is an address that the party does not have.
	NotGranted = '.'
	// GrantedMark is an address that the party may give.
	GrantedMark = '+'
	// GrantedUnproven is one that it may give after a probe.
	GrantedUnproven = '?'
	// Marked is one that it gives back. It never gives it to a pod again, whatever the API has answered so far.
	Marked = '-'
)

// Errors of Adopt. The grant stays as it is.
var (
	// ErrStale says that the block is older than the grant: the API has lost something, or a cache has answered.
	ErrStale = errors.New("the API has an older state than this node")
	// ErrReplaced says that the block was made anew while the party had addresses of it.
	ErrReplaced = errors.New("the API has another block of this name")
)

// Grant is what a party knows of its part of a block. It is in the party's store.
type Grant struct {
	Pool    string     `json:"pool"`
	PoolUID string     `json:"poolUID,omitempty"`
	Index   int64      `json:"index"`
	Block   string     `json:"block"` // the UID of the block
	Epoch   int64      `json:"epoch"`
	First   netip.Addr `json:"first"`
	// Addresses has one character for each address of the block.
	Addresses string `json:"addresses"`
	// Ended are the UIDs of earlier blocks of this name, the last one first, each with a space after it. An API that has lost
	// something answers them again.
	Ended string `json:"ended,omitempty"`
}

// maxEnded is how many earlier blocks of a name a grant knows.
const maxEnded = 4

// withoutBlock returns the grant after its block was deleted.
func (g Grant) withoutBlock() Grant {
	if g.Block == "" {
		return g
	}
	uids := strings.Fields(g.Block + " " + g.Ended)
	g.Ended = strings.Join(uids[:min(len(uids), maxEnded)], " ") + " "
	g.Block, g.Epoch = "", 0
	return g
}

// blockEnded says whether the node knows that the block with the UID was deleted.
func (g Grant) blockEnded(uid string) bool {
	return uid != "" && strings.Contains(" "+g.Ended, " "+uid+" ")
}

// Name returns the name of the block.
func (g Grant) Name() string { return BlockName(g.Pool, g.Index) }

// Address returns the address with that offset.
func (g Grant) Address(i int) netip.Addr { return plus(g.First, int64(i)) }

// Last returns the last address of the block.
func (g Grant) Last() netip.Addr { return g.Address(len(g.Addresses) - 1) }

// Offset returns the place of the address in the block, -1 if it is not in it.
func (g Grant) Offset(a netip.Addr) int { return offset(g.Span(), a) }

// Span returns all addresses of the block.
func (g Grant) Span() Span { return Span{g.First, g.Last()} }

// Assignable says whether the address with that offset can be given, and whether only after a probe.
func (g Grant) Assignable(i int) (assignable, probe bool) {
	c := g.Addresses[i]
	return c == GrantedMark || c == GrantedUnproven, c == GrantedUnproven
}

// MayGive says whether the party may give the address.
func (g Grant) MayGive(a netip.Addr) bool {
	i := g.Offset(a)
	return i >= 0 && strings.IndexByte(GrantedChars, g.Addresses[i]) >= 0
}

// Offsets returns the offsets of the addresses with one of the characters.
func (g Grant) Offsets(chars string) (offsets []int) {
	for i := range len(g.Addresses) {
		if strings.IndexByte(chars, g.Addresses[i]) >= 0 {
			offsets = append(offsets, i)
		}
	}
	return offsets
}

// GrantedChars are the characters of addresses that the party has.
const GrantedChars = string(GrantedMark) + string(GrantedUnproven)

// Granted returns how many addresses the party has.
func (g Grant) Granted() int { return len(g.Offsets(GrantedChars)) }

// Empty says whether the party has nothing of the block.
func (g Grant) Empty() bool { return strings.Trim(g.Addresses, string(NotGranted)) == "" }

// Adopt returns the grant by a block that the API itself has just answered. lost are the offsets of what the party has lost:
// it was fenced, or the API has forgotten. g is the zero Grant if the party knew nothing of the block.
//
// Adopt never makes a marked address one that the party may give. An older block changes nothing: ErrStale, ErrReplaced. A block can be
// older though its epoch is not: others have changed it since the API lost something. Then it gives the party an address that the party
// knows to have given up.
func (g Grant) Adopt(b Block, me Party) (_ Grant, lost []int, err error) {
	spec, s := b.Spec, b.Status
	before := g
	g = g.shapedFor(b)
	switch {
	case g.blockEnded(b.Metadata.UID):
		return g, nil, fmt.Errorf("AddressBlock %s: %w: the block with the UID %s was deleted", g.Name(), ErrStale, b.Metadata.UID)
	case g.First != spec.First || len(g.Addresses) != len(s.Addresses):
		return g, nil, fmt.Errorf("AddressBlock %s: %w: it is of %s, and this node has %s of it", g.Name(), ErrReplaced, b.Span(), g.Span())
	case g.Block != "" && g.Block != b.Metadata.UID && g.Granted() > 0:
		return g, nil, fmt.Errorf("AddressBlock %s: %w: its UID is %s, and was %s", g.Name(), ErrReplaced, b.Metadata.UID, g.Block)
	case g.Block == b.Metadata.UID && s.Epoch < g.Epoch:
		return g, nil, fmt.Errorf("AddressBlock %s: %w: epoch %d, and this node knows of %d", g.Name(), ErrStale, s.Epoch, g.Epoch)
	}
	if g.Block != b.Metadata.UID {
		g = g.withoutBlock()
	}
	chars := []byte(g.Addresses)
	for i, c := range chars {
		holds := b.HeldBy(me, i)
		switch {
		case holds && c == Marked:
		case holds:
			if chars[i] = GrantedMark; slices.Contains(s.Unproven, b.Address(i)) {
				chars[i] = GrantedUnproven
			}
		default:
			if chars[i] = NotGranted; c == GrantedMark || c == GrantedUnproven {
				lost = append(lost, i)
			}
		}
	}
	next := g
	next.Addresses, next.Epoch, next.Block, next.PoolUID = string(chars), s.Epoch, b.Metadata.UID, spec.PoolUID
	if h, _ := b.Holder(me); g.Block == next.Block && h.Epoch <= g.Epoch && next.Granted() > g.Granted()-len(lost) {
		return before, nil, fmt.Errorf("AddressBlock %s: %w: the party got its last address in epoch %d, and this node knows of %d and has less", g.Name(), ErrStale, h.Epoch, g.Epoch)
	}
	return next, lost, nil
}

// shapedFor returns the grant with a character for each address of the block, if the party has nothing of another block.
func (g Grant) shapedFor(b Block) Grant {
	s, n := b.Spec, len(b.Status.Addresses)
	if g.Granted() > 0 || g.First == s.First && len(g.Addresses) == n {
		return g
	}
	return Grant{Pool: s.Pool, Index: s.Index, First: s.First, Addresses: strings.Repeat(string(NotGranted), n), Ended: g.withoutBlock().Ended}
}

// BlockDeleted returns the grant of a block that the API itself does not have. lost is as that of Adopt.
func (g Grant) BlockDeleted() (_ Grant, lost []int) {
	lost = g.Offsets(GrantedChars)
	g = g.withoutBlock()
	g.Addresses = strings.Repeat(string(NotGranted), len(g.Addresses))
	return g, lost
}

// Mark returns the grant after the party has decided to give the addresses back. The caller knows that nobody has a lease of
// them. The mark is on disk before anybody else hears of it.
func (g Grant) Mark(offsets []int) Grant {
	chars := []byte(g.Addresses)
	for _, i := range offsets {
		if chars[i] == GrantedMark || chars[i] == GrantedUnproven {
			chars[i] = Marked
		}
	}
	g.Addresses = string(chars)
	return g
}
