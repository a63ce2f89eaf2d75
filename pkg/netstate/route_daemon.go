package netstate

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
