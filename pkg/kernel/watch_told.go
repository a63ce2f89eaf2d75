package kernel

import (
	"encoding/binary"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
)

// netconfIndex is NETCONFA_IFINDEX (linux/netconf.h). Its value is negative if it means no single device.
const netconfIndex = 1

// indexAt is where the structures of these messages have the index of the device, in four bytes: struct ifinfomsg,
// ifaddrmsg, ndmsg and tcmsg.
const indexAt = 4

// parseChange returns the sort of change in a message, and the device. The sort is 0 if the message is of no interest. told
// returns ErrMalformed for a message that is cut off.
func parseChange(m *syscall.NetlinkMessage) (index int, sorts ChangeKind, err error) {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		return parseLinkChange(m)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		index, err = indexIn(m.Data)
		return index, AddressChanged, err
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		index, err = indexIn(m.Data)
		return index, NeighbourChanged, err
	case unix.RTM_NEWQDISC, unix.RTM_DELQDISC, unix.RTM_NEWTFILTER, unix.RTM_DELTFILTER, unix.RTM_NEWTCLASS, unix.RTM_DELTCLASS:
		index, err = indexIn(m.Data)
		return index, QdiscChanged, err
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		index, err = attributeOf(m.Data, unix.SizeofRtMsg, unix.RTA_OIF)
		return index, RouteChanged, err
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		return 0, RuleChanged, nil
	case unix.RTM_NEWNETCONF, unix.RTM_DELNETCONF:
		// The kernel pads struct netconfmsg, which is one byte long.
		index, err = attributeOf(m.Data, 4, netconfIndex)
		return max(index, 0), SettingChanged, err
	}
	return 0, 0, nil
}

func parseLinkChange(m *syscall.NetlinkMessage) (index int, sorts ChangeKind, err error) {
	if err := rtnl.CheckHeader(m.Data, unix.SizeofIfInfomsg); err != nil {
		return 0, 0, err
	}
	if m.Data[0] != unix.AF_UNSPEC { // The message is about one protocol's part of the device.
		return 0, 0, nil
	}
	const flagsAt = 8
	sorts = LinkChanged
	if flags := binary.NativeEndian.Uint32(m.Data[flagsAt:]); m.Header.Type == unix.RTM_DELLINK || flags&unix.IFF_UP == 0 {
		sorts |= LinkDown
	}
	index, err = indexIn(m.Data)
	return index, sorts, err
}

func indexIn(payload []byte) (int, error) {
	if err := rtnl.CheckHeader(payload, indexAt+4); err != nil {
		return 0, err
	}
	return int(int32(binary.NativeEndian.Uint32(payload[indexAt:]))), nil
}

// attributeOf returns the attribute, a number of four bytes, behind a header of so many bytes. It returns 0 if there is
// no such attribute.
func attributeOf(payload []byte, header int, attribute uint16) (value int, err error) {
	err = rtnl.EachAttribute(payload, header, func(a *rtnl.Attribute) {
		if a.Type() == attribute {
			value = a.Int32()
		}
	})
	return value, err
}
