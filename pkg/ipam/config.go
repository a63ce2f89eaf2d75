package ipam

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"

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

// maxName is NAME_MAX less what a store's file has around its network's name at times.
const maxName = 255 - len(".") - len(extension) - len(".new")

// checkPlace reports what says where the leases are, if it can't be so.
func checkPlace(name, dataDir string) error {
	if err := attachment.ValidateName(name); err != nil {
		return cniplugin.ConfigError("name", name, err.Error())
	}
	if len(name) > maxName {
		return cniplugin.ConfigError("name", name, fmt.Sprintf("has %d characters: a file's name has room for %d", len(name), maxName))
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
	if n.resolvConf != "" && !filepath.IsAbs(n.resolvConf) {
		return network{}, cniplugin.ConfigError("ipam.resolvConf", n.resolvConf, "must be an absolute path")
	}
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
	for i, set := range sets {
		if !slices.ContainsFunc(set, func(r Range) bool { return r.skip(r.First).IsValid() }) {
			return nil, cniplugin.ConfigError(keys[i], set.String(), "must have an address that is neither excluded nor the gateway")
		}
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
