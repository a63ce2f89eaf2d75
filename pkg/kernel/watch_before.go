package kernel

import (
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/netstate"
)

// Told is an address or a route that came or went, in the form of a checkpoint. One of the two is set.
type Told struct {
	Gone    bool
	Address *netstate.Address
	Route   *netstate.Route
}

// IsOf reports whether both are about the same address or route.
func (t Told) IsOf(other Told) bool {
	switch {
	case t.Address != nil && other.Address != nil:
		return t.Address.Is(*other.Address)
	case t.Route != nil && other.Route != nil:
		return t.Route.Slot() == other.Route.Slot() && t.Route.Gateway == other.Route.Gateway
	}
	return false
}

// hear handles what a message says about the addresses and routes of the device. When the device goes down, the kernel
// reports that before it drops them. So hear ignores everything after that report.
func (m *mark) hear(message *syscall.NetlinkMessage) {
	m.closed = m.closed || m.sorts&LinkDown != 0
	is := toldBy(message)
	if m.closed || is.Address == nil && is.Route == nil {
		return
	}
	if m.before = append(slices.DeleteFunc(m.before, is.IsOf), is); len(m.before) > maxBefore {
		m.before, m.closed, m.tooMuch = nil, true, true
	}
}

// toldBy returns the address or the route in a message, if a checkpoint can have it. It returns nothing for a route
// with several next hops: what the kernel has then depends on what was there before.
func toldBy(message *syscall.NetlinkMessage) (is Told) {
	switch message.Header.Type {
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		address, of, by, err := parseAddress(message.Data)
		if err == nil && of != 0 && by == somebody {
			is.Address = &address
		}
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		route, err := parseRoute(message.Data)
		if err == nil && route.isPlain() {
			is.Route = &route.Route
		}
	}
	is.Gone = message.Header.Type == unix.RTM_DELADDR || message.Header.Type == unix.RTM_DELROUTE
	return is
}

// isPlain reports whether a checkpoint can have the route, and whether the message has all of it.
func (r parsedRoute) isPlain() bool {
	return !r.skip && r.hasPlace() && len(r.hops) == 0 && len(r.lost) == 0 && !r.expires && !r.encapsulated &&
		!slices.Contains(kernelsOwn, r.Protocol) && r.Table != unix.RT_TABLE_LOCAL && netstate.DaemonOf(r.Protocol) == ""
}
