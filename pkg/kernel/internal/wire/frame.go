package wire

import (
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

var (
	broadcastMAC = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	// AllNodesMAC is the group in which every host hears the answers to duplicate address
	// detection.
	AllNodesMAC = groupMAC(allNodes)
	allNodes    = netip.MustParseAddr("ff02::1")
)

const (
	// The lengths of the Ethernet header, of the IPv6 header, and of a neighbour message before its
	// options.
	ethernetLen, ipv6Len, neighbourLen = 14, 40, 24
	// arpLen is the length of an ARP packet with addresses of Ethernet and IPv4.
	arpLen = 28

	arpRequestOp, arpReplyOp = 1, 2 // RFC 826

	neighbourSolicitation, neighbourAdvertisement = 135, 136 // RFC 4861, section 4
	// Options of neighbour messages. Their lengths count units of 8 bytes.
	sourceMACOption, targetMACOption = 1, 2 // RFC 4861, section 4.6.1
	nonceOption                      = 14   // RFC 3971, section 5.3.2

	// neighbourHopLimit proves that no router has forwarded the message (RFC 4861, section 7.1).
	neighbourHopLimit = 255
)

// arpPrefix is the beginning of an ARP packet (RFC 826): Ethernet and IPv4, by their types and the
// lengths of their addresses.
var arpPrefix = []byte{0, 1, unix.ETH_P_IP >> 8, unix.ETH_P_IP & 0xff, 6, 4}

// arpRequest returns an Ethernet frame with an ARP request (RFC 826) to all hosts.
func arpRequest(mac net.HardwareAddr, sender, target netip.Addr) []byte {
	f := ethernet(broadcastMAC, mac, unix.ETH_P_ARP)
	f = append(append(f, arpPrefix...), 0, arpRequestOp)
	f = append(append(f, mac...), sender.AsSlice()...)
	return append(append(f, make([]byte, 6)...), target.AsSlice()...)
}

// icmpv6 returns an Ethernet frame with the message to the group. The message has an even length,
// and a checksum of zero, which icmpv6 sets.
func icmpv6(mac net.HardwareAddr, source, group netip.Addr, message []byte) []byte {
	binary.BigEndian.PutUint16(message[2:], icmpv6Checksum(source, group, message))
	f := ethernet(groupMAC(group), mac, unix.ETH_P_IPV6)
	f = append(f, 0x60, 0, 0, 0)
	f = binary.BigEndian.AppendUint16(f, uint16(len(message)))
	f = append(f, unix.IPPROTO_ICMPV6, neighbourHopLimit)
	f = append(append(f, source.AsSlice()...), group.AsSlice()...)
	return append(f, message...)
}

func ethernet(destination, source net.HardwareAddr, protocol uint16) []byte {
	f := append(append(make([]byte, 0, 96), destination...), source...)
	return binary.BigEndian.AppendUint16(f, protocol)
}

// groupMAC returns the Ethernet address of an IPv6 multicast group (RFC 2464, section 7).
func groupMAC(group netip.Addr) net.HardwareAddr {
	b := group.As16()
	return net.HardwareAddr(append([]byte{0x33, 0x33}, b[12:]...))
}

// solicitedNode returns the multicast group in which the address is asked for
// (RFC 4291, section 2.7.1).
func solicitedNode(addr netip.Addr) netip.Addr {
	b := addr.As16()
	return netip.AddrFrom16([16]byte(slices.Concat(solicitedNodePrefix, b[13:])))
}

// SolicitedNodeMAC returns the Ethernet address of the group in which the IPv6 address is asked for.
func SolicitedNodeMAC(addr netip.Addr) net.HardwareAddr { return groupMAC(solicitedNode(addr)) }

var solicitedNodePrefix = []byte{0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff}

// icmpv6Checksum returns the checksum of a message of even length whose own checksum is zero (RFC
// 4443, section 2.3). For a message with the right checksum, it returns zero.
func icmpv6Checksum(source, destination netip.Addr, message []byte) uint16 {
	b := append(append([]byte{}, source.AsSlice()...), destination.AsSlice()...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(message)))
	b = append(b, 0, 0, 0, unix.IPPROTO_ICMPV6)
	b = append(b, message...)
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

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

// Solicitation returns an Ethernet frame by which the host with this MAC and this address asks for the
// MAC of the target: an ARP request (RFC 826) or a neighbour solicitation (RFC 4861, section 4.3). source
// and target are of one family. The neighbours send their answers to the MAC alone.
//
// With an unspecified source it is a probe, which asks all hosts whether one of them has the address: for IPv4 an ARP probe (RFC 5227,
// section 2.1.1), for IPv6 the neighbour solicitation of duplicate address detection (RFC 4862, section 5.4.2). Its nonce,
// of NonceLen bytes, lets the sender recognise it (RFC 7527, section 4.1).
func Solicitation(mac net.HardwareAddr, source, target netip.Addr, nonce []byte) []byte {
	if target.Is4() {
		return arpRequest(mac, source, target)
	}
	ns := []byte{neighbourSolicitation, 0, 0, 0, 0, 0, 0, 0} // code, checksum, reserved
	ns = append(ns, target.AsSlice()...)
	if source.IsUnspecified() {
		ns = append(append(ns, nonceOption, 1), nonce...) // 8 bytes
	} else {
		ns = append(append(ns, sourceMACOption, 1), mac...)
	}
	return icmpv6(mac, source, solicitedNode(target), ns)
}
