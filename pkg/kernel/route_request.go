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
		header := &nl.RtMsg{RtMsg: unix.RtMsg{
			Family: uint8(familyOf(network.Addr())), Dst_len: uint8(network.Bits()), Table: unix.RT_TABLE_MAIN,
			Protocol: unix.RTPROT_KERNEL, Scope: unix.RT_SCOPE_NOWHERE,
		}}
		m := newMessage(unix.RTM_DELROUTE, 0, "remove the kernel's route "+network.String(), header, uint32Attr(unix.RTA_OIF, index))
		m.AddRtAttr(unix.RTA_DST, network.Addr().AsSlice())
		m.MayLack = true
		batch = append(batch, m)
	}
	return batch
}

// addRoutes returns the requests that make the routes of the device of that index, in an order in which the kernel accepts
// them. With asRecorded, a route that was the first of its slot becomes the first again, and the others stand behind what is
// there, in their order, and a route through another device may be there still. Without it, each stands before its equals, as with the
// reference plugins.
func (n *Namespace) addRoutes(index int, routes []netstate.Route, asRecorded bool) ([]rtnl.Message, error) {
	messages := requestsOf(netstate.InOrder(routes), func(r netstate.Route) (rtnl.Message, error) {
		m, err := n.addRoute(index, r, placeOf(r, asRecorded))
		m.MayExist = asRecorded && r.Device != ""
		return m, err
	})
	return messages.batch, messages.err
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
	return n.routeMessage(unix.RTM_NEWROUTE, flags, "add route ", index, r)
}

// deleteRoute returns the request that deletes exactly this route.
func (n *Namespace) deleteRoute(index int, r netstate.Route) (rtnl.Message, error) {
	if r.Unsure {
		r.Protocol = unix.RTPROT_UNSPEC // Any: the recorded one is that of another leg.
	}
	m, err := n.routeMessage(unix.RTM_DELROUTE, 0, "remove route ", index, r)
	m.MayLack = true
	return m, err
}

// routeMessage returns a request about the route of the device of that index. It returns ErrNoDevice if the route
// goes through another device that is not there.
func (n *Namespace) routeMessage(kind, flags int, verb string, index int, r netstate.Route) (rtnl.Message, error) {
	header := &nl.RtMsg{RtMsg: unix.RtMsg{
		Family: uint8(familyOf(r.Destination.Addr())), Scope: r.Scope, Protocol: r.Protocol, Type: r.Type, Tos: r.TOS,
	}}
	if r.OnLink {
		header.Flags = unix.RTNH_F_ONLINK
	}
	m := newMessage(kind, flags, verb+r.String(), header)
	r.Destination, r.From = r.Destination.Masked(), r.From.Masked()
	addFields(m, routeFields(&r, header)...)
	index, err := n.indexOr(r.Device, index)
	if len(r.NextHops) == 0 {
		m.Add(uint32Attr(unix.RTA_OIF, index))
		addGateway(m, r, r.Gateway)
	} else if err == nil {
		var hops []byte
		hops, err = n.nextHops(index, r)
		m.AddRtAttr(unix.RTA_MULTIPATH, hops)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", m.Action, err)
	}
	return m, err
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
func addGateway(list attributeList, r netstate.Route, gateway netip.Addr) {
	if gateway.Is6() && !r.Is6() {
		list.AddRtAttr(unix.RTA_VIA, append(nl.Uint16Attr(unix.AF_INET6), gateway.AsSlice()...))
		return
	}
	addFields(list, field{unix.RTA_GATEWAY, &gateway})
}

// nextHops returns the value of RTA_MULTIPATH: a list of struct rtnexthop, each followed by
// attributes of its own.
func (n *Namespace) nextHops(ifIndex int, r netstate.Route) ([]byte, error) {
	var hops []byte
	for _, h := range r.NextHops {
		index, err := n.indexOr(h.Device, ifIndex)
		if err != nil {
			return nil, err
		}
		list := nl.NewRtAttr(0, nil)
		addGateway(list, r, h.Gateway)
		attrs := valueOf(list)
		var flags uint8
		if h.OnLink {
			flags = unix.RTNH_F_ONLINK
		}
		// struct rtnexthop: the length, the flags, the weight less one, the device.
		hops = append(hops, nl.Uint16Attr(uint16(unix.SizeofRtNexthop+len(attrs)))...)
		hops = append(hops, flags, uint8(h.Weight-1))
		hops = append(append(hops, nl.Uint32Attr(uint32(index))...), attrs...)
	}
	return hops, nil
}
