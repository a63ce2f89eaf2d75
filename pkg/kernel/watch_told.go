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

// parseChange returns the device that a message is about, 0 for none or several. found is false for a message that is of no interest.
// parseChange returns ErrMalformed for a message that is cut off.
func parseChange(m *syscall.NetlinkMessage) (index int, found bool, err error) {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if err := rtnl.CheckHeader(m.Data, unix.SizeofIfInfomsg); err != nil || m.Data[0] != unix.AF_UNSPEC {
			return 0, false, err // Otherwise it is about one protocol's part of the device.
		}
		index, err = indexIn(m.Data)
	case unix.RTM_NEWADDR, unix.RTM_DELADDR, unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH,
		unix.RTM_NEWQDISC, unix.RTM_DELQDISC, unix.RTM_NEWTFILTER, unix.RTM_DELTFILTER, unix.RTM_NEWTCLASS, unix.RTM_DELTCLASS:
		index, err = indexIn(m.Data)
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
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
