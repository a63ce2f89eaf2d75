package netstate

// daemons are the routing daemons by the number that their routes have (linux/rtnetlink.h,
// RTPROT_*, and those that iproute2 and FRR name besides). A daemon makes its routes anew when
// it sees the interface again, and what it would make then, only it knows. keepalived is one:
// its routes are there while the pod is the master. A DHCP client is none: it does not look
// before the lease has to be renewed. A CNI plugin's routes are "boot" or "static".
var daemons = map[uint8]string{
	8: "gated", 10: "mrt", 11: "zebra", 12: "bird", 13: "dnrouted", 14: "xorp", 15: "ntk", 17: "mrouted", 18: "keepalived",
	42: "babel", 84: "ovn", 99: "openr", 186: "bgp", 187: "isis", 188: "ospf", 189: "rip", 190: "ripng", 191: "nhrp",
	192: "eigrp", 193: "ldp", 194: "sharp", 195: "pbr", 196: "zstatic", 197: "openfabric", 198: "srte",
}

// DaemonOf returns the name of the routing daemon that makes routes of that protocol, empty
// for none.
func DaemonOf(protocol uint8) string { return daemons[protocol] }

// Kept returns what of the routes is remembered in the form that it has: a leg of an IPv6
// route through several next hops is a route, and one of a routing daemon is none.
func Kept(routes []Route) []Route {
	var kept []Route
	for _, r := range routes {
		if DaemonOf(r.Protocol) == "" {
			kept = append(kept, r.Legs()...)
		}
	}
	return kept
}
