package ipam

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// section is what a configuration has for relink-ipam in "ipam". The keys and their meaning are
// host-local's, and those of policy.
type section struct {
	rangeConfig
	Ranges     [][]rangeConfig `json:"ranges"`
	Routes     routes          `json:"routes"`
	DataDir    string          `json:"dataDir"`
	ResolvConf string          `json:"resolvConf"`
	policyConfig
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

// network is what a configuration says of a network.
type network struct {
	sets       []lease.RangeSet
	routes     []*types.Route
	resolvConf string
	requested  []requested
	policy     lease.Policy
}

// requested is an address that is asked for, and the key that does.
type requested struct {
	address netip.Addr
	refuse  func(must string) error
}

// readSection reads the section without a look at its ranges.
func readSection(n cniplugin.Network) (section, error) {
	var s section
	if n.IPAM.JSON == nil {
		err := checkPlace(n.Name, "")
		return s, errors.Join(err, cniplugin.ConfigError("ipam", "missing", "must say which addresses to give"))
	}
	if err := cniplugin.DecodePart("ipam", n.IPAM.JSON, &s); err != nil {
		return s, err
	}
	return s, checkPlace(n.Name, s.DataDir)
}

// checkPlace reports what says where the leases are, if it can't be so.
func checkPlace(name, dataDir string) error {
	if err := attachment.ValidateName(name); err != nil {
		return cniplugin.ConfigError("name", name, err.Error())
	}
	if len(name) > lease.MaxNetwork {
		return cniplugin.ConfigError("name", name, fmt.Sprintf("has %d characters: a file's name has room for %d", len(name), lease.MaxNetwork))
	}
	if dataDir != "" && !filepath.IsAbs(dataDir) {
		return cniplugin.ConfigError("ipam.dataDir", dataDir, "must be an absolute path")
	}
	return nil
}

// parse reads the rest of the section, what the runtime asks for, and the addresses that
// CNI_ARGS ask for.
func (s section) parse(n cniplugin.Network, env cniplugin.Args) (network, error) {
	parsed := network{routes: s.Routes, resolvConf: s.ResolvConf}
	if s.ResolvConf != "" && !filepath.IsAbs(s.ResolvConf) {
		return network{}, cniplugin.ConfigError("ipam.resolvConf", s.ResolvConf, "must be an absolute path")
	}
	a, err := readAsked(n)
	if err != nil {
		return network{}, err
	}
	if parsed.policy, err = s.policy(); err != nil {
		return network{}, err
	}
	if _, err = s.detection(); err != nil {
		return network{}, err
	}
	if parsed.sets, err = s.sets(n, a); err != nil {
		return network{}, err
	}
	parsed.requested, err = a.requests(env)
	return parsed, err
}

// sets returns the range sets in host-local's order: the runtime's, the flat one,
// those of "ranges". A flat one without a subnet is none, beside others.
func (s section) sets(n cniplugin.Network, a asked) ([]lease.RangeSet, error) {
	excluded, err := parseExcluded(s.Exclude)
	if err != nil {
		return nil, err
	}
	var sets []lease.RangeSet
	var keys []string
	add := func(key string, ranges []rangeConfig) error {
		set, err := parseSet(key, ranges, excluded)
		sets, keys = append(sets, set), append(keys, key)
		return err
	}
	for i, ranges := range a.ranges {
		if err := add(fmt.Sprintf("runtimeConfig.ipRanges[%d]", i), ranges); err != nil {
			return nil, err
		}
	}
	if s.Subnet != "" {
		set, err := parseFlat(s.rangeConfig, excluded)
		if err != nil {
			return nil, err
		}
		sets, keys = append(sets, set), append(keys, "ipam.subnet")
	}
	for i, ranges := range s.Ranges {
		if err := add(fmt.Sprintf("ipam.ranges[%d]", i), ranges); err != nil {
			return nil, err
		}
	}
	switch {
	case len(sets) > 0:
	case s.rangeConfig != rangeConfig{}:
		return nil, cniplugin.ConfigError("ipam.subnet", "missing", "rangeStart, rangeEnd and gateway belong to a subnet")
	default:
		return nil, cniplugin.ConfigError("ipam.ranges", "missing", "must have a range of addresses to give")
	}
	for i, set := range sets {
		if !set.GivesAny() {
			return nil, cniplugin.ConfigError(keys[i], set.String(), "must have an address that is neither excluded nor the gateway")
		}
	}
	if err := checkOneOfAFamily(n.CNIVersion, sets); err != nil {
		return nil, err
	}
	return sets, checkOverlap(sets, keys)
}

// decodeIfAny reads the part of the configuration at the key, if it has one.
func decodeIfAny(key string, b json.RawMessage, part any) error {
	if b == nil {
		return nil
	}
	return cniplugin.DecodePart(key, b, part)
}

// checkOneOfAFamily reports several addresses of a family in a version of the
// specification whose result has no place for them.
func checkOneOfAFamily(cniVersion string, sets []lease.RangeSet) error {
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
func checkOverlap(sets []lease.RangeSet, keys []string) error {
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

// asked is what the runtime asks for beside the section.
type asked struct {
	ranges [][]rangeConfig
	// ips are those of the capability, args those of args.cni.
	ips, args []string
}

func readAsked(n cniplugin.Network) (asked, error) {
	var a asked
	var args struct {
		CNI struct {
			IPs []string `json:"ips"`
		} `json:"cni"`
	}
	for _, part := range []struct {
		key  string
		json json.RawMessage
		to   any
	}{{"runtimeConfig.ipRanges", n.RuntimeConfig.IPRanges, &a.ranges}, {"runtimeConfig.ips", n.RuntimeConfig.IPs, &a.ips}, {"args", n.Args, &args}} {
		if err := decodeIfAny(part.key, part.json, part.to); err != nil {
			return a, err
		}
	}
	a.args = args.CNI.IPs
	return a, nil
}

// requests collects what host-local takes for a request, in its order: CNI_ARGS,
// args.cni.ips, the capability.
func (a asked) requests(env cniplugin.Args) ([]requested, error) {
	var all []requested
	add := func(s string, refuse func(must string) error) error {
		address, err := parseRequested(s)
		if err != nil {
			return refuse(err.Error())
		}
		// A runtime may ask for the same one in two ways.
		if !slices.ContainsFunc(all, func(r requested) bool { return r.address == address }) {
			all = append(all, requested{address, refuse})
		}
		return nil
	}
	// Multus writes the addresses of both families in one.
	for s := range listed(env.IP) {
		err := add(strings.TrimSpace(s), func(must string) error {
			if strings.Contains(env.IP, ",") {
				must = fmt.Sprintf("%q %s", strings.TrimSpace(s), must)
			}
			return cniplugin.EnvError("CNI_ARGS", "IP="+env.IP, must)
		})
		if err != nil {
			return nil, err
		}
	}
	for _, list := range []struct {
		key string
		ips []string
	}{{"args.cni.ips", a.args}, {"runtimeConfig.ips", a.ips}} {
		for i, s := range list.ips {
			err := add(s, func(must string) error { return cniplugin.ConfigError(fmt.Sprintf("%s[%d]", list.key, i), s, must) })
			if err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// listed are the parts of a list with commas between them. Nothing is no list.
func listed(s string) iter.Seq[string] {
	if s == "" {
		return func(func(string) bool) {}
	}
	return strings.SplitSeq(s, ",")
}

// parseRequested reads an address, which may be written with the length of a prefix
// that says nothing more than the range does.
func parseRequested(s string) (netip.Addr, error) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Addr().Unmap(), nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil || a.Zone() != "" {
		return a, errors.New("must be an IP address")
	}
	return a.Unmap(), nil
}
