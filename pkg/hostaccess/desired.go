package hostaccess

import (
	"maps"
	"math/bits"
	"net/netip"
	"slices"
	"strconv"

	"github.com/relink-cni/relink/pkg/netstate"
)

const (
	// Table is the number of the routing table in the host that has the routes to the pods, and of the one in a pod for what
	// came through the node.
	Table = 1140
	// Priority is that of the rules that lead there: before the main table, whose rule has 32766.
	Priority = 1140
	// podProtocol marks the pod's routes as relink's: those that a node address needs no more can be taken away.
	podProtocol = 115
	// hostProtocol is RTPROT_KERNEL. systemd-networkd deletes routes and rules that it does not know, but never the kernel's.
	hostProtocol = 2

	tableMain    = 254 // RT_TABLE_MAIN
	routeUnicast = 1   // RTN_UNICAST
	toTable      = 1   // FR_ACT_TO_TBL
	// ipv6Metric comes before the metrics that others choose. The kernel makes 1024 of the metric 0.
	ipv6Metric = 512
	noDAD      = 0x02 // IFA_F_NODAD
)

// podInterface is what the pod has for the access: its end of the pair, and what goes through it.
func (a Access) podInterface(node Node) netstate.Interface {
	i := netstate.Interface{
		Link:     a.link(a.Name),
		Settings: podSettings(a),
	}
	for _, addr := range a.Addresses {
		address := netstate.Address{Prefix: singlePrefix(addr)}
		if addr.Is6() {
			// The address is the pod's already. It is of use at once.
			address.Flags = noDAD
		} else {
			address.Label = a.Name
		}
		i.Addresses = append(i.Addresses, address)
	}
	for _, network := range a.reachableNetworks(node) {
		i.Routes = append(i.Routes, route(network, tableMain, podProtocol))
	}
	if a.PreserveSource {
		i.Rules, i.Routes = a.returnRules(), append(i.Routes, a.returnRoutes()...)
	}
	return i
}

func (a Access) link(name string) netstate.Link {
	return netstate.Link{
		Kind: netstate.KindVeth, Name: name, MAC: a.MAC, MTU: a.MTU, Up: true, LinkFlags: netstate.LinkFlags{NoARP: true},
	}
}

// endSettings are the sysctls of both ends. The kernel makes no address by itself: nothing needs one, and a node shows no other
// address to its pods. Neither end believes what the other one advertises.
var endSettings = map[string]string{
	"ipv6/addr_gen_mode": "1", "ipv6/accept_ra": "0", "ipv6/accept_redirects": "0",
}

func podSettings(a Access) map[string]string {
	s := map[string]string{}
	if a.hasFamily(true) {
		s[ipv6Off] = "0"
		for key, value := range endSettings {
			s[key] = value
		}
	}
	if a.hasFamily(false) {
		// Requests and answers can come through the node from a source whose route is another one: with preserveSource, and
		// from a LoadBalancer that the pod asked by the VLAN. 2 accepts that, even if "all" says 1: the higher one counts.
		s["ipv4/rp_filter"] = "2"
	}
	return s
}

// ipv6Off is the sysctl that takes IPv6 from a device. A pod and a node can have it set for all new devices.
const ipv6Off = "ipv6/disable_ipv6"

// hostSettings are the sysctls of the host's end. Without IPv6, those of IPv6 are of no use, and may not be there.
func (a Access) hostSettings(node Node) map[string]string {
	s := map[string]string{}
	if a.hasFamily(true) && !node.NoIPv6 {
		s = maps.Clone(endSettings)
		s[ipv6Off] = "0"
	}
	return s
}

// newHostSettings are the sysctls of a new host's end. The filter drops what a pod sends with another source than its own
// addresses. It is not looked at later: on many nodes, udev sets it to the node's own value (systemd's 50-default.conf has a
// line for all devices, and says 2).
func (a Access) newHostSettings(node Node) map[string]string {
	s := maps.Clone(endSettings) // The kernel makes an IPv6 address for each device, if it can.
	maps.Copy(s, a.hostSettings(node))
	s["ipv4/rp_filter"] = "1"
	return s
}

// reachableNetworks are the networks that the pod reaches through the node. An address of the node has a route of its own, also within a
// network: another route of the pod can be longer than that.
func (a Access) reachableNetworks(node Node) []netip.Prefix {
	networks := slices.Concat(a.Services, a.Extra)
	for _, addr := range append(slices.Clone(node.Addresses), standIn4, standIn6) {
		networks = append(networks, singlePrefix(addr))
	}
	var reached []netip.Prefix
	for _, p := range networks {
		isPodAddress := p.IsSingleIP() && slices.Contains(a.Addresses, p.Addr())
		if a.hasFamily(p.Addr().Is6()) && !isPodAddress && !slices.Contains(reached, p) && (!node.NoIPv6 || p.Addr().Is4()) {
			reached = append(reached, p)
		}
	}
	return reached
}

// route is a route through an end, without a next hop.
func route(destination netip.Prefix, table uint32, protocol uint8) netstate.Route {
	r := netstate.Route{Destination: destination, Table: table, Protocol: protocol, Type: routeUnicast}
	if destination.Addr().Is6() {
		r.Priority = ipv6Metric
	} else {
		r.Scope = scopeLink
	}
	return r
}

// returnRules send packets with the mark to the table of returnRoutes.
func (a Access) returnRules() (rules []netstate.Rule) {
	for _, ipv6 := range []bool{false, true} {
		if a.hasFamily(ipv6) {
			rules = append(rules, netstate.Rule{
				IPv6: ipv6, Priority: Priority, Action: toTable, Table: Table, Protocol: podProtocol,
				Selectors: map[string]uint64{"fwmark": uint64(a.Mark), "fwmask": uint64(a.Mark)},
			})
		}
	}
	return rules
}

func (a Access) returnRoutes() (routes []netstate.Route) {
	for _, prefix := range []netip.Prefix{netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0)} {
		if a.hasFamily(prefix.Addr().Is6()) {
			routes = append(routes, route(prefix, Table, podProtocol))
		}
	}
	return routes
}

// hostInterface is the host's end. Its routes are in hostRoutes: PlanHost reads those of all pods at once.
func (a Access) hostInterface(node Node) netstate.Interface {
	i := netstate.Interface{Link: a.link(a.HostName), Settings: a.hostSettings(node)}
	i.Link.Alias = a.Alias
	return i
}

// hostRoutes are the host's routes to the pod.
func (a Access) hostRoutes(node Node) (routes []netstate.Route) {
	for _, addr := range a.Addresses {
		if node.NoIPv6 && addr.Is6() {
			continue
		}
		r := route(singlePrefix(addr), Table, hostProtocol)
		r.Source = node.source(addr.Is6())
		routes = append(routes, r)
	}
	return routes
}

// hostRule leads to the routes to the pods.
func hostRule(ipv6 bool) netstate.Rule {
	return netstate.Rule{IPv6: ipv6, Priority: Priority, Action: toTable, Table: Table, Protocol: hostProtocol}
}

// ParseMark returns the one bit that the text names, such as 0x10000000. It returns false for anything else.
func ParseMark(text string) (uint32, bool) {
	const base, size = 0, 32
	mark, err := strconv.ParseUint(text, base, size)
	return uint32(mark), err == nil && bits.OnesCount64(mark) == 1
}
