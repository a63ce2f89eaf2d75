package kernel

import (
	"encoding/binary"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/rtnl"
	"github.com/relink-cni/relink/pkg/netstate"
)

// neighbours returns the entries of the device that somebody made: permanent ones, and proxies.
func (n *Namespace) neighbours(index int) ([]netstate.Neighbour, error) {
	var entries []netstate.Neighbour
	for _, flags := range []uint8{0, unix.NTF_PROXY} {
		list := newMessage(unix.RTM_GETNEIGH, 0, "list neighbours", &netlink.Ndmsg{Flags: flags})
		if flags == 0 {
			list.Add(uint32Attr(netlink.NDA_IFINDEX, index))
		}
		dumped, err := listOf(n, list, func(payload []byte) (netstate.Neighbour, bool, error) {
			neighbour, ifIndex, err := parseNeighbour(payload)
			return neighbour, ifIndex == index, err
		})
		if err != nil {
			return nil, err
		}
		entries = append(entries, dumped...)
	}
	return entries, nil
}

// parseNeighbour returns the entry in an answer, and the index of its device. The index is 0 for an
// entry that the kernel made.
func parseNeighbour(payload []byte) (neighbour netstate.Neighbour, ifIndex int, err error) {
	if err := rtnl.CheckHeader(payload, unix.SizeofNdMsg); err != nil {
		return neighbour, 0, err
	}
	state, flags := binary.NativeEndian.Uint16(payload[8:]), payload[10] // struct ndmsg (linux/neighbour.h)
	neighbour.Proxy, neighbour.Flags = flags&unix.NTF_PROXY != 0, flags&^unix.NTF_PROXY
	if !neighbour.Proxy && state&unix.NUD_PERMANENT == 0 {
		return neighbour, 0, nil
	}
	if err := readFields(payload, unix.SizeofNdMsg, neighbourFields(&neighbour)...); err != nil {
		return neighbour, 0, err
	}
	ifIndex, err = indexIn(payload)
	return neighbour, ifIndex, err
}

// neighbourFields are the attributes of an entry.
func neighbourFields(n *netstate.Neighbour) []field {
	return []field{{netlink.NDA_DST, &n.Address}, {netlink.NDA_LLADDR, (*macText)(&n.MAC)}}
}

// addNeighbour returns the request that makes the entry. It replaces an entry of the same address.
func addNeighbour(index int, neighbour netstate.Neighbour) rtnl.Message {
	header := &netlink.Ndmsg{Family: uint8(familyOf(neighbour.Address)), Index: uint32(index), State: unix.NUD_PERMANENT, Flags: neighbour.Flags}
	if neighbour.Proxy {
		header.Flags |= unix.NTF_PROXY
	}
	m := newMessage(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, "add neighbour "+neighbour.String(), header)
	addFields(m, neighbourFields(&neighbour)...)
	return m
}

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
	if err := readFields(payload, unix.SizeofNdMsg, field{netlink.NDA_LLADDR, (*macText)(&mac)}); err != nil {
		return 0, "", err
	}
	index, err = indexIn(payload)
	return index, mac, err
}
