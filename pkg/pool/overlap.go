package pool

import (
	"cmp"
	"fmt"
)

// Stopped says why nobody may take anything of the pool because of another one, empty if they may. Of two pools that share
// addresses, the younger one stops. all are all pools.
func (p Pool) Stopped(all []Pool) string {
	for _, o := range p.others(all) {
		if a, b, shared := p.shares(o); shared && o.older(p) {
			return fmt.Sprintf("%s of it is in AddressPool %s (%s), too: make a pool of other addresses", a, o.Metadata.Name, b)
		}
	}
	return ""
}

// Shared returns the ranges of the other pools that overlap this one. Nobody takes a block of it that has any of these addresses:
// a range can have been added to an older pool.
func (p Pool) Shared(all []Pool) (spans []Span) {
	for _, o := range p.others(all) {
		if _, b, shared := p.shares(o); shared {
			spans = append(spans, b)
		}
	}
	return spans
}

func (p Pool) others(all []Pool) (others []Pool) {
	for _, o := range all {
		if o.Metadata.UID != p.Metadata.UID {
			others = append(others, o)
		}
	}
	return others
}

// shares returns the first ranges of both pools that overlap. A pool with a wrong spec gives nothing.
func (p Pool) shares(o Pool) (a, b Span, shared bool) {
	mine, err := p.Layout()
	if err != nil {
		return a, b, false
	}
	other, err := o.Layout()
	if err != nil {
		return a, b, false
	}
	for _, a := range mine.Ranges {
		for _, b := range other.Ranges {
			if a.Overlaps(b) {
				return a, b, true
			}
		}
	}
	return a, b, false
}

// older says whether the pool was made before o. Of two of one second, it is the one whose name comes first.
func (p Pool) older(o Pool) bool {
	return cmp.Or(cmp.Compare(p.Metadata.CreationTimestamp, o.Metadata.CreationTimestamp), cmp.Compare(p.Metadata.Name, o.Metadata.Name)) < 0
}
