package pool

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// spans reads what the pool gives, and what it excludes. key is empty if all can be read.
func (l *Layout) spans(s Spec) (key, value, must string) {
	for i, text := range s.Ranges {
		key := fmt.Sprintf("ranges[%d]", i)
		r, err := ParseSpan(text)
		switch {
		case errors.Is(err, errOrder):
			return key, text, "must have the first address before the last one"
		case err != nil || !l.Subnet.Contains(r.First) || !l.Subnet.Contains(r.Last):
			return key, text, "must be addresses of the subnet, such as " + usable(l.Subnet).String()
		}
		for _, o := range l.Ranges {
			if r.Overlaps(o) {
				return key, text, "must not overlap " + o.String()
			}
		}
		l.Ranges = append(l.Ranges, r)
	}
	if len(l.Ranges) == 0 {
		l.Ranges = []Span{usable(l.Subnet)}
	}
	whole := Span{l.Subnet.Addr(), lastOf(l.Subnet)}
	for i, text := range s.Exclude {
		key := fmt.Sprintf("exclude[%d]", i)
		e, err := ParseSpan(text)
		switch {
		case errors.Is(err, errOrder):
			return key, text, "must have the first address before the last one"
		case err != nil:
			return key, text, "must be an address, a network, or two addresses such as 10.3.0.10-10.3.0.19"
		case !e.Overlaps(whole):
			return key, text, "excludes nothing: it must have addresses of the subnet " + s.Subnet
		}
		l.Exclude = append(l.Exclude, e)
	}
	for _, a := range []netip.Addr{whole.First, whole.Last} {
		if l.OfNoHost(a) && !l.Excluded(a) && slices.ContainsFunc(l.Ranges, func(r Span) bool { return r.Contains(a) }) {
			l.Exclude = append(l.Exclude, Span{a, a})
		}
	}
	return "", "", ""
}

// OfNoHost says whether the address is the network's own or the broadcast address: no host can use it, and the pool excludes it.
func (l Layout) OfNoHost(a netip.Addr) bool {
	return l.Subnet.Contains(a) && !usable(l.Subnet).Contains(a)
}
