package pool

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
)

// Reserved are networks whose addresses no host of a VLAN can have: these of this host, of no host, of one link only, and of groups of
// hosts (RFC 6890, RFC 4291).
var Reserved = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/4"), netip.MustParsePrefix("255.255.255.255/32"),
	netip.MustParsePrefix("::/8"), netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8"),
}

// parseSubnet reads the subnet. The error says what it must be.
func parseSubnet(s Spec) (netip.Prefix, error) {
	subnet, err := netip.ParsePrefix(s.Subnet)
	if err != nil || subnet.Masked() != subnet || subnet.Addr().Is4In6() {
		return subnet, errors.New("must be a network such as 10.3.0.0/24")
	}
	if i := slices.IndexFunc(Reserved, subnet.Overlaps); i >= 0 {
		return subnet, fmt.Errorf("must have no address of the reserved network %s: pods need others, such as 10.3.0.0/24", Reserved[i])
	}
	return subnet, nil
}

// parseSpans reads what the pool gives, and what it excludes.
func (l *Layout) parseSpans(s Spec) error {
	for i, text := range s.Ranges {
		key := fmt.Sprintf("ranges[%d]", i)
		r, err := ParseSpan(text)
		if err != nil || !l.Subnet.Contains(r.First) || !l.Subnet.Contains(r.Last) {
			return invalid(key, text, "must be addresses of the subnet, such as "+hostSpan(l.Subnet).String())
		}
		if o := slices.IndexFunc(l.Ranges, r.Overlaps); o >= 0 {
			return invalid(key, text, "must not overlap "+l.Ranges[o].String())
		}
		l.Ranges = append(l.Ranges, r)
	}
	if len(l.Ranges) == 0 {
		l.Ranges = []Span{hostSpan(l.Subnet)}
	}
	whole := Span{l.Subnet.Addr(), lastAddr(l.Subnet)}
	for i, text := range s.Exclude {
		e, err := ParseSpan(text)
		if err != nil || !e.Overlaps(whole) {
			return invalid(fmt.Sprintf("exclude[%d]", i), text, "must have addresses of the subnet, such as "+hostSpan(l.Subnet).String())
		}
		l.Exclude = append(l.Exclude, e)
	}
	for _, a := range []netip.Addr{whole.First, whole.Last} {
		if !hostSpan(l.Subnet).Contains(a) && !l.Excluded(a) && slices.ContainsFunc(l.Ranges, func(r Span) bool { return r.Contains(a) }) {
			l.Exclude = append(l.Exclude, Span{a, a})
		}
	}
	return nil
}
