package lease

import (
	"net/netip"
	"slices"
	"strings"
)

// plan is what a configuration gives addresses of, spelled out for the model: each address by
// itself.
type plan struct {
	sets []RangeSet
	// within are the addresses of each set in its order, gives those that an ADD gives.
	within, gives [][]netip.Addr
	gateways      []netip.Addr
}

// everyAddress is in a plan, in order.
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

// plans are small, so that everything meets. One is the network's first; the others are what
// it is changed to.
var plans = []*plan{
	{ // Two ranges: the gateway and an excluded address are between.
		sets:   []RangeSet{{{Span: low, Gateway: addr("10.0.0.4"), Excluded: five, Subnet: lowNet}, high}},
		within: [][]netip.Addr{addrs("10.0.0.2 10.0.0.3 10.0.0.4 10.0.0.5 10.0.0.6 10.0.1.1 10.0.1.2")},
		gives:  [][]netip.Addr{addrs("10.0.0.2 10.0.0.3 10.0.0.6 10.0.1.1 10.0.1.2")}, gateways: addrs("10.0.0.4 10.0.1.9"),
	},
	{ // The gateway has moved onto an address that was given before.
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
	{ // Other ranges altogether.
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

// setOf is the number of the set that has the address, -1 for none.
func (p *plan) setOf(a netip.Addr) int {
	return slices.IndexFunc(p.within, func(set []netip.Addr) bool { return slices.Contains(set, a) })
}

// givesIt says whether an ADD gives the address.
func (p *plan) givesIt(a netip.Addr) bool {
	i := p.setOf(a)
	return i >= 0 && slices.Contains(p.gives[i], a)
}

// sameSet says whether one set of those that are known has both.
func sameSet(known []*plan, a, b netip.Addr) bool {
	return slices.ContainsFunc(known, func(p *plan) bool { return p.setOf(a) >= 0 && p.setOf(a) == p.setOf(b) })
}

// remember puts the plan first. Sets of the same addresses are forgotten.
func (s *modelState) remember(p *plan) {
	known := []*plan{p}
	for _, o := range s.known {
		if left := o.without(p); slices.ContainsFunc(left.sets, func(s RangeSet) bool { return len(s) > 0 }) {
			known = append(known, left)
		}
	}
	s.known = known
}

// without is the plan whose sets are empty that have an address of the other one.
func (p *plan) without(o *plan) *plan {
	left := &plan{sets: slices.Clone(p.sets), within: slices.Clone(p.within), gives: slices.Clone(p.gives), gateways: p.gateways}
	for i, set := range p.within {
		if slices.ContainsFunc(set, func(a netip.Addr) bool { return o.setOf(a) >= 0 }) {
			left.sets[i], left.within[i], left.gives[i] = nil, nil, nil
		}
	}
	return left
}

// isGiven says whether an ADD gives the address, as far as is known.
func (s *modelState) isGiven(a netip.Addr) bool {
	for _, p := range s.known {
		if p.setOf(a) >= 0 {
			return p.givesIt(a)
		}
	}
	return len(s.known) == 0
}
