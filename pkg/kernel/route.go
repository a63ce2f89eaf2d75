package kernel

import (
	"errors"
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
	// hops are the devices of NextHops.
	hops []int
	// lost is what can't be described.
	lost []string
	// place is that in the kernel's list.
	place int
	// expires says that it has a lifetime.
	expires bool
	// skip says that it is none of a table, but of the kernel's cache.
	skip bool
}

// isKernels says that the kernel made the route, and makes it again. In any other table
// it is a copy that somebody made, as the sbr plugin does.
func (r parsedRoute) isKernels(table uint32) bool {
	return slices.Contains(kernelsOwn, r.Protocol) && (r.Table == unix.RT_TABLE_MAIN || r.Table == unix.RT_TABLE_LOCAL || r.Table == table)
}

func (r parsedRoute) through(index int) bool {
	return r.oif == index || slices.Contains(r.hops, index)
}

// kernelsOwn are the protocols of routes that the kernel makes.
var kernelsOwn = []uint8{unix.RTPROT_KERNEL, unix.RTPROT_RA, unix.RTPROT_REDIRECT}

// rtaNHID is RTA_NH_ID (linux/rtnetlink.h).
const rtaNHID = 30

// lostAttributes are those that can't be described, by what they are.
var lostAttributes = map[uint16]string{
	unix.RTA_ENCAP: "encapsulation", rtaNHID: "nexthop object",
	unix.RTA_NEWDST: "new destination", unix.RTA_FLOW: "realm", unix.RTA_TTL_PROPAGATE: "TTL propagation",
}

// expiresAt is where struct rta_cacheinfo has rta_expires (linux/rtnetlink.h).
const expiresAt = 8

// parseRoute returns the route in an answer.
func parseRoute(payload []byte) (r parsedRoute, err error) {
	if len(payload) < unix.SizeofRtMsg {
		return r, errors.New("answer too short")
	}
	m := nl.DeserializeRtMsg(payload)
	if m.Flags&unix.RTM_F_CLONED != 0 {
		return parsedRoute{skip: true}, nil
	}
	r.Route = netstate.Route{
		Table: uint32(m.Table), Scope: m.Scope, Protocol: m.Protocol, Type: m.Type, TOS: m.Tos,
		OnLink:      m.Flags&unix.RTNH_F_ONLINK != 0,
		Destination: unspecified(m.Family),
	}
	err = eachAttribute(payload[m.Len():], func(attr uint16, value []byte) error { return r.attribute(attr, value, m) })
	return r, err
}

func (r *parsedRoute) attribute(attr uint16, value []byte, m *nl.RtMsg) (err error) {
	native := nl.NativeEndian()
	switch attr {
	case unix.RTA_DST:
		r.Destination = prefixOf(value, m.Dst_len)
	case unix.RTA_SRC:
		r.From = prefixOf(value, m.Src_len)
	case unix.RTA_GATEWAY:
		r.Gateway, _ = netip.AddrFromSlice(value)
	case unix.RTA_VIA:
		r.Gateway = parseVia(value)
	case unix.RTA_PREFSRC:
		r.Source, _ = netip.AddrFromSlice(value)
	case unix.RTA_OIF:
		r.oif = int(native.Uint32(value))
	case unix.RTA_TABLE:
		r.Table = native.Uint32(value)
	case unix.RTA_PRIORITY:
		r.Priority = native.Uint32(value)
	case unix.RTA_PREF:
		r.Preference = value[0]
	case unix.RTA_CACHEINFO:
		r.expires = len(value) >= expiresAt+4 && native.Uint32(value[expiresAt:]) != 0
	case unix.RTA_METRICS:
		err = parseMetrics(value, &r.Route)
	case unix.RTA_MULTIPATH:
		err = r.parseHops(value)
	default:
		if what, ok := lostAttributes[attr]; ok {
			r.lost = append(r.lost, what)
		}
	}
	return err
}

// parseVia returns the address in a struct rtvia: a family and the address.
func parseVia(b []byte) netip.Addr {
	if len(b) < 2 {
		return netip.Addr{}
	}
	addr, _ := netip.AddrFromSlice(b[2:])
	return addr
}

func unspecified(family uint8) netip.Prefix {
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

func parseMetrics(b []byte, r *netstate.Route) error {
	metrics, err := nl.ParseRouteAttr(b)
	for _, metric := range metrics {
		switch number := int(metric.Attr.Type); {
		case number == rtaxCongestionControl:
			r.CongestionControl = nl.BytesToString(metric.Value)
		case number == rtaxMTU:
			r.MTU = nl.NativeEndian().Uint32(metric.Value)
		case number == rtaxAdvMSS:
			r.AdvMSS = nl.NativeEndian().Uint32(metric.Value)
		case number < len(netstate.RouteMetrics) && netstate.RouteMetrics[number] != "":
			if r.Metrics == nil {
				r.Metrics = map[string]uint32{}
			}
			r.Metrics[netstate.RouteMetrics[number]] = nl.NativeEndian().Uint32(metric.Value)
		}
	}
	return err
}

// parseHops reads the next hops of a multipath route.
func (r *parsedRoute) parseHops(b []byte) error {
	for len(b) >= unix.SizeofRtNexthop {
		hop := nl.DeserializeRtNexthop(b)
		size := int(hop.RtNexthop.Len)
		if size < unix.SizeofRtNexthop || size > len(b) {
			return unix.EBADMSG
		}
		attrs, err := nl.ParseRouteAttr(b[unix.SizeofRtNexthop:size])
		if err != nil {
			return err
		}
		h := netstate.NextHop{Weight: int(hop.Hops) + 1, OnLink: hop.Flags&unix.RTNH_F_ONLINK != 0}
		for _, attr := range attrs {
			switch number := attr.Attr.Type & nlaTypeMask; number {
			case unix.RTA_GATEWAY:
				h.Gateway, _ = netip.AddrFromSlice(attr.Value)
			case unix.RTA_VIA:
				h.Gateway = parseVia(attr.Value)
			default:
				if what, ok := lostAttributes[number]; ok {
					r.lost = append(r.lost, what)
				}
			}
		}
		r.NextHops, r.hops = append(r.NextHops, h), append(r.hops, int(hop.Ifindex))
		b = b[min(len(b), (size+unix.RTNH_ALIGNTO-1)&^(unix.RTNH_ALIGNTO-1)):]
	}
	return nil
}

// DefaultRouteDevice returns the index of the device of the main table's first
// default route, IPv4 before IPv6, or 0 if there is none.
func (n *Namespace) DefaultRouteDevice() (int, error) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		device := 0
		request := nl.NewNetlinkRequest(unix.RTM_GETROUTE, 0)
		request.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family), Table: unix.RT_TABLE_MAIN}})
		list := rtnl.Message{Request: request, What: "list routes"}
		err := n.socket.Dump(list, func() { device = 0 }, func(payload []byte) error {
			m := nl.DeserializeRtMsg(payload)
			if m.Dst_len != 0 || m.Table != unix.RT_TABLE_MAIN || m.Type != unix.RTN_UNICAST || device != 0 {
				return nil
			}
			attrs, err := nl.ParseRouteAttr(payload[m.Len():])
			for _, attr := range attrs {
				if attr.Attr.Type == unix.RTA_OIF {
					device = int(nl.NativeEndian().Uint32(attr.Value))
				}
			}
			return err
		})
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return 0, err
		}
		if device != 0 {
			return device, nil
		}
	}
	return 0, nil
}
