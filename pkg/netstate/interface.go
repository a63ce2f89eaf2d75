package netstate

import (
	"fmt"
	"net/netip"
	"strings"
)

// Kinds of devices, as the kernel names them in IFLA_INFO_KIND. A device
// without that attribute is a NIC.
const (
	KindNIC     = "nic"
	KindBond    = "bond"
	KindVLAN    = "vlan"
	KindMacvlan = "macvlan"
)

// Interface is a network interface inside a sandbox: the link, what it is
// stacked on and what it carries.
type Interface struct {
	Link Link `json:"link"`
	// Parents are the devices below the link, the nearest first, the base (a
	// NIC, a bond, any other device without a parent) last.
	Parents []Device `json:"parents"`
	// ParentsInSandbox says that Parents are in the sandbox's own namespace
	// (CNI's linkInContainer) and not in the host's.
	ParentsInSandbox bool      `json:"parentsInSandbox,omitempty"`
	Addresses        []Address `json:"addresses,omitempty"`
	Routes           []Route   `json:"routes,omitempty"`
	// Settings are the interface's sysctls to set before it goes up, keyed
	// "ipv4/arp_notify" for net.ipv4.conf.<name>.arp_notify.
	Settings map[string]string `json:"settings,omitempty"`
}

// Link is the device itself.
type Link struct {
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	Index int    `json:"index"`
	// MAC is in the form 02:00:00:00:00:01, lower case. Empty in a Link to
	// build: the kernel chooses one.
	MAC string `json:"mac,omitempty"`
	// MTU in bytes. 0 in a Link to build: the parent's.
	MTU     int      `json:"mtu"`
	Up      bool     `json:"up"`
	Macvlan *Macvlan `json:"macvlan,omitempty"`
	VLAN    *VLAN    `json:"vlan,omitempty"`
}

// Macvlan is what a device of KindMacvlan has beyond a Link.
type Macvlan struct {
	// Mode is bridge, private, vepa or passthru, as in iproute2.
	Mode string `json:"mode"`
	// BCQueueLen is the wanted length of the broadcast queue in packets
	// (IFLA_MACVLAN_BC_QUEUE_LEN). 0 in a Link to build: the kernel's default.
	BCQueueLen uint32 `json:"bcQueueLen,omitempty"`
}

// VLAN is what a device of KindVLAN has beyond a Link.
type VLAN struct {
	ID int `json:"id"`
	// Protocol is 802.1q or 802.1ad.
	Protocol string `json:"protocol"`
}

func (v VLAN) String() string {
	if v.Protocol == Protocol8021Q {
		return fmt.Sprintf("VLAN %d", v.ID)
	}
	return fmt.Sprintf("VLAN %d (%s)", v.ID, v.Protocol)
}

// VLAN protocols, as in iproute2.
const (
	Protocol8021Q  = "802.1q"
	Protocol8021AD = "802.1ad"
)

// Address is an IP address of an interface.
type Address struct {
	// Prefix is the address with its prefix length; host bits are kept.
	Prefix netip.Prefix `json:"prefix"`
	// Peer is the other end's prefix on a point-to-point address.
	Peer      netip.Prefix `json:"peer,omitzero"`
	Broadcast netip.Addr   `json:"broadcast,omitzero"`
	Label     string       `json:"label,omitempty"`
	// Scope and Flags are the kernel's numbers (rtnetlink(7)); Flags without
	// those that say how far the kernel is with it, such as IFA_F_TENTATIVE.
	Scope uint8  `json:"scope,omitempty"`
	Flags uint32 `json:"flags,omitempty"`
}

func (a Address) String() string {
	if a.Peer.IsValid() {
		return fmt.Sprintf("%s peer %s", a.Prefix.Addr(), a.Peer)
	}
	return a.Prefix.String()
}

// detail returns all of the address, for two that String does not tell apart.
func (a Address) detail() string {
	return fmt.Sprintf("%s (broadcast %s, label %q, scope %d, flags %#x)", a, a.Broadcast, a.Label, a.Scope, a.Flags)
}

// Route is a route through an interface that the kernel did not make itself.
// Numbers are the kernel's (rtnetlink(7)).
type Route struct {
	Destination netip.Prefix `json:"destination"`
	Gateway     netip.Addr   `json:"gateway,omitzero"`
	Source      netip.Addr   `json:"source,omitzero"`
	Table       uint32       `json:"table"`
	// Priority is the metric. The kernel turns 0 into 1024 for IPv6.
	Priority uint32 `json:"priority,omitempty"`
	Scope    uint8  `json:"scope,omitempty"`
	Protocol uint8  `json:"protocol,omitempty"`
	Type     uint8  `json:"type,omitempty"`
	TOS      uint8  `json:"tos,omitempty"`
	OnLink   bool   `json:"onLink,omitempty"`
	MTU      uint32 `json:"mtu,omitempty"`
	AdvMSS   uint32 `json:"advMSS,omitempty"`
}

// tableMain is RT_TABLE_MAIN.
const tableMain = 254

// String returns the route in the words of ip-route(8).
func (r Route) String() string {
	var b strings.Builder
	b.WriteString(r.Destination.String())
	add := func(word string, value any) { fmt.Fprintf(&b, " %s %v", word, value) }
	if r.Gateway.IsValid() {
		add("via", r.Gateway)
	}
	if r.Table != tableMain {
		add("table", r.Table)
	}
	if r.Priority != 0 {
		add("metric", r.Priority)
	}
	if r.Source.IsValid() {
		add("src", r.Source)
	}
	if r.Scope != 0 {
		add("scope", r.Scope)
	}
	if r.MTU != 0 {
		add("mtu", r.MTU)
	}
	if r.AdvMSS != 0 {
		add("advmss", r.AdvMSS)
	}
	if r.OnLink {
		b.WriteString(" onlink")
	}
	return b.String()
}

// detail returns all of the route, for two that String does not tell apart.
func (r Route) detail() string {
	return fmt.Sprintf("%s (protocol %d, type %d, tos %#x)", r, r.Protocol, r.Type, r.TOS)
}

// SameSlot says that two routes compete for one place in the routing table:
// the same destination, table, metric and type of service.
func (r Route) SameSlot(other Route) bool {
	return r.Destination == other.Destination && r.Table == other.Table && r.Priority == other.Priority && r.TOS == other.TOS
}

// MetBy says that other is the route that r asks for, where r leaves what it
// does not care for (metric, scope, MTU, advertised MSS) zero.
func (r Route) MetBy(other Route) bool {
	return r.Destination == other.Destination && r.Gateway == other.Gateway && r.Table == other.Table &&
		(r.Priority == 0 || r.Priority == other.Priority) &&
		(r.Scope == 0 || r.Scope == other.Scope || r.Destination.Addr().Is6()) && // IPv6 routes have none.
		(r.MTU == 0 || r.MTU == other.MTU) &&
		(r.AdvMSS == 0 || r.AdvMSS == other.AdvMSS)
}
