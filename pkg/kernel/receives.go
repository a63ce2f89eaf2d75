package kernel

import (
	"encoding/binary"
	"net"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
)

// Receives says whether the device of that index takes frames for that MAC beside those for its own. It does for each interface with a
// MAC of its own that is on the device and up, in whatever namespace. So this tells whether such an interface is still there if its
// namespace cannot be opened any more: the kernel takes a moment to end a namespace.
func (n *Namespace) Receives(index int, mac string) (bool, error) {
	header := &netlink.Ndmsg{Family: unix.AF_BRIDGE, Index: uint32(index)}
	list := newMessage(unix.RTM_GETNEIGH, 0, "list the MACs for which devices take frames", header)
	received, err := listOf(n, list, func(payload []byte) (string, bool, error) {
		ifIndex, address, err := parseFDBEntry(payload)
		return address, ifIndex == index && strings.EqualFold(address, mac), err
	})
	return len(received) > 0, err
}

// parseFDBEntry returns the MAC in an answer, and the index of its device.
func parseFDBEntry(payload []byte) (index int, mac string, err error) {
	if err := rtnl.CheckHeader(payload, unix.SizeofNdMsg); err != nil {
		return 0, "", err
	}
	err = rtnl.EachAttribute(payload, unix.SizeofNdMsg, func(a *rtnl.Attribute) {
		if a.Type() == netlink.NDA_LLADDR {
			mac = net.HardwareAddr(a.Value()).String()
		}
	})
	return int(binary.NativeEndian.Uint32(payload[4:])), mac, err // struct ndmsg (linux/neighbour.h)
}
