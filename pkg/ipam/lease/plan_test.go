package lease

import (
	"net/netip"
	"slices"
	"strings"
)

// plan has the addresses that a configuration gives. For the model, it lists each address.
type plan struct {
	sets []RangeSet
	// within are the addresses of each set in order. gives are those that an ADD gives.
	within, gives [][]netip.Addr
	gateways      []netip.Addr
}

// everyAddress has all addresses of the plans in order.
var (
	texts        = strings.Fields("10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5 10.0.0.6 10.0.1.1 10.0.1.2 10.0.9.1 10.0.9.2")
	everyAddress = addrs(strings.Join(texts, " "))
)

var (
	low       = span("10.0.0.2", "10.0.0.6")
	lowNet    = netip.MustParsePrefix("10.0.0.0/24")
	high      = Range{Span: span("10.0.1.1", "10.0.1.2"), Subnet: netip.MustParsePrefix("10.0.1.0/24"), Gateway: addr("10.0.1.9")}
	elsewhere = Range{Span: span("10.0.9.1", "10.0.9.2"), Subnet: netip.MustParsePrefix("10.0.9.0/24"), Gateway: addr("10.0.9.9")}
	five      = []Span{span("10.0.0.5", "10.0.0.5")}
)

// plans are small, so that all cases occur together. The network begins with the first one, and then changes to the
// others.
var plans = []*plan{
	{ // Two ranges. Between them are the gateway and an excluded address.
		sets:   []RangeSet{{{Span: low, Gateway: addr("10.0.0.4"), Excluded: five, Subnet: lowNet}, high}},
		within: [][]netip.Addr{addrs("10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5 10.0.0.6 10.0.1.1 10.0.1.2")},
		gives:  [][]netip.Addr{addrs("10.0.0.2 10.0.0.3 10.0.0.6 10.0.1.1 10.0.1.2")}, gateways: addrs("10.0.0.4 10.0.1.9"),
	},
	{ // The gateway has moved onto an address that could be given before.
		sets:   []RangeSet{{{Span: low, Gateway: addr("10.0.0.3"), Excluded: five, Subnet: lowNet}, high}},
		within: [][]netip.Addr{addrs("10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5 10.0.0.6 10.0.1.1 10.0.1.2")},
		gives:  [][]netip.Addr{addrs("10.0.0.2 10.0.0.4 10.0.0.6 10.0.1.1 10.0.1.2")}, gateways: addrs("10.0.0.3 10.0.1.9"),
	},
	{ // Other addresses are excluded.
		sets:   []RangeSet{{high, {Span: low, Gateway: addr("10.0.0.4"), Excluded: []Span{span("10.0.0.2", "10.0.0.3")}, Subnet: lowNet}}},
		within: [][]netip.Addr{addrs("10.0.1.1 10.0.1.2 10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5 10.0.0.6")},
		gives:  [][]netip.Addr{addrs("10.0.1.1 10.0.1.2 10.0.0.5 10.0.0.6")}, gateways: addrs("10.0.0.4 10.0.1.9"),
	},
	{ // The ranges have become two sets.
		sets:   []RangeSet{{{Span: low, Gateway: addr("10.0.0.4"), Excluded: five, Subnet: lowNet}}, {high}},
		within: [][]netip.Addr{addrs("10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5 10.0.0.6"), addrs("10.0.1.1 10.0.1.2")},
		gives:  [][]netip.Addr{addrs("10.0.0.2 10.0.0.3 10.0.0.6"), addrs("10.0.1.1 10.0.1.2")}, gateways: addrs("10.0.0.4 10.0.1.9"),
	},
	{ // Completely different ranges.
		sets: []RangeSet{{elsewhere}}, within: [][]netip.Addr{addrs("10.0.9.1 10.0.9.2")},
		gives: [][]netip.Addr{addrs("10.0.9.1 10.0.9.2")}, gateways: addrs("10.0.9.9"),
	},
}

func addrs(list string) []netip.Addr {
	var all []netip.Addr
	for _, s := range strings.Fields(list) {
		all = append(all, addr(s))
	}
	return all
}

// setOf returns the number of the set with the address, or -1 for none.
func (p *plan) setOf(a netip.Addr) int {
	return slices.IndexFunc(p.within, func(set []netip.Addr) bool { return slices.Contains(set, a) })
}

// givesIt reports whether an ADD gives the address.
func (p *plan) givesIt(a netip.Addr) bool {
	i := p.setOf(a)
	return i >= 0 && slices.Contains(p.gives[i], a)
}

// sameSet reports whether one of the known sets has both addresses.
func sameSet(known []*plan, a, b netip.Addr) bool {
	return slices.ContainsFunc(known, func(p *plan) bool { return p.setOf(a) >= 0 && p.setOf(a) == p.setOf(b) })
}

// remember notes the plan, which takes the place of what the last ADD asked for.
func (s *modelState) remember(p *plan) { s.known = []*plan{p} }

// isGiven reports whether an ADD gives the address, as far as the store knows.
func (s *modelState) isGiven(a netip.Addr) bool {
	for _, p := range s.known {
		if p.setOf(a) >= 0 {
			return p.givesIt(a)
		}
	}
	return len(s.known) == 0
}
