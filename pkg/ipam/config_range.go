package ipam

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/netstate"
)

// rangeConfig is a range as it is written.
type rangeConfig struct {
	Subnet     string `json:"subnet"`
	RangeStart string `json:"rangeStart,omitempty"`
	RangeEnd   string `json:"rangeEnd,omitempty"`
	Gateway    string `json:"gateway,omitempty"`
}

// parseSet returns a set with the ranges that are right. It adds everything that is wrong to errs.
func parseSet(key string, ranges []rangeConfig, excluded []lease.Span, errs *cniplugin.Problems) (set lease.RangeSet) {
	if len(ranges) == 0 {
		errs.Refuse(key, cniplugin.RawValue("[]"), `must have at least one range, such as {"subnet": "10.3.0.0/24"}`)
	}
	for i, written := range ranges {
		path := fmt.Sprintf("%s[%d]", key, i)
		r, err := written.parse(path+".", excluded)
		if err != nil {
			errs.Add(err)
			continue
		}
		for j, o := range set {
			if r.First.BitLen() != o.First.BitLen() {
				errs.Refuse(path+".subnet", written.Subnet, "must be of the same family as the others in its set: a set gives one address")
				break
			}
			if r.Overlaps(o.Span) {
				errs.Refuse(path, r.String(), overlaps(r, fmt.Sprintf("%s[%d]", key, j), o))
				break
			}
		}
		set = append(set, r)
	}
	return set
}

// overlaps is the remedy for two ranges that have an address in common.
func overlaps(r lease.Range, key string, o lease.Range) string {
	if r.Span == o.Span {
		return "must not be the same as " + key
	}
	return fmt.Sprintf("must not overlap %s (%s)", key, o.Span)
}

// parse returns the range, with host-local's defaults. The subnet's first address is
// the gateway. All addresses are in the range, but the broadcast address of IPv4.
func (c rangeConfig) parse(key string, excluded []lease.Span) (r lease.Range, err error) {
	subnet, err := parseSubnet(key+"subnet", c.Subnet)
	if err != nil {
		return r, err
	}
	r = lease.Range{Span: lease.Span{First: subnet.Addr().Next(), Last: lastOf(subnet)}, Subnet: subnet, Gateway: subnet.Addr().Next(), Excluded: excluded}
	for _, bound := range []struct {
		name, value string
		set         *netip.Addr
	}{{"rangeStart", c.RangeStart, &r.First}, {"rangeEnd", c.RangeEnd, &r.Last}} {
		if bound.value == "" {
			continue
		}
		if *bound.set, err = parseAddress(key+bound.name, bound.value); err != nil {
			return r, err
		}
		if !subnet.Contains(*bound.set) {
			return r, cniplugin.ConfigError(key+bound.name, bound.value, "must be in the subnet "+subnet.String())
		}
	}
	if r.Last.Less(r.First) {
		return r, cniplugin.ConfigError(key+"rangeStart", r.First.String(), "must not come after rangeEnd "+r.Last.String())
	}
	if r.Overlaps(mapped) {
		return r, cniplugin.ConfigError(key+"subnet", c.Subnet, "must not have addresses of IPv4 in it: "+mapped.String())
	}
	if c.Gateway == "" {
		return r, nil
	}
	if r.Gateway, err = parseAddress(key+"gateway", c.Gateway); err != nil {
		return r, err
	}
	// A link-local gateway can be reached on every link.
	if !subnet.Contains(r.Gateway) && (r.Gateway.Is4() != subnet.Addr().Is4() || !r.Gateway.IsLinkLocalUnicast()) {
		return r, cniplugin.ConfigError(key+"gateway", c.Gateway, "must be in the subnet "+subnet.String())
	}
	return r, nil
}

// mapped are the IPv4 addresses in the form of IPv6 (RFC 4291, section 2.5.5.2). No host has such an
// address: it stands for the IPv4 address.
var mapped = spanOf(netip.MustParsePrefix("::ffff:0:0/96"))

func parseSubnet(key, s string) (netip.Prefix, error) {
	if s == "" {
		return netip.Prefix{}, cniplugin.ConfigError(key, cniplugin.Missing, "must be a network such as 10.3.0.0/24")
	}
	subnet, err := netip.ParsePrefix(s)
	switch {
	case err != nil || subnet.Addr().Is4In6():
		return netip.Prefix{}, cniplugin.ConfigError(key, s, "must be a network such as 10.3.0.0/24")
	case subnet.Masked() != subnet:
		return netip.Prefix{}, cniplugin.ConfigError(key, s, "has bits set beyond its length: the network is "+subnet.Masked().String())
	case subnet.Bits() > subnet.Addr().BitLen()-2:
		return netip.Prefix{}, cniplugin.ConfigError(key, s, "is too small: it has no address to give")
	}
	return subnet, nil
}

func parseAddress(key, s string) (netip.Addr, error) {
	a, ok := parseAddr(s)
	if !ok {
		return a, cniplugin.ConfigError(key, s, "must be an IP address")
	}
	return a, nil
}

// parseAddr reads an address that a pod can have.
func parseAddr(s string) (_ netip.Addr, ok bool) {
	a, err := netip.ParseAddr(s)
	return a.Unmap(), err == nil && a.Zone() == ""
}

// lastOf returns the last address of the subnet that a host can have.
func lastOf(subnet netip.Prefix) netip.Addr {
	last := spanOf(subnet).Last
	if last.Is4() {
		return last.Prev()
	}
	return last
}

// spanOf returns all addresses of the prefix.
func spanOf(p netip.Prefix) lease.Span {
	return lease.Span{First: p.Masked().Addr(), Last: netstate.Last(p)}
}

// parseExcluded reads addresses, prefixes and spans ("10.3.0.5-10.3.0.9").
func parseExcluded(texts []string, errs *cniplugin.Problems) (spans []lease.Span) {
	for i, s := range texts {
		span, ok := parseSpan(s)
		if !ok {
			errs.Refuse(fmt.Sprintf("ipam.exclude[%d]", i), s, "must be an address, a network such as 10.3.0.0/28, or a span such as 10.3.0.5-10.3.0.9")
			continue
		}
		spans = append(spans, span)
	}
	// In order: the search for the next address passes each of them once.
	slices.SortStableFunc(spans, func(a, b lease.Span) int { return a.First.Compare(b.First) })
	return spans
}

func parseSpan(s string) (lease.Span, bool) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return spanOf(p), p.Masked() == p && !p.Addr().Is4In6()
	}
	first, last, isSpan := strings.Cut(s, "-")
	if !isSpan {
		last = first
	}
	a, okFirst := parseAddr(strings.TrimSpace(first))
	b, okLast := parseAddr(strings.TrimSpace(last))
	return lease.Span{First: a, Last: b}, okFirst && okLast && a.BitLen() == b.BitLen() && !b.Less(a)
}

// routes go into the result as they are.
type routes []*types.Route

// UnmarshalJSON reads a list of routes. Its error names the one that is wrong.
func (r *routes) UnmarshalJSON(b []byte) error {
	var written []json.RawMessage
	if err := json.Unmarshal(b, &written); err != nil {
		return cniplugin.ConfigError("ipam.routes", cniplugin.RawValue(b), "must be a list of routes: put it in [ ]")
	}
	*r = nil
	for i, w := range written {
		path := fmt.Sprintf("ipam.routes[%d]", i)
		var route types.Route
		if err := json.Unmarshal(w, &route); err != nil || route.Dst.IP == nil {
			return cniplugin.ConfigError(path, cniplugin.RawValue(w), `must be a route such as {"dst": "10.0.0.0/8", "gw": "10.3.0.1"}`)
		}
		if err := cniplugin.CheckRoute(path, &route); err != nil {
			return err
		}
		*r = append(*r, &route)
	}
	return nil
}
