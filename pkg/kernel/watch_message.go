package kernel

import (
	"encoding/binary"
	"slices"
	"syscall"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// netconfIndex is NETCONFA_IFINDEX (linux/netconf.h). Its value is negative if it means no single device.
const netconfIndex = 1

// Where struct rtmsg has the table and the protocol.
const (
	tableAt    = 4
	protocolAt = 5
)

// indexAt is where the structures of these messages have the index of the device, in four bytes: struct ifinfomsg,
// ifaddrmsg, ndmsg and tcmsg.
const indexAt = 4

// parseChange returns the device that a message is about, 0 for none or several. found is false for a message that is of no interest.
// parseChange returns ErrMalformed for a message that is cut off.
func parseChange(m *syscall.NetlinkMessage) (index int, found bool, err error) {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if err := rtnl.CheckHeader(m.Data, unix.SizeofIfInfomsg); err != nil || m.Data[0] != unix.AF_UNSPEC {
			return 0, false, err // Otherwise it is about one protocol's part of the device.
		}
		index, err = indexIn(m.Data)
	case unix.RTM_NEWADDR:
		var madeBy uint8
		if err := readFields(m.Data, unix.SizeofIfAddrmsg, field{ifaProto, &madeBy}); err != nil || madeBy != 0 {
			return 0, false, err // The kernel has made it, or has checked it: no checkpoint has such an address.
		}
		index, err = indexIn(m.Data)
	case unix.RTM_DELADDR, unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH,
		unix.RTM_NEWQDISC, unix.RTM_DELQDISC, unix.RTM_NEWTFILTER, unix.RTM_DELTFILTER, unix.RTM_NEWTCLASS, unix.RTM_DELTCLASS:
		index, err = indexIn(m.Data)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		if err := rtnl.CheckHeader(m.Data, unix.SizeofRtMsg); err != nil || m.Data[tableAt] == unix.RT_TABLE_LOCAL && m.Data[protocolAt] == unix.RTPROT_KERNEL {
			return 0, false, err // It comes and goes with an address.
		}
		index, err = attributeOf(m.Data, unix.SizeofRtMsg, unix.RTA_OIF)
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
	case unix.RTM_NEWNETCONF, unix.RTM_DELNETCONF:
		// The kernel pads struct netconfmsg, which is one byte long.
		index, err = attributeOf(m.Data, 4, netconfIndex)
		index = max(index, 0)
	default:
		return 0, false, nil
	}
	return index, true, err
}

// isLinkDown says that the device is down or gone. parseChange has checked the message.
func isLinkDown(m *syscall.NetlinkMessage) bool {
	const flagsAt = 8
	return m.Header.Type == unix.RTM_DELLINK || m.Header.Type == unix.RTM_NEWLINK && binary.NativeEndian.Uint32(m.Data[flagsAt:])&unix.IFF_UP == 0
}

func indexIn(payload []byte) (int, error) {
	if err := rtnl.CheckHeader(payload, indexAt+4); err != nil {
		return 0, err
	}
	return int(int32(binary.NativeEndian.Uint32(payload[indexAt:]))), nil
}

// attributeOf returns the attribute, a number of four bytes, behind a header of so many bytes. It returns 0 if there is
// no such attribute.
func attributeOf(payload []byte, header, attribute int) (value int, err error) {
	err = readFields(payload, header, field{attribute, &value})
	return value, err
}

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

// isPlain reports whether a checkpoint can have the route, and whether the message has all of it: the route goes through one device and
// stays until somebody takes it away. Whoever uses a link-local address names the device, so its routes do not count.
func (r parsedRoute) isPlain() bool {
	return !r.skip && r.oif != 0 && r.isWhole() && !r.expires &&
		!slices.Contains(kernelProtocols, r.Protocol) && r.Table != unix.RT_TABLE_LOCAL && netstate.DaemonOf(r.Protocol) == "" &&
		!r.Destination.Addr().IsLinkLocalUnicast() && !r.Destination.Addr().IsMulticast()
}

// ignored are the messages that a watch has no use for. Each is described by conditions that all hold. No checkpoint contains what
// they report:
//
//   - ports and forwarding entries of bridges (AF_BRIDGE);
//   - neighbours that the kernel has learnt. It tells several changes of each neighbour that a pod talks to. A
//     neighbour that somebody deletes is NUD_FAILED then (neigh_delete in net/core/neighbour.c), as one that does not
//     answer. One that is no longer needed is NUD_STALE;
//   - questions about neighbours to user space (RTM_GETNEIGH);
//   - cached routes (RTM_F_CLONED).
var ignored = [][]condition{
	{{atFamily, 1, bpf.JumpEqual, unix.AF_BRIDGE}},
	{{atType, 2, bpf.JumpEqual, unix.RTM_NEWROUTE}, {atRouteFlags, 4, bpf.JumpBitsSet, unix.RTM_F_CLONED}},
	{{atType, 2, bpf.JumpEqual, unix.RTM_GETNEIGH}},
	{
		{atType, 2, bpf.JumpEqual, unix.RTM_NEWNEIGH}, {atNeighState, 2, bpf.JumpBitsNotSet, unix.NUD_PERMANENT},
		{atNeighFlags, 1, bpf.JumpBitsNotSet, unix.NTF_PROXY},
	},
	{
		{atType, 2, bpf.JumpEqual, unix.RTM_DELNEIGH}, {atNeighState, 2, bpf.JumpBitsNotSet, unix.NUD_PERMANENT | unix.NUD_FAILED},
		{atNeighFlags, 1, bpf.JumpBitsNotSet, unix.NTF_PROXY},
	},
}

// condition compares a number in a message with a value.
type condition struct {
	// offset is the place of the number, size its length in bytes.
	offset, size uint32
	test         bpf.JumpTest
	value        uint64
}

// The offsets of the numbers. A struct nlmsghdr of 16 bytes comes first. Each structure behind it begins with the family.
const (
	atType       = 4
	atFamily     = unix.SizeofNlMsghdr
	atNeighState = unix.SizeofNlMsghdr + 8  // ndm_state of struct ndmsg
	atNeighFlags = unix.SizeofNlMsghdr + 10 // ndm_flags
	atRouteFlags = unix.SizeofNlMsghdr + 8  // rtm_flags of struct rtmsg
)

// watchFilter is a socket filter. It drops the ignored messages before they take room in the receive buffer.
func watchFilter() (program []bpf.Instruction) {
	for _, conditions := range ignored {
		for i, c := range conditions {
			// The kernel writes a number in the machine's order, and a filter loads it in network byte order.
			var loaded uint32
			for _, b := range encodeNumber(c.value, netstate.Format(c.size)) {
				loaded = loaded<<8 | uint32(b)
			}
			next := uint8(2*(len(conditions)-i) - 1)
			program = append(program, bpf.LoadAbsolute{Off: c.offset, Size: int(c.size)}, bpf.JumpIf{Cond: c.test, Val: loaded, SkipFalse: next})
		}
		program = append(program, bpf.RetConstant{Val: 0})
	}
	const wholeMessage = 1 << 20
	return append(program, bpf.RetConstant{Val: wholeMessage})
}
