package wire

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"
)

// Announcement returns an Ethernet frame that tells all neighbours that the address is at the
// MAC: a gratuitous ARP request (RFC 5227, section 3) or an unsolicited neighbour
// advertisement (RFC 4861, section 7.2.6).
func Announcement(mac net.HardwareAddr, addr netip.Addr) []byte {
	if addr.Is4() {
		return arpRequest(mac, addr, addr)
	}
	return unsolicitedNA(mac, addr)
}

// unsolicitedNA returns an Ethernet frame with a neighbour advertisement to all nodes. The
// override flag is set, and the MAC is the target link-layer address.
func unsolicitedNA(mac net.HardwareAddr, addr netip.Addr) []byte {
	na := []byte{neighbourAdvertisement, 0, 0, 0, 0x20, 0, 0, 0} // checksum, override flag
	na = append(na, addr.AsSlice()...)
	na = append(na, targetMACOption, 1) // 8 bytes
	na = append(na, mac...)
	return icmpv6(mac, addr, allNodes, na)
}

// Tagged returns the frame with a VLAN tag of that EtherType and VLAN ID. It may change the frame.
func Tagged(frame []byte, etherType, id uint16) []byte {
	const addresses = 12
	tag := binary.BigEndian.AppendUint16(nil, etherType)
	tag = binary.BigEndian.AppendUint16(tag, id)
	return slices.Insert(frame, addresses, tag...)
}
