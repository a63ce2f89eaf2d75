package ipam

import (
	"net/netip"
	"strings"
)

// Span is all addresses from First to Last, both of one family.
type Span struct {
	First, Last netip.Addr
}

// Contains says whether the address is in the span.
func (s Span) Contains(a netip.Addr) bool {
	return a.BitLen() == s.First.BitLen() && !a.Less(s.First) && !s.Last.Less(a)
}

// Overlaps says whether the spans have an address in common.
func (s Span) Overlaps(o Span) bool {
	return s.First.BitLen() == o.First.BitLen() && !s.Last.Less(o.First) && !o.Last.Less(s.First)
}

// String returns the span as it can be configured.
func (s Span) String() string {
	if s.First == s.Last {
		return s.First.String()
	}
	return s.First.String() + "-" + s.Last.String()
}

// Range is a part of a subnet to give addresses of.
type Range struct {
	Span
	Subnet netip.Prefix
	// Gateway is told to the attachments and never given to one.
	Gateway netip.Addr
	// Excluded are never given. They may lie outside of the range.
	Excluded []Span
}

// Gives says whether the address is one to be given, and if not why.
func (r Range) Gives(a netip.Addr) (ok bool, why string) {
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

// skip returns the first address from a on that is to be given. The zero Addr says
// that there is none.
func (r Range) skip(a netip.Addr) netip.Addr {
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

// RangeSet is what an attachment gets one address of. Its ranges are of one family.
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

// String returns the spans of the set.
func (s RangeSet) String() string {
	var all []string
	for _, r := range s {
		all = append(all, r.String())
	}
	return strings.Join(all, ",")
}

// turns returns the set's spans in the order in which addresses are tried when last
// was given before: what comes after it first, it itself and what is before it at the
// end.
func (s RangeSet) turns(last netip.Addr) []turn {
	at := -1
	for i, r := range s {
		if last.IsValid() && r.Contains(last) {
			at = i
		}
	}
	if at < 0 {
		var all []turn
		for _, r := range s {
			all = append(all, turn{r, r.Span})
		}
		return all
	}
	var turns []turn
	first := s[at]
	if last != first.Last {
		turns = append(turns, turn{first, Span{last.Next(), first.Last}})
	}
	for i := 1; i < len(s); i++ {
		r := s[(at+i)%len(s)]
		turns = append(turns, turn{r, r.Span})
	}
	return append(turns, turn{first, Span{first.First, last}})
}

// turn is a part of a range to look for a free address in.
type turn struct {
	Range
	part Span
}
