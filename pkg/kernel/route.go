package kernel

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/netstate"
)

// routes returns the routes through the device that somebody made, and says what of
// them can't be described. Those that the kernel makes by itself follow from the
// addresses, and those from router advertisements come again; it makes them in the main
// and the local table, or in the device's own, which is a VRF's (0 for none). own are
// the prefixes of those that it made of addresses.
func (n *Namespace) routes(index int, families []int, table uint32) (all []netstate.Route, own []netip.Prefix, notes []string, err error) {
	for _, family := range families {
		var parsed []parsedRoute
		list := message{request: getRoutes(family, index), what: "list routes"}
		err := n.conn.dump(list, func() { parsed = nil }, func(payload []byte) error {
			r, err := parseRoute(payload)
			if err == nil && r.through(index) {
				parsed = append(parsed, r)
			}
			return err
		})
		if err != nil {
			return nil, nil, nil, err
		}
		for _, r := range parsed {
			if r.isKernels(table) {
				own = append(own, r.Destination)
				continue
			}
			route, err := n.named(r, index)
			if err != nil {
				return nil, nil, nil, err
			}
			all = append(all, route)
			for _, lost := range r.lost {
				notes = append(notes, fmt.Sprintf("route %s: its %s", route, lost))
			}
		}
	}
	return all, own, notes, nil
}

func getRoutes(family, index int) *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(unix.RTM_GETROUTE, 0)
	request.AddData(&nl.RtMsg{RtMsg: unix.RtMsg{Family: uint8(family)}})
	request.AddData(nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(uint32(index))))
	return request
}

// parsedRoute is a route with the indices of its devices.
type parsedRoute struct {
	netstate.Route
	oif int
	// hops are the devices of NextHops.
	hops []int
	// lost is what can't be described.
	lost []string
	// skip says that it is none of a table, but of the kernel's cache.
	skip bool
}

// isKernels says that the kernel made the route, and makes it again. In any other table
// it is a copy that somebody made, as the sbr plugin does.
func (r parsedRoute) isKernels(table uint32) bool {
	return slices.Contains(kernelsOwn, r.Protocol) && (r.Table == unix.RT_TABLE_MAIN || r.Table == unix.RT_TABLE_LOCAL || r.Table == table)
}

func (r parsedRoute) through(index int) bool {
	return !r.skip && (r.oif == index || slices.Contains(r.hops, index))
}

// named fills in the names of the other devices that the route goes through.
func (n *Namespace) named(r parsedRoute, own int) (netstate.Route, error) {
	for i, hop := range r.hops {
		if hop == own {
			continue
		}
		device, err := n.linkByIndex(hop)
		if err != nil {
			return r.Route, fmt.Errorf("next hop of route %s: %w", r.Route, err)
		}
		r.NextHops[i].Device = device.name
	}
	return r.Route, nil
}

// kernelsOwn are the protocols of routes that the kernel makes.
var kernelsOwn = []uint8{unix.RTPROT_KERNEL, unix.RTPROT_RA, unix.RTPROT_REDIRECT}

// rtaNHID is RTA_NH_ID (linux/rtnetlink.h).
const rtaNHID = 30

// lostAttributes are those that can't be described, by what they are.
var lostAttributes = map[uint16]string{
	unix.RTA_ENCAP: "encapsulation", rtaNHID: "nexthop object", unix.RTA_EXPIRES: "time to live",
	unix.RTA_NEWDST: "new destination", unix.RTA_FLOW: "realm", unix.RTA_TTL_PROPAGATE: "TTL propagation",
}

// parseRoute returns the route in an answer.
func parseRoute(payload []byte) (r parsedRoute, err error) {
	if len(payload) < unix.SizeofRtMsg {
		return r, errors.New("answer too short")
	}
	m := nl.DeserializeRtMsg(payload)
	if m.Flags&unix.RTM_F_CLONED != 0 {
		return parsedRoute{skip: true}, nil
	}
	attrs, err := nl.ParseRouteAttr(payload[m.Len():])
	if err != nil {
		return r, err
	}
	r.Route = netstate.Route{
		Table: uint32(m.Table), Scope: m.Scope, Protocol: m.Protocol, Type: m.Type, TOS: m.Tos,
		OnLink:      m.Flags&unix.RTNH_F_ONLINK != 0,
		Destination: unspecified(m.Family),
	}
	for _, attr := range attrs {
		if err := r.attribute(attr.Attr.Type&nlaTypeMask, attr.Value, m); err != nil {
			return r, err
		}
	}
	return r, nil
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

// removeRoutes returns the requests that take away the routes that the kernel has made of
// addresses that had none before.
func removeRoutes(index int, addresses []netstate.Address) []message {
	var batch []message
	for _, a := range addresses {
		if !a.WithoutRoute {
			continue
		}
		network := a.Network()
		request := nl.NewNetlinkRequest(unix.RTM_DELROUTE, 0)
		m := &nl.RtMsg{RtMsg: unix.RtMsg{
			Family: unix.AF_INET, Dst_len: uint8(network.Bits()), Table: unix.RT_TABLE_MAIN,
			Protocol: unix.RTPROT_KERNEL, Scope: unix.RT_SCOPE_NOWHERE,
		}}
		if network.Addr().Is6() {
			m.Family = unix.AF_INET6
		}
		request.AddData(m)
		request.AddData(nl.NewRtAttr(unix.RTA_DST, network.Addr().AsSlice()))
		request.AddData(nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(uint32(index))))
		batch = append(batch, message{request: request, what: "remove the kernel's route " + network.String(), mayLack: true})
	}
	return batch
}

// addRoutes returns the requests that make the routes through the device of that
// index, in an order in which the kernel takes them.
func (n *Namespace) addRoutes(index int, routes []netstate.Route) ([]message, error) {
	var batch []message
	var errs []error
	for _, r := range netstate.InOrder(routes) {
		m, err := n.addRoute(index, r, false)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		batch = append(batch, m)
	}
	return batch, errors.Join(errs...)
}

// addRoute returns the request that makes the route. replace takes the place of
// what is in its slot; otherwise the route stands beside it.
func (n *Namespace) addRoute(index int, r netstate.Route, replace bool) (message, error) {
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
	add := func(attr int, value []byte) { request.AddData(nl.NewRtAttr(attr, value)) }
	if r.Destination.Bits() > 0 {
		add(unix.RTA_DST, r.Destination.Masked().Addr().AsSlice())
	}
	if r.From.IsValid() {
		m.Src_len = uint8(r.From.Bits())
		add(unix.RTA_SRC, r.From.Masked().Addr().AsSlice())
	}
	if r.Source.IsValid() {
		add(unix.RTA_PREFSRC, r.Source.AsSlice())
	}
	add(unix.RTA_TABLE, nl.Uint32Attr(r.Table))
	if r.Priority != 0 {
		add(unix.RTA_PRIORITY, nl.Uint32Attr(r.Priority))
	}
	if r.Preference != 0 {
		add(unix.RTA_PREF, nl.Uint8Attr(r.Preference))
	}
	if attr := metrics(r); attr != nil {
		request.AddData(attr)
	}
	what := "add route " + r.String()
	if len(r.NextHops) == 0 {
		add(unix.RTA_OIF, nl.Uint32Attr(uint32(index)))
		addGateway(request.AddData, r, r.Gateway)
		return message{request: request, what: what}, nil
	}
	hops, err := n.nextHops(index, r)
	if err != nil {
		return message{}, fmt.Errorf("%s: %w", what, err)
	}
	add(unix.RTA_MULTIPATH, hops)
	return message{request: request, what: what}, nil
}

// addGateway adds the gateway, if there is one, as RTA_VIA where it is of another
// family than the route.
func addGateway(add func(nl.NetlinkRequestData), r netstate.Route, gateway netip.Addr) {
	switch {
	case !gateway.IsValid():
	case gateway.Is6() && r.Destination.Addr().Is4():
		add(nl.NewRtAttr(unix.RTA_VIA, append(nl.Uint16Attr(unix.AF_INET6), gateway.AsSlice()...)))
	default:
		add(nl.NewRtAttr(unix.RTA_GATEWAY, gateway.AsSlice()))
	}
}

// nextHops returns the value of RTA_MULTIPATH: a list of struct rtnexthop, each with
// attributes of its own.
func (n *Namespace) nextHops(own int, r netstate.Route) ([]byte, error) {
	var list []byte
	for _, h := range r.NextHops {
		index := own
		if h.Device != "" {
			device, err := n.link(h.Device)
			if err != nil {
				return nil, err
			}
			index = device.index
		}
		var attrs []byte
		addGateway(func(d nl.NetlinkRequestData) { attrs = append(attrs, d.Serialize()...) }, r, h.Gateway)
		var flags uint8
		if h.OnLink {
			flags = unix.RTNH_F_ONLINK
		}
		// struct rtnexthop: length, flags, weight less one, device.
		list = append(list, nl.Uint16Attr(uint16(unix.SizeofRtNexthop+len(attrs)))...)
		list = append(list, flags, uint8(h.Weight-1))
		list = append(append(list, nl.Uint32Attr(uint32(index))...), attrs...)
	}
	return list, nil
}

// metrics returns RTA_METRICS, nil for none.
func metrics(r netstate.Route) *nl.RtAttr {
	var attr *nl.RtAttr
	add := func(number int, value []byte) {
		if attr == nil {
			attr = nl.NewRtAttr(unix.RTA_METRICS, nil)
		}
		attr.AddRtAttr(number, value)
	}
	if r.MTU != 0 {
		add(rtaxMTU, nl.Uint32Attr(r.MTU))
	}
	if r.AdvMSS != 0 {
		add(rtaxAdvMSS, nl.Uint32Attr(r.AdvMSS))
	}
	for number, name := range netstate.RouteMetrics {
		if value, ok := r.Metrics[name]; ok && name != "" {
			add(number, nl.Uint32Attr(value))
		}
	}
	if r.CongestionControl != "" {
		add(rtaxCongestionControl, nl.ZeroTerminated(r.CongestionControl))
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
		list := message{request: request, what: "list routes"}
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
