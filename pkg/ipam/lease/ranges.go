package lease

import (
	"math/big"
	"net/netip"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/pool"
)

// Span is all addresses from First to Last, both of one family.
type Span = pool.Span

// Range is a part of a subnet. Addresses are given from it.
type Range struct {
	Span
	Subnet netip.Prefix `json:"subnet"`
	// Gateway is passed on to the attachments, and never given to one of them.
	Gateway netip.Addr `json:"gateway,omitzero"`
	// Excluded are never given. They may lie outside of the range.
	Excluded []Span `json:"excluded,omitzero"`
}

// Gives says whether an ADD can give the address, and if not why.
func (r Range) Gives(a netip.Addr) (ok bool, reason string) {
	if a == r.Gateway {
		return false, "it is the gateway"
	}
	for _, s := range r.Excluded {
		if s.Contains(a) {
			return false, "it is in exclude " + s.String()
		}
	}
	return true, ""
}

// firstGiven returns the first address from a on that can be given, the zero Addr for none.
func (r Range) firstGiven(a netip.Addr) netip.Addr {
	for a.IsValid() && r.Contains(a) {
		next := a
		if a == r.Gateway {
			next = a.Next()
		}
		for _, s := range r.Excluded {
			if s.Contains(next) {
				next = s.Last.Next()
			}
		}
		if next == a {
			return a
		}
		a = next
	}
	return netip.Addr{}
}

// RangeSet is a set of ranges of one family. An attachment gets one address of it.
type RangeSet []Range

// Find returns the range that has the address.
func (s RangeSet) Find(a netip.Addr) (Range, bool) {
	for _, r := range s {
		if r.Contains(a) {
			return r, true
		}
	}
	return Range{}, false
}

// Has says whether the set has the address.
func (s RangeSet) Has(a netip.Addr) bool {
	_, found := s.Find(a)
	return found
}

// SetOf returns the number of the set that has the address, -1 for none.
func SetOf(sets []RangeSet, a netip.Addr) int {
	return slices.IndexFunc(sets, func(s RangeSet) bool { return s.Has(a) })
}

// Among returns those of the addresses that the set has.
func (s RangeSet) Among(addresses []netip.Addr) []netip.Addr {
	return slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool { return !s.Has(a) })
}

// Gives says whether an ADD can give the address as one of the set, and if not why.
func (s RangeSet) Gives(a netip.Addr) (ok bool, reason string) {
	r, found := s.Find(a)
	if !found {
		return false, "it is in none of the ranges"
	}
	return r.Gives(a)
}

// GivesAny says whether the set has any address that can be given.
func (s RangeSet) GivesAny() bool {
	return slices.ContainsFunc(s, func(r Range) bool { return r.firstGiven(r.First).IsValid() })
}

// Overlaps says whether the sets have an address in common.
func (s RangeSet) Overlaps(o RangeSet) bool {
	return slices.ContainsFunc(s, func(r Range) bool {
		return slices.ContainsFunc(o, func(rng Range) bool { return r.Overlaps(rng.Span) })
	})
}

// size returns how many addresses of the set can be given: a subnet of IPv6 has more than an integer can
// count.
func (s RangeSet) size() *big.Int {
	sum := new(big.Int)
	for _, r := range s {
		sum.Add(sum, r.Size())
		for _, span := range r.excludedSpans() {
			sum.Sub(sum, span.Size())
		}
	}
	return sum
}

// excludedSpans returns the parts of the range that are never given, in order and without overlaps.
func (r Range) excludedSpans() []Span {
	return r.Intersect(append([]Span{{First: r.Gateway, Last: r.Gateway}}, r.Excluded...))
}

// String returns the spans of the set.
func (s RangeSet) String() string {
	var spans []string
	for _, r := range s {
		spans = append(spans, r.String())
	}
	return strings.Join(spans, ",")
}

// turns returns the spans of the set in the order in which addresses are tried after last was given: first
// what follows last, at the end what comes before it, and last itself.
func (s RangeSet) turns(last netip.Addr) []turn {
	var before, after []turn
	for _, r := range s {
		if !last.IsValid() || !r.Contains(last) {
			after = append(after, turn{r, r.Span})
			continue
		}
		before = slices.Concat(after, []turn{{r, Span{First: r.First, Last: last}}})
		if after = nil; last != r.Last {
			after = []turn{{r, Span{First: last.Next(), Last: r.Last}}}
		}
	}
	return append(after, before...)
}

// turn is a part of a range in which to look for a free address.
type turn struct {
	Range
	part Span
}
