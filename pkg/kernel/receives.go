package kernel

import (
	"encoding/binary"
	"net"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Receives says whether the device of that index takes frames for that MAC beside those for its own. It does for each interface with a
// MAC of its own that is on the device and up, in whatever namespace. So this tells whether such an interface is still there if its
// namespace cannot be opened any more: the kernel takes a moment to end a namespace.
func (n *Namespace) Receives(index int, mac string) (bool, error) {
	header := &netlink.Ndmsg{Family: unix.AF_BRIDGE, Index: uint32(index)}
	list := newMessage(unix.RTM_GETNEIGH, 0, "list the MACs for which devices take frames", header)
	received, err := listOf(n, list, func(payload []byte) (net.HardwareAddr, bool, error) {
		ifIndex, address, err := parseFDBEntry(payload)
		return address, ifIndex == index && strings.EqualFold(address.String(), mac), err
	})
	return len(received) > 0, err
}

// parseFDBEntry returns the MAC in an answer, and the index of its device.
func parseFDBEntry(payload []byte) (index int, mac net.HardwareAddr, err error) {
	if err := readFields(payload, unix.SizeofNdMsg, field{netlink.NDA_LLADDR, &mac}); err != nil {
		return 0, nil, err
	}
	return int(binary.NativeEndian.Uint32(payload[4:])), mac, nil // struct ndmsg (linux/neighbour.h)
}
