package pool

import (
	"cmp"
	"fmt"
	"slices"
)

// OverlapReason says why nobody may take anything of the pool because of another one, empty if they may. Of two pools that share
// addresses, the younger one stops. pools are all pools.
func (p Pool) OverlapReason(pools []Pool) string {
	for _, o := range p.Overlapping(pools) {
		if !o.older(p) {
			continue
		}
		a, b, _ := p.overlap(o)
		if _, err := o.Layout(); err != nil {
			return fmt.Sprintf("%s of it is in AddressPool %s, which counts as all of %s until its spec is correct: correct that one, or make a pool of other addresses", a, o.Metadata.Name, o.Spec.Subnet)
		}
		return fmt.Sprintf("%s of it is in AddressPool %s (%s), too: make a pool of other addresses", a, o.Metadata.Name, b)
	}
	return ""
}

// Overlapping returns those of the other pools that share addresses with this one. Even in an older pool, nobody takes what these have given:
// somebody can have added a range to it.
func (p Pool) Overlapping(pools []Pool) []Pool {
	return slices.DeleteFunc(slices.Clone(pools), func(o Pool) bool {
		_, _, shared := p.overlap(o)
		return !shared || o.Metadata.UID == p.Metadata.UID
	})
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
