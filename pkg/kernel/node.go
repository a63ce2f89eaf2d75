package kernel

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// LocalAddress is an address of a device, whoever made it.
type LocalAddress struct {
	Addr netip.Addr
	// Bits is the length of its prefix.
	Bits int
	// Index is that of the device.
	Index int
	// Scope is the kernel's number (rtnetlink(7)).
	Scope uint8
	// Transient says that the node should begin no new connection from the address: it is temporary or deprecated. Unusable says
	// that the kernel does not know yet whether somebody else has it, or that somebody has.
	Transient, Unusable bool
}

const (
	transientFlags = unix.IFA_F_TEMPORARY | unix.IFA_F_DEPRECATED
	unusableFlags  = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED
)

// LocalAddresses returns the addresses of all devices, in the kernel's order.
func (n *Namespace) LocalAddresses() (addresses []LocalAddress, err error) {
	live, err := n.liveAddresses(0, bothFamilies)
	for _, a := range live {
		network, flags := a.Network(), a.flags
		if !a.Is6() { // For IPv4, this bit says that the address is a secondary one.
			flags &^= unix.IFA_F_TEMPORARY
		}
		addresses = append(addresses, LocalAddress{
			Addr: a.Prefix.Addr(), Bits: network.Bits(), Index: a.index, Scope: a.Scope, Transient: flags&transientFlags != 0, Unusable: flags&unusableFlags != 0,
		})
	}
	return addresses, err
}

// DefaultRoute is the first default route of the main table.
type DefaultRoute struct {
	// Index is that of the device, 0 if there is no default route.
	Index int
	// Source is the address that the route prefers, if it names one. Gateway is its next hop, if it has one of its own family.
	Source, Gateway netip.Addr
}

// DefaultRoutes returns the first default route of IPv4 and that of IPv6.
func (n *Namespace) DefaultRoutes() (ipv4, ipv6 DefaultRoute, err error) {
	routes, err := n.tableRoutes("the main table", uint32Attr(unix.RTA_TABLE, unix.RT_TABLE_MAIN), func(r parsedRoute) bool {
		return r.Table == unix.RT_TABLE_MAIN && r.Destination.Bits() == 0 && r.Type == unix.RTN_UNICAST
	})
	for _, r := range slices.Backward(routes) { // The first of each family counts.
		route := DefaultRoute{Index: r.Index, Source: r.Source, Gateway: r.Gateway}
		if r.Is6() {
			ipv6 = route
		} else {
			ipv4 = route
		}
	}
	return ipv4, ipv6, err
}
