package ipam

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/version"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// section is "ipam" of a configuration. It has the keys of host-local, with their meaning, and those of
// policyConfig.
type section struct {
	rangeConfig
	storeConfig
	Ranges     [][]rangeConfig `json:"ranges"`
	Routes     routes          `json:"routes"`
	ResolvConf string          `json:"resolvConf"`
	// Pool names an AddressPool, or those of which one selects the node, or is a list of both.
	Pool json.RawMessage `json:"pool"`
	// Roam gives an owner another address where the pool of its address does not select the node.
	Roam bool `json:"roam"`
	policyConfig
}

// storeConfig says where the leases are.
type storeConfig struct {
	// Store is the name of the store, empty for the network's name. With it, a network that gets another name keeps its leases, and
	// several networks give addresses of the same ranges.
	Store string `json:"store"`
	// DataDir is the directory of the store, empty for the default.
	DataDir string `json:"dataDir"`
}

// name returns the name of the network's store.
func (s storeConfig) name(network string) string { return cmp.Or(s.Store, network) }

// network is what a configuration comes to.
type network struct {
	section
	// pod is the one in CNI_ARGS.
	pod  attachment.Pod
	sets []lease.RangeSet
	// pools are names and choices, instead of sets.
	pools     []string
	requested []requestedAddress
	// candidates are addresses of which the pod wants one of each range set.
	candidates []requestedAddress
	policy     lease.Policy
	// detection is nil for off.
	detection *Detection
	// claims says that an IPAMClaim can have the addresses.
	claims bool
}

// requestedAddress is an address that is asked for. refuse returns the error of the key that asks for it, and source names the key.
type requestedAddress struct {
	address netip.Addr
	source  string
	refuse  func(requirement string) error
	// fromClaim says that an IPAMClaim has the address. Only relink and an administrator can write there.
	fromClaim bool
}

// ConfigSummary is what others need of a configuration.
type ConfigSummary struct {
	// Sets is empty if there are Pools, which are names and choices (pool.Choice).
	Sets  []lease.RangeSet
	Pools []string
	// DataDir is the directory of the leases, empty for the default, and Store the name of their store.
	DataDir, Store string
	// ResolvConf is the path of a file like resolv.conf(5), empty for none. Nobody has looked whether it is there.
	ResolvConf string
	// Detection says that an address is probed for before it is used.
	Detection bool
	// NeedsAPI is the key for which an ADD cannot do without the Kubernetes API, empty for none.
	NeedsAPI string
}

// Examine reads all that a configuration has for relink-ipam, and returns everything for which an ADD would be
// refused.
func Examine(n cniplugin.Network) (ConfigSummary, []error) {
	s, errs := readSection(n)
	if n.IPAM.JSON == nil {
		return ConfigSummary{}, errs
	}
	parsed := s.parse(n, cniplugin.Args{}, &errs)
	if len(errs) == 0 {
		errs = parsed.checkRequested()
	}
	return ConfigSummary{Sets: parsed.sets, Pools: parsed.pools, DataDir: s.DataDir, Store: s.name(n.Name), ResolvConf: s.ResolvConf, Detection: parsed.detection != nil, NeedsAPI: parsed.needsAPIOnNewNode()}, errs
}

// checkRequested returns the errors of an ADD for the addresses that are asked for and that it cannot give, whatever is
// leased.
func (n network) checkRequested() (errs cniplugin.Problems) {
	if len(n.pools) > 0 {
		return nil // Only the pool says.
	}
	for _, refused := range lease.CheckRequested(n.sets, addressesOf(n.requested)) {
		errs.Add(n.refusalError(refused))
	}
	return errs
}

func addressesOf(asked []requestedAddress) (addresses []netip.Addr) {
	for _, q := range asked {
		addresses = append(addresses, q.address)
	}
	return addresses
}

// readSection reads the section, but not yet its ranges. It returns everything that is wrong.
func readSection(n cniplugin.Network) (s section, errs cniplugin.Problems) {
	if n.IPAM.JSON == nil {
		s.check(n.Name, &errs)
		errs.Refuse("ipam", cniplugin.Missing, "must say which addresses to give")
		return s, errs
	}
	errs = Keys.Decode("ipam", n.IPAM.JSON, &s)
	s.check(n.Name, &errs)
	return s, errs
}

// check refuses a name or a directory by which no store can be found.
func (s storeConfig) check(network string, errs *cniplugin.Problems) {
	check := func(key, name string) {
		if err := lease.CheckName(name); err != nil {
			errs.Refuse(key, name, err.Error())
		}
	}
	check("name", network)
	if s.Store != "" {
		check("ipam.store", s.Store)
	}
	errs.CheckAbsolute("ipam.dataDir", s.DataDir)
}

// parse reads the rest of the section, what the runtime asks for, and the addresses that
// CNI_ARGS ask for. It adds everything that is wrong to errs.
func (s section) parse(n cniplugin.Network, env cniplugin.Args, errs *cniplugin.Problems) network {
	parsed := network{section: s, pod: env.Pod, claims: n.AllowPersistentIPs}
	errs.CheckAbsolute("ipam.resolvConf", s.ResolvConf)
	a := readRuntimeRequest(n, errs)
	parsed.policy = s.policy(errs)
	parsed.detection = s.detection(errs)
	s.Static.check(errs)
	if n.AllowPersistentIPs && !s.byOwner() {
		errs.Refuse("allowPersistentIPs", "true", `needs "sticky": "owner": otherwise another pod gets the address while the virtual machine is off`)
	}
	pools, wrong := s.pools(n)
	if parsed.pools = pools; pools == nil && len(wrong) == 0 {
		parsed.sets, wrong = s.sets(n, a)
	}
	errs.Add(wrong...)
	parsed.requested = a.requests(env, errs)
	return parsed
}

// sets returns the range sets in host-local's order: those of the runtime, the flat one,
// those of "ranges". Beside others, a flat one without a subnet does not count.
func (s section) sets(n cniplugin.Network, a runtimeRequest) (sets []lease.RangeSet, errs cniplugin.Problems) {
	excluded := parseExcluded(s.Exclude, &errs)
	var keys []string
	add := func(key string, ranges [][]rangeConfig) {
		for i, r := range ranges {
			path := fmt.Sprintf("%s[%d]", key, i)
			sets, keys = append(sets, parseSet(path, r, excluded, &errs)), append(keys, path)
		}
	}
	add("runtimeConfig.ipRanges", a.ranges)
	if s.Subnet != "" {
		r, err := s.rangeConfig.parse("ipam.", excluded)
		errs.Add(err)
		sets, keys = append(sets, lease.RangeSet{r}), append(keys, "ipam.subnet")
	}
	add("ipam.ranges", s.Ranges)
	switch {
	case len(sets) > 0:
	case s.rangeConfig != rangeConfig{}:
		errs.Refuse("ipam.subnet", cniplugin.Missing, "rangeStart, rangeEnd and gateway need a subnet")
	default:
		errs.Refuse("ipam.ranges", cniplugin.Missing, `must have a range of addresses to give, such as [[{"subnet": "10.3.0.0/24"}]]`)
	}
	if len(errs) > 0 {
		return nil, errs // The rest compares the ranges, and needs them all to be right.
	}
	for i, set := range sets {
		if !set.GivesAny() {
			errs.Refuse(keys[i], set.String(), "must have an address that is neither excluded nor the gateway")
		}
	}
	errs.Add(checkSingleFamily(n.CNIVersion, sets), checkOverlap(sets, keys))
	return sets, errs
}

// decodeIfAny reads a part of the configuration for a DEL or a GC, if there is one. key is its place.
func decodeIfAny(key string, b json.RawMessage, part any) error {
	if b == nil {
		return nil
	}
	return cniplugin.DecodePart(key, b, part)
}

// checkSingleFamily reports several addresses of one family if the result of the specification's version
// has no place for them.
func checkSingleFamily(cniVersion string, sets []lease.RangeSet) error {
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
		for j, earlier := range sets[:i] {
			for _, r := range set {
				for _, o := range earlier {
					if r.Overlaps(o.Span) {
						return cniplugin.ConfigError(keys[i], r.String(), overlaps(r, keys[j], o))
					}
				}
			}
		}
	}
	return nil
}

// runtimeRequest is what the runtime asks for beside the section.
type runtimeRequest struct {
	ranges [][]rangeConfig
	// ips are from the capability, args from args.cni.
	ips, args []string
}

func readRuntimeRequest(n cniplugin.Network, errs *cniplugin.Problems) (a runtimeRequest) {
	var args struct {
		CNI struct {
			IPs []string `json:"ips"`
		} `json:"cni"`
	}
	for _, part := range []struct {
		key    string
		json   json.RawMessage
		target any
	}{{"runtimeConfig.ipRanges", n.RuntimeConfig.IPRanges, &a.ranges}, {"runtimeConfig.ips", n.RuntimeConfig.IPs, &a.ips}, {"args", n.Args, &args}} {
		if part.json != nil {
			errs.Add(cniplugin.DecodeAll(part.key, part.json, part.target)...)
		}
	}
	a.args = args.CNI.IPs
	return a
}

// requests returns the addresses that are asked for, in host-local's order: CNI_ARGS,
// args.cni.ips, the capability. A runtime may ask for one address in two of these ways. Twice in one list is a
// mistake.
func (a runtimeRequest) requests(env cniplugin.Args, errs *cniplugin.Problems) (requests []requestedAddress) {
	for _, list := range []struct {
		key   string
		texts []string
	}{{"", splitList(env.IP)}, {"args.cni.ips", a.args}, {"runtimeConfig.ips", a.ips}} {
		var addresses []netip.Addr
		for i, text := range list.texts {
			q := requestedAddress{source: fmt.Sprintf("%s[%d]", list.key, i)}
			q.refuse = func(requirement string) error { return cniplugin.ConfigError(q.source, text, requirement) }
			if list.key == "" {
				q.source = "CNI_ARGS"
				q.refuse = func(requirement string) error { return cniplugin.EnvError(q.source, "IP="+text, requirement) }
			}
			var ok bool
			q.address, ok = parseRequested(text)
			switch {
			case !ok:
				errs.Add(q.refuse("must be an IP address"))
			case slices.Contains(addresses, q.address):
				errs.Add(q.refuse("is in the list twice: keep one"))
			default:
				requests, addresses = mergeRequest(requests, q), append(addresses, q.address)
			}
		}
	}
	return requests
}

// mergeRequest adds an address. One that is asked for in several ways is one address. If one of them is an IPAMClaim, it was given
// before.
func mergeRequest(requests []requestedAddress, q requestedAddress) []requestedAddress {
	if i := slices.IndexFunc(requests, func(r requestedAddress) bool { return r.address == q.address }); i >= 0 {
		requests = slices.Clone(requests)
		requests[i].fromClaim = requests[i].fromClaim || q.fromClaim
		return requests
	}
	return append(slices.Clip(requests), q)
}

// splitList returns the parts of a list with commas: Multus writes the addresses of both families so. Nothing is an
// empty list.
func splitList(s string) []string {
	if s == "" {
		return nil
	}
	parts := strings.Split(s, ",")
	for i, part := range parts {
		parts[i] = strings.TrimSpace(part)
	}
	return parts
}

// parseRequested reads an address. It may have a prefix length, which does not count: the range
// has one.
func parseRequested(s string) (_ netip.Addr, ok bool) {
	if p, err := netip.ParsePrefix(s); err == nil {
		return p.Addr().Unmap(), true
	}
	return parseAddr(s)
}
