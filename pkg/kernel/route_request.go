package kernel

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// removeRoutes returns the requests that delete the routes that the kernel makes of addresses. It
// has one for each address that had no such route when it was recorded.
func removeRoutes(index int, addresses []netstate.Address) []rtnl.Message {
	return removeKernelRoutes(index, slices.DeleteFunc(slices.Clone(addresses), func(a netstate.Address) bool { return !a.WithoutRoute }))
}

// removeKernelRoutes returns the requests that delete the routes that the kernel makes of the addresses.
func removeKernelRoutes(index int, addresses []netstate.Address) []rtnl.Message {
	var batch []rtnl.Message
	for _, a := range addresses {
		network := a.Network()
		request := nl.NewNetlinkRequest(unix.RTM_DELROUTE, 0)
		m := &nl.RtMsg{RtMsg: unix.RtMsg{
			Family: uint8(familyOf(network.Addr())), Dst_len: uint8(network.Bits()), Table: unix.RT_TABLE_MAIN,
			Protocol: unix.RTPROT_KERNEL, Scope: unix.RT_SCOPE_NOWHERE,
		}}
		request.AddData(m)
		request.AddData(nl.NewRtAttr(unix.RTA_DST, network.Addr().AsSlice()))
		addNumber(request, unix.RTA_OIF, index)
		batch = append(batch, rtnl.Message{Request: request, Action: "remove the kernel's route " + network.String(), MayLack: true})
	}
	return batch
}

// addRoutes returns the requests that make the routes of the device of that index, in an order in which the kernel accepts
// them. With asRecorded, a route that was the first of its slot becomes the first again, and the others stand behind what is
// there, in their order. Without it, each stands before its equals, as with the reference plugins.
func (n *Namespace) addRoutes(index int, routes []netstate.Route, asRecorded bool) ([]rtnl.Message, error) {
	return requestsOf(netstate.InOrder(routes), func(r netstate.Route) (rtnl.Message, error) {
		return n.addRoute(index, r, placeOf(r, asRecorded))
	})
}

// placeOf returns the flags that put a new route in its place. Without NLM_F_APPEND, the kernel puts an IPv4 route before its
// equals (fib_table_insert).
func placeOf(r netstate.Route, asRecorded bool) (flags int) {
	if asRecorded && !r.First {
		return unix.NLM_F_CREATE | unix.NLM_F_APPEND
	}
	return unix.NLM_F_CREATE
}

// addRoute returns the request that makes the route of the device of that index. The routes that
// are in its slot stay.
func (n *Namespace) addRoute(index int, r netstate.Route, flags int) (rtnl.Message, error) {
	request := nl.NewNetlinkRequest(unix.RTM_NEWROUTE, flags)
	action := "add route " + r.String()
	if err := n.fillRoute(request, index, r); err != nil {
		return rtnl.Message{}, fmt.Errorf("%s: %w", action, err)
	}
	return rtnl.Message{Request: request, Action: action}, nil
}

// deleteRoute returns the request that deletes exactly this route.
func (n *Namespace) deleteRoute(index int, r netstate.Route) (rtnl.Message, error) {
	request := nl.NewNetlinkRequest(unix.RTM_DELROUTE, 0)
	action := "remove route " + r.String()
	if r.Unsure {
		r.Protocol = unix.RTPROT_UNSPEC // Any: the recorded one is that of another leg.
	}
	if err := n.fillRoute(request, index, r); err != nil {
		return rtnl.Message{}, fmt.Errorf("%s: %w", action, err)
	}
	return rtnl.Message{Request: request, Action: action, MayLack: true}, nil
}

// fillRoute fills in the route of the device of that index. It returns ErrNoDevice if the route
// goes through another device that is not there.
func (n *Namespace) fillRoute(request *nl.NetlinkRequest, index int, r netstate.Route) error {
	index, err := n.indexOr(r.Device, index)
	if err != nil {
		return err
	}
	m := &nl.RtMsg{RtMsg: unix.RtMsg{
		Family: uint8(familyOf(r.Destination.Addr())), Dst_len: uint8(r.Destination.Bits()), Scope: r.Scope, Protocol: r.Protocol, Type: r.Type, Tos: r.TOS,
	}}
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
	if len(r.NextHops) == 0 {
		add(unix.RTA_OIF, nl.Uint32Attr(uint32(index)))
		addGateway(request.AddData, r, r.Gateway)
		return nil
	}
	hops, err := n.nextHops(index, r)
	if err != nil {
		return err
	}
	add(unix.RTA_MULTIPATH, hops)
	return nil
}

// indexOr returns the index of the device of that name, or the other index if there is no name.
func (n *Namespace) indexOr(name string, index int) (int, error) {
	if name == "" {
		return index, nil
	}
	return n.Index(name)
}

// addGateway adds the gateway, if there is one. A gateway of another family than the route is
// RTA_VIA.
func addGateway(add func(nl.NetlinkRequestData), r netstate.Route, gateway netip.Addr) {
	switch {
	case !gateway.IsValid():
	case gateway.Is6() && r.Destination.Addr().Is4():
		add(nl.NewRtAttr(unix.RTA_VIA, append(nl.Uint16Attr(unix.AF_INET6), gateway.AsSlice()...)))
	default:
		add(nl.NewRtAttr(unix.RTA_GATEWAY, gateway.AsSlice()))
	}
}

// nextHops returns the value of RTA_MULTIPATH: a list of struct rtnexthop, each followed by
// attributes of its own.
func (n *Namespace) nextHops(ifIndex int, r netstate.Route) ([]byte, error) {
	var list []byte
	for _, h := range r.NextHops {
		index, err := n.indexOr(h.Device, ifIndex)
		if err != nil {
			return nil, err
		}
		var attrs []byte
		addGateway(func(d nl.NetlinkRequestData) { attrs = append(attrs, d.Serialize()...) }, r, h.Gateway)
		var flags uint8
		if h.OnLink {
			flags = unix.RTNH_F_ONLINK
		}
		// struct rtnexthop: the length, the flags, the weight less one, the device.
		list = append(list, nl.Uint16Attr(uint16(unix.SizeofRtNexthop+len(attrs)))...)
		list = append(list, flags, uint8(h.Weight-1))
		list = append(append(list, nl.Uint32Attr(uint32(index))...), attrs...)
	}
	return list, nil
}

// metrics returns RTA_METRICS, or nil for a route without metrics.
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
