package pool

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// OverlapReason says why nobody may take anything of the pool because of one of the pools, empty if they may. Of two pools that share
// addresses, the younger one stops.
func (p Pool) OverlapReason(pools []Pool) string {
	for _, o := range pools {
		a, b, shared := Span{}, Span{}, false
		if o.older(p) && o.Metadata.UID != p.Metadata.UID {
			a, b, shared = p.overlap(o)
		}
		if !shared {
			continue
		}
		if _, err := o.Layout(); err != nil {
			return fmt.Sprintf("%s of it is in AddressPool %s, which counts as all of %s until its spec is correct: correct that one, or make a pool of other addresses", a, o.Metadata.Name, o.Spec.Subnet)
		}
		return fmt.Sprintf("%s of it is in AddressPool %s (%s), too: make a pool of other addresses", a, o.Metadata.Name, b)
	}
	return ""
}

// Overlapping returns those of the other pools that share addresses with this one. Even in an older pool, nobody takes what these have given:
// somebody can have added a range to it.
func (p Pool) Overlapping(pools []Pool) []Pool { return NewExtents(pools).Overlapping(p) }

// Extents are the addresses of pools, in order.
type Extents struct {
	pools []Pool
	spans []extent
}

// extent is a part of a pool.
type extent struct {
	Span
	// pool is its place among the pools, and end the last address of this extent and of all before it.
	pool int
	end  netip.Addr
}

// NewExtents sorts the addresses of the pools.
func NewExtents(pools []Pool) Extents {
	e := Extents{pools: pools}
	for i, p := range pools {
		for _, s := range p.Extent() {
			e.spans = append(e.spans, extent{Span: s, pool: i})
		}
	}
	slices.SortFunc(e.spans, func(a, b extent) int { return a.First.Compare(b.First) })
	var end netip.Addr
	for i, s := range e.spans {
		if end.Less(s.Last) {
			end = s.Last
		}
		e.spans[i].end = end
	}
	return e
}

// Overlapping is [Pool.Overlapping] for these pools, in their order.
func (e Extents) Overlapping(p Pool) (pools []Pool) {
	var found []int
	for _, s := range p.Extent() {
		i, _ := slices.BinarySearchFunc(e.spans, s.Last, func(o extent, last netip.Addr) int {
			if last.Less(o.First) {
				return 1
			}
			return -1
		})
		for i--; i >= 0 && !e.spans[i].end.Less(s.First); i-- {
			if o := e.spans[i]; o.Overlaps(s) && e.pools[o.pool].Metadata.UID != p.Metadata.UID && e.pools[o.pool].Spec.Segment == p.Spec.Segment {
				found = append(found, o.pool)
			}
		}
	}
	slices.Sort(found)
	for _, i := range slices.Compact(found) {
		pools = append(pools, e.pools[i])
	}
	return pools
}

// Extent returns all addresses that blocks of the pool can have. A wrong spec can have been right earlier: blocks that are older than the mistake
// can be anywhere in the subnet. The subnet itself never changes, so a pool with a wrong subnet has never had a block.
func (p Pool) Extent() []Span {
	subnet, err := parseSubnet(p.Spec)
	if err != nil {
		return nil
	}
	if l, err := p.Layout(); err == nil {
		return l.Ranges
	}
	return []Span{{subnet.Addr(), lastAddr(subnet)}}
}

// overlap returns the first parts of both pools that overlap.
func (p Pool) overlap(o Pool) (a, b Span, shared bool) {
	if p.Spec.Segment != o.Spec.Segment {
		return a, b, false
	}
	otherSpans := o.Extent()
	for _, a := range p.Extent() {
		for _, b := range otherSpans {
			if a.Overlaps(b) {
				return a, b, true
			}
		}
	}
	return a, b, false
}

// older says whether the pool was made before o. Of two that were made in one second, the older one is the one whose name comes first.
func (p Pool) older(o Pool) bool {
	return cmp.Or(cmp.Compare(p.Metadata.CreationTimestamp, o.Metadata.CreationTimestamp), cmp.Compare(p.Metadata.Name, o.Metadata.Name)) < 0
}
