package ipam

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
)

// config is a network configuration as an IPAM plugin gets it: that of the interface
// plugin, whole. The keys and their meaning are host-local's, and those of policy.
type config struct {
	CNIVersion string `json:"cniVersion"`
	Name       string `json:"name"`
	IPAM       *struct {
		rangeConfig
		Ranges     [][]rangeConfig `json:"ranges"`
		Routes     routes          `json:"routes"`
		DataDir    string          `json:"dataDir"`
		ResolvConf string          `json:"resolvConf"`
		policyConfig
	} `json:"ipam"`
	RuntimeConfig struct {
		IPRanges [][]rangeConfig `json:"ipRanges"`
		IPs      []string        `json:"ips"`
	} `json:"runtimeConfig"`
	Args struct {
		CNI struct {
			IPs []string `json:"ips"`
		} `json:"cni"`
	} `json:"args"`
}

// rangeConfig is a range as it is written.
type rangeConfig struct {
	Subnet     string `json:"subnet"`
	RangeStart string `json:"rangeStart"`
	RangeEnd   string `json:"rangeEnd"`
	Gateway    string `json:"gateway"`
}

// routes are passed on as they are.
type routes []*types.Route

// UnmarshalJSON says which of the routes is none.
func (r *routes) UnmarshalJSON(b []byte) error {
	var written []json.RawMessage
	if err := json.Unmarshal(b, &written); err != nil {
		return cniplugin.ConfigError("ipam.routes", string(b), "must be a list")
	}
	*r = nil
	for i, w := range written {
		var route types.Route
		if err := json.Unmarshal(w, &route); err != nil || route.Dst.IP == nil {
			return cniplugin.ConfigError(fmt.Sprintf("ipam.routes[%d]", i), string(w), `must be a route such as {"dst": "10.0.0.0/8", "gw": "10.3.0.1"}`)
		}
		*r = append(*r, &route)
	}
	return nil
}

// policyConfig are the keys that host-local does not have.
type policyConfig struct {
	Exclude           []string        `json:"exclude"`
	Sticky            string          `json:"sticky"`
	Retain            *string         `json:"retain"`
	Quarantine        *string         `json:"quarantine"`
	ConflictDetection json.RawMessage `json:"conflictDetection"`
}

// DefaultQuarantine outlives what the hosts nearby believe of an address without asking
// again: 45 s at most by RFC 4861, section 6.3.2, which Linux follows for ARP as well.
const DefaultQuarantine = time.Minute

// Detection is how an address is probed for on the network before it is used.
type Detection struct {
	// Probes is how many are sent for each address.
	Probes int
	// Wait is for how long answers are waited for after each.
	Wait time.Duration
}

// network is what a configuration says of a network.
type network struct {
	name, dataDir string
	cniVersion    string
	sets          []RangeSet
	routes        []*types.Route
	resolvConf    string
	requested     []requested
	policy        Policy
	detection     *Detection
}

// requested is an address that is asked for, and the key that does.
type requested struct {
	address netip.Addr
	refuse  func(must string) error
}

// decode reads the configuration without a look at its ranges.
func decode(b []byte) (config, error) {
	var c config
	if err := cniplugin.Decode(b, &c); err != nil {
		return c, err
	}
	if c.IPAM == nil {
		err := checkPlace(c.Name, "")
		return c, errors.Join(err, cniplugin.ConfigError("ipam", "missing", "must say which addresses to give"))
	}
	return c, checkPlace(c.Name, c.IPAM.DataDir)
}

// checkPlace reports what says where the leases are, if it can't be so.
func checkPlace(name, dataDir string) error {
	if err := attachment.ValidateName(name); err != nil {
		return cniplugin.ConfigError("name", name, err.Error())
	}
	if dataDir != "" && !filepath.IsAbs(dataDir) {
		return cniplugin.ConfigError("ipam.dataDir", dataDir, "must be an absolute path")
	}
	return nil
}

// parse reads the whole configuration and the address that CNI_ARGS ask for.
func parse(b []byte, env cniplugin.Args) (network, error) {
	c, err := decode(b)
	if err != nil {
		return network{}, err
	}
	n := network{name: c.Name, dataDir: c.IPAM.DataDir, cniVersion: c.CNIVersion, routes: c.IPAM.Routes, resolvConf: c.IPAM.ResolvConf}
	if n.policy, err = c.IPAM.policy(); err != nil {
		return network{}, err
	}
	if n.detection, err = c.IPAM.detection(); err != nil {
		return network{}, err
	}
	if n.sets, err = c.sets(); err != nil {
		return network{}, err
	}
	n.requested, err = c.requested(env)
	return n, err
}

// sets returns the range sets in host-local's order: the runtime's, the flat one,
// those of "ranges". A flat one without a subnet is none, beside others.
func (c config) sets() ([]RangeSet, error) {
	excluded, err := parseExcluded(c.IPAM.Exclude)
	if err != nil {
		return nil, err
	}
	var sets []RangeSet
	var keys []string
	add := func(key string, ranges []rangeConfig) error {
		set, err := parseSet(key, ranges, excluded)
		sets, keys = append(sets, set), append(keys, key)
		return err
	}
	for i, ranges := range c.RuntimeConfig.IPRanges {
		if err := add(fmt.Sprintf("runtimeConfig.ipRanges[%d]", i), ranges); err != nil {
			return nil, err
		}
	}
	if flat := c.IPAM.rangeConfig; flat.Subnet != "" {
		set, err := parseFlat(flat, excluded)
		if err != nil {
			return nil, err
		}
		sets, keys = append(sets, set), append(keys, "ipam.subnet")
	}
	for i, ranges := range c.IPAM.Ranges {
		if err := add(fmt.Sprintf("ipam.ranges[%d]", i), ranges); err != nil {
			return nil, err
		}
	}
	switch {
	case len(sets) > 0:
	case c.IPAM.rangeConfig != rangeConfig{}:
		return nil, cniplugin.ConfigError("ipam.subnet", "missing", "rangeStart, rangeEnd and gateway belong to a subnet")
	default:
		return nil, cniplugin.ConfigError("ipam.ranges", "missing", "must have a range of addresses to give")
	}
	if err := checkOneOfAFamily(c.CNIVersion, sets); err != nil {
		return nil, err
	}
	return sets, checkOverlap(sets, keys)
}

// checkOneOfAFamily reports several addresses of a family in a version of the
// specification whose result has no place for them.
func checkOneOfAFamily(cniVersion string, sets []RangeSet) error {
	families := map[bool]int{}
	for _, s := range sets {
		families[s[0].First.Is4()]++
	}
	if families[true] <= 1 && families[false] <= 1 {
		return nil
	}
	if several, err := version.GreaterThanOrEqualTo(cniVersion, "0.3.0"); err == nil && several {
		return nil
	}
	return cniplugin.ConfigError("cniVersion", cniVersion, "must be 0.3.0 or newer for more than one address of a family")
}

// checkOverlap reports the first two sets that have an address in common.
func checkOverlap(sets []RangeSet, keys []string) error {
	for i, set := range sets {
		for j, other := range sets[:i] {
			for _, r := range set {
				for _, o := range other {
					if r.Overlaps(o.Span) {
						return cniplugin.ConfigError(keys[i], r.String(), fmt.Sprintf("must not overlap %s (%s)", keys[j], o.Span))
					}
				}
			}
		}
	}
	return nil
}

func parseSet(key string, ranges []rangeConfig, excluded []Span) (RangeSet, error) {
	if len(ranges) == 0 {
		return nil, cniplugin.ConfigError(key, "[]", "must have at least one range")
	}
	var set RangeSet
	for i, written := range ranges {
		at := fmt.Sprintf("%s[%d]", key, i)
		r, err := written.parse(at+".", excluded)
		if err != nil {
			return nil, err
		}
		for j, o := range set {
			if r.First.BitLen() != o.First.BitLen() {
				return nil, cniplugin.ConfigError(at+".subnet", written.Subnet, "must be of the family of the others in its set: the set is for one address")
			}
			if r.Overlaps(o.Span) {
				return nil, cniplugin.ConfigError(at, r.String(), fmt.Sprintf("must not overlap %s[%d] (%s)", key, j, o.Span))
			}
		}
		set = append(set, r)
	}
	return set, nil
}

func parseFlat(flat rangeConfig, excluded []Span) (RangeSet, error) {
	r, err := flat.parse("ipam.", excluded)
	if err != nil {
		return nil, err
	}
	return RangeSet{r}, nil
}

// parse returns the range, with host-local's defaults: the subnet's first address is
// the gateway, and all but the broadcast address of IPv4 are in it.
func (c rangeConfig) parse(key string, excluded []Span) (Range, error) {
	subnet, err := parseSubnet(key+"subnet", c.Subnet)
	if err != nil {
		return Range{}, err
	}
	r := Range{Span: Span{subnet.Addr().Next(), lastOf(subnet)}, Subnet: subnet, Gateway: subnet.Addr().Next(), Excluded: excluded}
	for _, bound := range []struct {
		name, value string
		set         *netip.Addr
	}{{"rangeStart", c.RangeStart, &r.First}, {"rangeEnd", c.RangeEnd, &r.Last}} {
		if bound.value == "" {
			continue
		}
		if *bound.set, err = parseAddress(key+bound.name, bound.value); err != nil {
			return Range{}, err
		}
		if !subnet.Contains(*bound.set) {
			return Range{}, cniplugin.ConfigError(key+bound.name, bound.value, "must be in the subnet "+subnet.String())
		}
	}
	if r.Last.Less(r.First) {
		return Range{}, cniplugin.ConfigError(key+"rangeStart", r.First.String(), "must not come after rangeEnd "+r.Last.String())
	}
	if r.Overlaps(mapped) {
		return Range{}, cniplugin.ConfigError(key+"subnet", c.Subnet, "must not have addresses of IPv4 in it: "+mapped.String())
	}
	if c.Gateway == "" {
		return r, nil
	}
	if r.Gateway, err = parseAddress(key+"gateway", c.Gateway); err != nil {
		return Range{}, err
	}
	// A link-local gateway is on every link.
	if !subnet.Contains(r.Gateway) && (r.Gateway.Is4() != subnet.Addr().Is4() || !r.Gateway.IsLinkLocalUnicast()) {
		return Range{}, cniplugin.ConfigError(key+"gateway", c.Gateway, "must be in the subnet "+subnet.String())
	}
	return r, nil
}

// mapped are the addresses of IPv4 as IPv6 writes them (RFC 4291, section 2.5.5.2). No
// host has one, and one that is written is the IPv4 address.
var mapped = spanOf(netip.MustParsePrefix("::ffff:0:0/96"))

func parseSubnet(key, s string) (netip.Prefix, error) {
	if s == "" {
		return netip.Prefix{}, cniplugin.ConfigError(key, "missing", "must be a network such as 10.3.0.0/24")
	}
	subnet, err := netip.ParsePrefix(s)
	switch {
	case err != nil || subnet.Addr().Is4In6():
		return netip.Prefix{}, cniplugin.ConfigError(key, s, "must be a network such as 10.3.0.0/24")
	case subnet.Masked() != subnet:
		return netip.Prefix{}, cniplugin.ConfigError(key, s, "has bits set beyond its length: the network is "+subnet.Masked().String())
	case subnet.Bits() > subnet.Addr().BitLen()-2:
		return netip.Prefix{}, cniplugin.ConfigError(key, s, "is too small to give addresses of")
	}
	return subnet, nil
}

func parseAddress(key, s string) (netip.Addr, error) {
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return a, cniplugin.ConfigError(key, s, "must be an IP address")
	}
	return a.Unmap(), nil
}

// lastOf returns the last address of the subnet, but not the broadcast address.
func lastOf(subnet netip.Prefix) netip.Addr {
	last := spanOf(subnet).Last
	if last.Is4() {
		return last.Prev()
	}
	return last
}

// spanOf returns all addresses of the prefix.
func spanOf(p netip.Prefix) Span {
	b := p.Masked().Addr().AsSlice()
	for i := range b {
		host := max(0, min(8, 8*(i+1)-p.Bits()))
		b[i] |= byte(1<<host - 1)
	}
	last, _ := netip.AddrFromSlice(b)
	return Span{p.Masked().Addr(), last}
}

// parseExcluded reads addresses, prefixes and spans ("10.3.0.5-10.3.0.9").
func parseExcluded(all []string) ([]Span, error) {
	var spans []Span
	for i, s := range all {
		span, ok := parseSpan(s)
		if !ok {
			return nil, cniplugin.ConfigError(fmt.Sprintf("ipam.exclude[%d]", i), s, "must be an address, a network such as 10.3.0.0/28, or a span such as 10.3.0.5-10.3.0.9")
		}
		spans = append(spans, span)
	}
	return spans, nil
}

func parseSpan(s string) (Span, bool) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return spanOf(p), p.Masked() == p && !p.Addr().Is4In6()
	}
	first, last, isSpan := strings.Cut(s, "-")
	if !isSpan {
		last = first
	}
	a, err := parseAddress("", strings.TrimSpace(first))
	if err != nil {
		return Span{}, false
	}
	b, err := parseAddress("", strings.TrimSpace(last))
	return Span{a, b}, err == nil && a.BitLen() == b.BitLen() && !b.Less(a)
}

// requested collects what host-local takes for a request, in its order: CNI_ARGS,
// args.cni.ips, the capability.
func (c config) requested(env cniplugin.Args) ([]requested, error) {
	var all []requested
	add := func(s string, refuse func(must string) error) error {
		a, err := parseRequested(s)
		if err != nil {
			return refuse(err.Error())
		}
		// A runtime may ask for the same one in two ways.
		if !slices.ContainsFunc(all, func(r requested) bool { return r.address == a }) {
			all = append(all, requested{a, refuse})
		}
		return nil
	}
	if env.IP != "" {
		err := add(env.IP, func(must string) error { return cniplugin.EnvError("CNI_ARGS", "IP="+env.IP, must) })
		if err != nil {
			return nil, err
		}
	}
	for _, list := range []struct {
		key string
		ips []string
	}{{"args.cni.ips", c.Args.CNI.IPs}, {"runtimeConfig.ips", c.RuntimeConfig.IPs}} {
		for i, s := range list.ips {
			err := add(s, func(must string) error { return cniplugin.ConfigError(fmt.Sprintf("%s[%d]", list.key, i), s, must) })
			if err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// parseRequested reads an address, which may be written with the length of a prefix
// that says nothing more than the range does.
func parseRequested(s string) (netip.Addr, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Addr().Unmap(), nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return a, fmt.Errorf("must be an IP address")
	}
	return a.Unmap(), nil
}

func (c policyConfig) policy() (Policy, error) {
	p := Policy{Quarantine: DefaultQuarantine}
	switch c.Sticky {
	case "", "none":
	case "pod":
		p.Sticky = true
	default:
		return p, cniplugin.ConfigError("ipam.sticky", c.Sticky, "must be none or pod")
	}
	if c.Retain != nil {
		if !p.Sticky {
			return p, cniplugin.ConfigError("ipam.retain", *c.Retain, `needs "sticky": "pod": nothing else is retained`)
		}
		retain, err := time.ParseDuration(*c.Retain)
		if err != nil || retain <= 0 {
			return p, cniplugin.ConfigError("ipam.retain", *c.Retain, "must be a duration such as 24h, or be left out to retain until released")
		}
		p.Retain = retain
	}
	if c.Quarantine != nil {
		quarantine, err := time.ParseDuration(*c.Quarantine)
		if err != nil || quarantine < 0 {
			return p, cniplugin.ConfigError("ipam.quarantine", *c.Quarantine, "must be a duration such as 60s, or 0s for none")
		}
		p.Quarantine = quarantine
	}
	return p, nil
}

// Defaults of conflict detection: three probes, as RFC 5227 has it (PROBE_NUM), but
// not its seconds between them, in which a pod does not start.
const (
	defaultProbes = 3
	defaultWait   = 200 * time.Millisecond
	maxProbes     = 20
	maxWait       = 10 * time.Second
)

// detection reads true, false or {"probes": 3, "wait": "200ms"}. nil is off.
func (c policyConfig) detection() (*Detection, error) {
	const key = "ipam.conflictDetection"
	d := &Detection{Probes: defaultProbes, Wait: defaultWait}
	switch string(c.ConflictDetection) {
	case "", "null", "false":
		return nil, nil
	case "true":
		return d, nil
	}
	var written struct {
		Probes *int    `json:"probes"`
		Wait   *string `json:"wait"`
	}
	if err := json.Unmarshal(c.ConflictDetection, &written); err != nil {
		return nil, cniplugin.ConfigError(key, string(c.ConflictDetection), `must be true, false or an object such as {"probes": 3, "wait": "200ms"}`)
	}
	if written.Probes != nil {
		if d.Probes = *written.Probes; d.Probes < 1 || d.Probes > maxProbes {
			return nil, cniplugin.ConfigError(key+".probes", d.Probes, fmt.Sprintf("must be between 1 and %d", maxProbes))
		}
	}
	if written.Wait != nil {
		var err error
		if d.Wait, err = time.ParseDuration(*written.Wait); err != nil || d.Wait <= 0 || d.Wait > maxWait {
			return nil, cniplugin.ConfigError(key+".wait", *written.Wait, fmt.Sprintf("must be a duration such as 200ms, at most %s", maxWait))
		}
	}
	return d, nil
}
