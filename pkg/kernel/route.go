package kernel

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// parsedRoute is a route with the indices of its devices.
type parsedRoute struct {
	netstate.Route
	oif int
	// hops are the indices of the devices of NextHops.
	hops []int
	// undescribable names what cannot be described.
	undescribable []string
	// place is the position in the kernel's list.
	place int
	// expires says that the route has a lifetime.
	expires bool
	// encapsulated says that the route wraps packets, or one of its next hops does (seg6, mpls, ip). It is
	// never among the captured routes.
	encapsulated bool
	// skip says that the route is of the kernel's cache, and of no table.
	skip bool
}

// isKernelRoute says that the kernel made the route and will make it again. table is that of the VRF of
// the device, 0 for none. In any other table the route is a copy that somebody made, as the sbr
// plugin does.
func (r parsedRoute) isKernelRoute(table uint32) bool {
	return slices.Contains(kernelProtocols, r.Protocol) && (r.Table == unix.RT_TABLE_MAIN || r.Table == unix.RT_TABLE_LOCAL || r.Table == table)
}

func (r parsedRoute) uses(index int) bool {
	return r.oif == index || slices.Contains(r.hops, index)
}

// kernelProtocols are the protocols of routes that the kernel makes.
var kernelProtocols = []uint8{unix.RTPROT_KERNEL, unix.RTPROT_RA, unix.RTPROT_REDIRECT}

// rtaNHID is RTA_NH_ID (linux/rtnetlink.h).
const rtaNHID = 30

// lostAttributes are the attributes that cannot be described, with their names for people.
var lostAttributes = map[uint16]string{
	unix.RTA_ENCAP: "encapsulation", rtaNHID: "nexthop object",
	unix.RTA_NEWDST: "new destination", unix.RTA_FLOW: "realm", unix.RTA_TTL_PROPAGATE: "TTL propagation",
}

// expiresAt is the offset of rta_expires in struct rta_cacheinfo (linux/rtnetlink.h).
const expiresAt = 8

// parseRoute returns the route in an answer.
func parseRoute(payload []byte) (r parsedRoute, err error) {
	if err := rtnl.CheckHeader(payload, unix.SizeofRtMsg); err != nil {
		return r, err
	}
	m := nl.DeserializeRtMsg(payload)
	if m.Flags&unix.RTM_F_CLONED != 0 {
		return parsedRoute{skip: true}, nil
	}
	r.Route = netstate.Route{
		Table: uint32(m.Table), Scope: m.Scope, Protocol: m.Protocol, Type: m.Type, TOS: m.Tos,
		OnLink:      m.Flags&unix.RTNH_F_ONLINK != 0,
		Destination: unspecified(int(m.Family)),
	}
	fields := append(routeFields(&r.Route, m), field{unix.RTA_OIF, &r.oif})
	err = rtnl.EachAttribute(payload, unix.SizeofRtMsg, func(a *rtnl.Attribute) {
		switch {
		case readField(fields, a):
		case a.Type() == unix.RTA_CACHEINFO:
			r.expires = a.Uint32At(expiresAt) != 0
		case a.Type() == unix.RTA_MULTIPATH:
			r.parseHops(a)
		default:
			r.parseHopAttribute(a, &r.Gateway)
		}
	})
	return r, err
}

// routeFields are the attributes of a route that are alike in requests and answers.
func routeFields(r *netstate.Route, header *nl.RtMsg) []field {
	return []field{
		{unix.RTA_DST, prefixed{&r.Destination, &header.Dst_len}}, {unix.RTA_SRC, prefixed{&r.From, &header.Src_len}},
		{unix.RTA_PREFSRC, &r.Source}, {unix.RTA_TABLE, &r.Table}, {unix.RTA_PRIORITY, &r.Priority}, {unix.RTA_PREF, &r.Preference},
		{unix.RTA_METRICS, metrics{r}},
	}
}

// metrics are the metrics of a route.
type metrics struct{ *netstate.Route }

// fields are the metrics that have fields of their own.
func (m metrics) fields() []field {
	return []field{{rtaxMTU, &m.MTU}, {rtaxAdvMSS, &m.AdvMSS}, {rtaxCongestionControl, &m.CongestionControl}}
}

// parseHopAttribute reads an attribute that a route and each of several next hops can have, or notes that it cannot be described.
func (r *parsedRoute) parseHopAttribute(a *rtnl.Attribute, gateway *netip.Addr) {
	switch a.Type() {
	case unix.RTA_GATEWAY:
		*gateway = a.Address()
	case unix.RTA_VIA:
		*gateway = parseVia(a)
	case unix.RTA_ENCAP:
		r.encapsulated = true
	}
	if name, ok := lostAttributes[a.Type()]; ok {
		r.undescribable = append(r.undescribable, name)
	}
}

// parseVia returns the address in a struct rtvia, which is a family of two bytes and the address.
func parseVia(a *rtnl.Attribute) netip.Addr {
	const sizeofFamily = 2
	addr, ok := netip.AddrFromSlice(a.Value()[min(sizeofFamily, len(a.Value())):])
	if !ok {
		a.Fail(fmt.Errorf("%w: a gateway of length %d", rtnl.ErrMalformed, len(a.Value())))
	}
	return addr
}

func unspecified(family int) netip.Prefix {
	if family == unix.AF_INET {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// Metrics of a route (linux/rtnetlink.h, RTAX_*) that have fields of their own.
const (
	rtaxMTU               = 2
	rtaxAdvMSS            = 8
	rtaxCongestionControl = 16
)

func (m metrics) read(list *rtnl.Attribute) {
	fields := m.fields()
	list.Each(func(a *rtnl.Attribute) {
		number := int(a.Type())
		if readField(fields, a) || number >= len(netstate.RouteMetrics) || netstate.RouteMetrics[number] == "" {
			return
		}
		if m.Metrics == nil {
			m.Metrics = map[string]uint32{}
		}
		m.Metrics[netstate.RouteMetrics[number]] = a.Uint32()
	})
}

func (m metrics) write() []byte {
	list := nl.NewRtAttr(0, nil)
	addFields(list, m.fields()...)
	for number, name := range netstate.RouteMetrics {
		if value, ok := m.Metrics[name]; ok && name != "" {
			list.AddRtAttr(number, nl.Uint32Attr(value))
		}
	}
	return valueOf(list)
}

// parseHops reads the next hops of a multipath route. They are a list of struct rtnexthop, each
// followed by attributes of its own.
func (r *parsedRoute) parseHops(list *rtnl.Attribute) {
	for b := list.Value(); len(b) >= unix.SizeofRtNexthop; {
		// The length, the flags, the weight less one, and the device.
		size := int(binary.NativeEndian.Uint16(b))
		if size < unix.SizeofRtNexthop || size > len(b) {
			list.Fail(fmt.Errorf("%w: a next hop of length %d, where %d bytes are left", rtnl.ErrMalformed, size, len(b)))
			return
		}
		hop := netstate.NextHop{OnLink: b[2]&unix.RTNH_F_ONLINK != 0, Weight: int(b[3]) + 1}
		err := rtnl.EachAttribute(b[:size], unix.SizeofRtNexthop, func(a *rtnl.Attribute) { r.parseHopAttribute(a, &hop.Gateway) })
		if list.Fail(err); err != nil {
			return
		}
		r.NextHops, r.hops = append(r.NextHops, hop), append(r.hops, int(binary.NativeEndian.Uint32(b[4:])))
		b = b[min(len(b), (size+unix.RTNH_ALIGNTO-1)&^(unix.RTNH_ALIGNTO-1)):]
	}
}

// DefaultRouteDevice returns the index of the device of the first default route of the main table.
// An IPv4 route comes before an IPv6 route. The index is 0 if there is none.
func (n *Namespace) DefaultRouteDevice() (int, error) {
	ipv4, ipv6, err := n.DefaultRoutes()
	return cmp.Or(ipv4.Index, ipv6.Index), err
}
