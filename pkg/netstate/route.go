package netstate

import (
	"fmt"
	"net/netip"
	"slices"
)

// Route is a route through an interface that the kernel did not make itself.
// Numbers are the kernel's (rtnetlink(7)).
type Route struct {
	Destination netip.Prefix `json:"destination"`
	// From limits an IPv6 route to packets of these sources.
	From netip.Prefix `json:"from,omitzero"`
	// Gateway can be an IPv6 address even if the route is IPv4 (RTA_VIA).
	Gateway netip.Addr `json:"gateway,omitzero"`
	// NextHops are the next hops of a route that has several. They replace Gateway and OnLink.
	NextHops []NextHop  `json:"nextHops,omitempty"`
	Source   netip.Addr `json:"source,omitzero"`
	Table    uint32     `json:"table"`
	// Priority is the metric. The kernel turns 0 into 1024 for IPv6.
	Priority uint32 `json:"priority,omitempty"`
	Scope    uint8  `json:"scope,omitempty"`
	Protocol uint8  `json:"protocol,omitempty"`
	Type     uint8  `json:"type,omitempty"`
	TOS      uint8  `json:"tos,omitempty"`
	// Preference is the preference of RFC 4191, for IPv6.
	Preference uint8  `json:"preference,omitempty"`
	OnLink     bool   `json:"onLink,omitempty"`
	MTU        uint32 `json:"mtu,omitempty"`
	AdvMSS     uint32 `json:"advMSS,omitempty"`
	// Metrics are the other metrics, by their names in ip-route(8). "lock" has a bit for each that is
	// locked.
	Metrics map[string]uint32 `json:"metrics,omitempty"`
	// CongestionControl is the algorithm's name.
	CongestionControl string `json:"congestionControl,omitempty"`
	// Device is the name of another device in the sandbox that the route goes through. The route still belongs
	// to the interface, because one of the interface's addresses is the Source.
	Device string `json:"device,omitempty"`
	// First says that several IPv4 routes compete for the slot, and that this one stands first: the kernel uses it. It is no part
	// of what a comparison looks at.
	First bool `json:"first,omitempty"`
	// Uncontested says that a capture has found no other route in the slot: the route tells nothing about First then.
	Uncontested bool `json:"-"`
	// Unsure says that the route is a leg of an IPv6 multipath route. The kernel tells the attributes of another
	// leg for it, except for the next hop.
	Unsure bool `json:"-"`
}

// NextHop is one of several next hops of a route.
type NextHop struct {
	// Device is the name of the device in the sandbox, empty for the interface
	// that the route belongs to.
	Device  string     `json:"device,omitempty"`
	Gateway netip.Addr `json:"gateway,omitzero"`
	Weight  int        `json:"weight"`
	OnLink  bool       `json:"onLink,omitempty"`
}

func (h NextHop) String() string {
	w := words{"nexthop"}
	w.add("via", h.Gateway)
	w.add("dev", h.Device)
	w.add("weight", h.Weight)
	w.add("onlink", h.OnLink)
	return w.String()
}

// tableMain is RT_TABLE_MAIN.
const tableMain = 254

// Is6 says that it is an IPv6 route.
func (r Route) Is6() bool { return r.Destination.Addr().Is6() }

// String returns the route in the words of ip-route(8).
func (r Route) String() string {
	w := words{r.Destination.String()}
	w.add("from", r.From)
	w.add("via", r.Gateway)
	w.add("dev", r.Device)
	if r.Table != tableMain {
		w.put("table", r.Table)
	}
	w.add("metric", r.Priority)
	w.add("src", r.Source)
	w.add("scope", r.Scope)
	w.add("mtu", r.MTU)
	w.add("advmss", r.AdvMSS)
	w.add("onlink", r.OnLink)
	for _, h := range r.NextHops {
		w = append(w, h.String())
	}
	return w.String()
}

// detail returns everything about the route, for two routes with the same String.
func (r Route) detail() string {
	return fmt.Sprintf("%s (protocol %d, type %d, tos %#x, preference %d, metrics %v, congestion control %q)",
		r, r.Protocol, r.Type, r.TOS, r.Preference, r.Metrics, r.CongestionControl)
}

// Slot is a place in a routing table for which routes compete.
type Slot struct {
	Destination netip.Prefix
	From        netip.Prefix
	Table       uint32
	Priority    uint32
	TOS         uint8
}

// Slot returns the place in the routing table for which the route competes.
func (r Route) Slot() Slot {
	return Slot{Destination: r.Destination, From: r.From, Table: r.Table, Priority: r.Priority, TOS: r.TOS}
}

// SameSlot says that two routes compete for one slot.
func (r Route) SameSlot(route Route) bool { return r.Slot() == route.Slot() }

// RouteMetrics are the names of Metrics, in the order of their numbers
// (linux/rtnetlink.h, RTAX_*); those that are fields of their own are left out.
var RouteMetrics = []string{
	"", "lock", "", "window", "rtt", "rttvar", "ssthresh", "cwnd", "", "reordering", "hoplimit", "initcwnd", "features",
	"rto_min", "initrwnd", "quickack", "", "fastopen_no_cookie",
}

// Devices returns the names of the other devices that the route goes through.
func (r Route) Devices() []string {
	var names []string
	if r.Device != "" {
		names = append(names, r.Device)
	}
	for _, h := range r.NextHops {
		if h.Device != "" {
			names = append(names, h.Device)
		}
	}
	return names
}

// byDependency orders routes so that each comes after the routes by which the kernel finds its gateway. Those
// without a gateway come first, in the order that they have.
func byDependency(a, b Route) int { return a.depth() - b.depth() }

func (r Route) depth() int {
	switch {
	case len(r.NextHops) > 0:
		return 2
	case r.Gateway.IsValid():
		return 1
	}
	return 0
}

// InOrder returns the routes in an order in which the kernel takes them.
func InOrder(routes []Route) []Route {
	if slices.IsSortedFunc(routes, byDependency) {
		return routes
	}
	return slices.SortedStableFunc(slices.Values(routes), byDependency)
}

// MarkOnLink makes OnLink those of the interface's routes whose gateway is in none of its networks: the address by which somebody made such
// a route has gone. The kernel keeps the route, and would refuse to make it again without the flag. kernels are the kernel's own routes.
func MarkOnLink(routes []Route, addresses []Address, kernels []netip.Prefix) {
	networks := slices.Clone(kernels)
	for _, a := range addresses {
		networks = append(networks, a.Network())
	}
	for _, r := range routes {
		if r.depth() == 0 && r.Device == "" {
			networks = append(networks, r.Destination)
		}
	}
	for i, r := range routes {
		if r.Gateway.IsValid() && r.Device == "" && !r.Gateway.IsLinkLocalUnicast() &&
			!slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(r.Gateway) }) {
			routes[i].OnLink = true
		}
	}
}

// SamePath says that both lead to the same destination by the same gateway, in whatever table, and with whatever metric, protocol and other
// attributes. It is for routes of one interface.
func (r Route) SamePath(route Route) bool {
	r, route = r.plain(), route.plain()
	return r.Destination == route.Destination && r.Gateway == route.Gateway && len(r.NextHops)+len(route.NextHops) == 0 && r.Device == route.Device
}

// daemons are the routing daemons by the protocol number of their routes (linux/rtnetlink.h, RTPROT_*, and those
// that only iproute2 and FRR name). A daemon makes its routes again when it sees the interface again, and only
// the daemon knows what it will make. keepalived counts as one: its routes are there while the pod is the master.
// A DHCP client does not: it does nothing before the lease has to be renewed. The routes of a CNI plugin are
// "boot" or "static".
var daemons = map[uint8]string{
	8: "gated", 10: "mrt", 11: "zebra", 12: "bird", 13: "dnrouted", 14: "xorp", 15: "ntk", 17: "mrouted", 18: "keepalived",
	42: "babel", 84: "ovn", 99: "openr", 186: "bgp", 187: "isis", 188: "ospf", 189: "rip", 190: "ripng", 191: "nhrp",
	192: "eigrp", 193: "ldp", 194: "sharp", 195: "pbr", 196: "zstatic", 197: "openfabric", 198: "srte",
}

// DaemonOf returns the name of the routing daemon that makes routes of that protocol. It is empty if there is
// none.
func DaemonOf(protocol uint8) string { return daemons[protocol] }
