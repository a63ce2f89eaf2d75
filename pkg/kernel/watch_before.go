package kernel

import (
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/netstate"
)

// Event is an address or a route that came or went, in the form of a checkpoint. One of the two is set.
type Event struct {
	Deleted bool
	Address *netstate.Address
	Route   *netstate.Route
}

// SameObject reports whether both are about the same address or route.
func (t Event) SameObject(event Event) bool {
	switch {
	case t.Address != nil && event.Address != nil:
		return t.Address.SameAddress(*event.Address)
	case t.Route != nil && event.Route != nil:
		return t.Route.Slot() == event.Route.Slot() && t.Route.Gateway == event.Route.Gateway
	}
	return false
}

// addEvent handles what a message says about the addresses and routes of the device. When the device goes down, the kernel
// reports that before it drops them. So addEvent ignores everything after that report.
func (m *deviceChanges) addEvent(message *syscall.NetlinkMessage) {
	m.closed = m.closed || m.Down
	event := parseEvent(message)
	if m.closed || event.Address == nil && event.Route == nil {
		return
	}
	if m.Before = append(slices.DeleteFunc(m.Before, event.SameObject), event); len(m.Before) > maxBefore {
		m.Before, m.closed, m.TooMuch = nil, true, true
	}
}

// parseEvent returns the address or the route in a message, if a checkpoint can have it. It returns nothing for a route
// with several next hops: what the kernel has then depends on what was there before.
func parseEvent(message *syscall.NetlinkMessage) (event Event) {
	switch message.Header.Type {
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		a, err := parseAddress(message.Data)
		if err == nil && a.index != 0 && !a.kernels {
			event.Address = &a.Address
		}
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		route, err := parseRoute(message.Data)
		if err == nil && route.isPlain() {
			event.Route = &route.Route
		}
	}
	event.Deleted = message.Header.Type == unix.RTM_DELADDR || message.Header.Type == unix.RTM_DELROUTE
	return event
}

// isPlain reports whether a checkpoint can have the route, and whether the message has all of it.
func (r parsedRoute) isPlain() bool {
	return !r.skip && r.hasPlace() && len(r.hops) == 0 && len(r.undescribable) == 0 && !r.expires && !r.encapsulated &&
		!slices.Contains(kernelProtocols, r.Protocol) && r.Table != unix.RT_TABLE_LOCAL && netstate.DaemonOf(r.Protocol) == ""
}

// hasPlace says that the route goes through a device and stays until somebody takes it away. Whoever uses a link-local address
// names the device, so its routes do not count.
func (r parsedRoute) hasPlace() bool {
	return r.oif != 0 && r.Table != unix.RT_TABLE_LOCAL && !r.expires &&
		r.Protocol != unix.RTPROT_RA && r.Protocol != unix.RTPROT_REDIRECT &&
		!r.Destination.Addr().IsLinkLocalUnicast() && !r.Destination.Addr().IsMulticast()
}
