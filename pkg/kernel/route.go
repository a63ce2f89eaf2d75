package kernel

import (
	"errors"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/netstate"
)

// routes returns the routes through the device that somebody made. Those that
// the kernel makes by itself follow from the addresses, and those from router
// advertisements come again.
func (n *Namespace) routes(index int) ([]netstate.Route, error) {
	var all []netstate.Route
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		var routes []netstate.Route
		list := message{getRoutes(family, index), "list routes"}
		err := n.conn.dump(list, func() { routes = nil }, func(payload []byte) error {
			parsed, err := parseRoute(payload, index)
			routes = append(routes, parsed...)
			return err
		})
		if err != nil {
			return nil, err
		}
		all = append(all, routes...)
	}
	return all, nil
}

func getRoutes(family, index int) *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(unix.RTM_GETROUTE, 0)
	request.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family)}})
	request.AddData(nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(uint32(index))))
	return request
}

// parseRoute returns the route in an answer if it goes through the device and
// the kernel didn't make it. An IPv6 route with several next hops comes as one:
// it is several routes in one slot, and is added as such.
func parseRoute(payload []byte, index int) ([]netstate.Route, error) {
	m := nl.DeserializeRtMsg(payload)
	if m.Flags&unix.RTM_F_CLONED != 0 || m.Protocol == unix.RTPROT_KERNEL || m.Protocol == unix.RTPROT_RA {
		return nil, nil
	}
	attrs, err := nl.ParseRouteAttr(payload[m.Len():])
	if err != nil {
		return nil, err
	}
	native := nl.NativeEndian()
	r := netstate.Route{
		Table: uint32(m.Table), Scope: m.Scope, Protocol: m.Protocol, Type: m.Type, TOS: m.Tos,
		OnLink:      m.Flags&unix.RTNH_F_ONLINK != 0,
		Destination: unspecified(m.Family),
	}
	var oif int
	var hops []netstate.Route
	for _, attr := range attrs {
		switch attr.Attr.Type {
		case unix.RTA_DST:
			dst, _ := netip.AddrFromSlice(attr.Value)
			r.Destination = netip.PrefixFrom(dst, int(m.Dst_len))
		case unix.RTA_GATEWAY:
			r.Gateway, _ = netip.AddrFromSlice(attr.Value)
		case unix.RTA_PREFSRC:
			r.Source, _ = netip.AddrFromSlice(attr.Value)
		case unix.RTA_OIF:
			oif = int(native.Uint32(attr.Value))
		case unix.RTA_TABLE:
			r.Table = native.Uint32(attr.Value)
		case unix.RTA_PRIORITY:
			r.Priority = native.Uint32(attr.Value)
		case unix.RTA_METRICS:
			err = parseMetrics(attr.Value, &r)
		case unix.RTA_MULTIPATH:
			hops, err = parseHops(attr.Value, index)
		}
		if err != nil {
			return nil, err
		}
	}
	if oif == index {
		return []netstate.Route{r}, nil
	}
	for i, hop := range hops {
		hops[i] = r
		hops[i].Gateway, hops[i].OnLink = hop.Gateway, hop.OnLink
	}
	return hops, nil
}

func unspecified(family uint8) netip.Prefix {
	if family == unix.AF_INET {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

// Metrics of a route (linux/rtnetlink.h, RTAX_*).
const (
	rtaxMTU    = 2
	rtaxAdvMSS = 8
)

func parseMetrics(b []byte, r *netstate.Route) error {
	metrics, err := nl.ParseRouteAttr(b)
	for _, metric := range metrics {
		switch metric.Attr.Type {
		case rtaxMTU:
			r.MTU = nl.NativeEndian().Uint32(metric.Value)
		case rtaxAdvMSS:
			r.AdvMSS = nl.NativeEndian().Uint32(metric.Value)
		}
	}
	return err
}

// parseHops returns the next hops of a multipath route that go through the
// device.
func parseHops(b []byte, index int) ([]netstate.Route, error) {
	var hops []netstate.Route
	for len(b) >= unix.SizeofRtNexthop {
		hop := nl.DeserializeRtNexthop(b)
		size := int(hop.RtNexthop.Len)
		if size < unix.SizeofRtNexthop || size > len(b) {
			return nil, unix.EBADMSG
		}
		attrs, err := nl.ParseRouteAttr(b[unix.SizeofRtNexthop:size])
		if err != nil {
			return nil, err
		}
		r := netstate.Route{OnLink: hop.Flags&unix.RTNH_F_ONLINK != 0}
		for _, attr := range attrs {
			if attr.Attr.Type == unix.RTA_GATEWAY {
				r.Gateway, _ = netip.AddrFromSlice(attr.Value)
			}
		}
		if int(hop.Ifindex) == index {
			hops = append(hops, r)
		}
		b = b[min(len(b), (size+unix.RTNH_ALIGNTO-1)&^(unix.RTNH_ALIGNTO-1)):]
	}
	return hops, nil
}

// addRoute returns the request that makes the route. replace takes the place of
// what is in its slot; otherwise the route stands beside it.
func addRoute(index int, r netstate.Route, replace bool) message {
	flags := unix.NLM_F_CREATE
	if replace {
		flags |= unix.NLM_F_REPLACE
	}
	request := nl.NewNetlinkRequest(unix.RTM_NEWROUTE, flags)
	m := &nl.RtMsg{RtMsg: unix.RtMsg{
		Family: unix.AF_INET, Dst_len: uint8(r.Destination.Bits()), Scope: r.Scope, Protocol: r.Protocol, Type: r.Type, Tos: r.TOS,
	}}
	if r.Destination.Addr().Is6() {
		m.Family = unix.AF_INET6
	}
	if r.OnLink {
		m.Flags = unix.RTNH_F_ONLINK
	}
	request.AddData(m)
	if r.Destination.Bits() > 0 {
		request.AddData(nl.NewRtAttr(unix.RTA_DST, r.Destination.Masked().Addr().AsSlice()))
	}
	if r.Gateway.IsValid() {
		request.AddData(nl.NewRtAttr(unix.RTA_GATEWAY, r.Gateway.AsSlice()))
	}
	if r.Source.IsValid() {
		request.AddData(nl.NewRtAttr(unix.RTA_PREFSRC, r.Source.AsSlice()))
	}
	number := func(attr int, value uint32) { request.AddData(nl.NewRtAttr(attr, nl.Uint32Attr(value))) }
	number(unix.RTA_OIF, uint32(index))
	number(unix.RTA_TABLE, r.Table)
	if r.Priority != 0 {
		number(unix.RTA_PRIORITY, r.Priority)
	}
	if r.MTU != 0 || r.AdvMSS != 0 {
		request.AddData(metrics(r))
	}
	return message{request, "add route " + r.String()}
}

func metrics(r netstate.Route) *nl.RtAttr {
	attr := nl.NewRtAttr(unix.RTA_METRICS, nil)
	if r.MTU != 0 {
		attr.AddRtAttr(rtaxMTU, nl.Uint32Attr(r.MTU))
	}
	if r.AdvMSS != 0 {
		attr.AddRtAttr(rtaxAdvMSS, nl.Uint32Attr(r.AdvMSS))
	}
	return attr
}

// DefaultRouteDevice returns the index of the device of the main table's first
// default route, IPv4 before IPv6, or 0 if there is none.
func (n *Namespace) DefaultRouteDevice() (int, error) {
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		device := 0
		request := nl.NewNetlinkRequest(unix.RTM_GETROUTE, 0)
		request.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family), Table: unix.RT_TABLE_MAIN}})
		list := message{request, "list routes"}
		err := n.conn.dump(list, func() { device = 0 }, func(payload []byte) error {
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
