package wire

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// NonceLen is the length of a nonce in bytes. It is the shortest that fills its option (RFC 3971,
// section 5.3.2).
const NonceLen = 6

// Claim says that the host with this MAC has the address, or probes for it too.
type Claim struct {
	Address netip.Addr
	MAC     net.HardwareAddr
	// Answer says that it is an answer, and no probe or question of the host.
	Answer bool
}

// ParseClaim returns what another host claims in the Ethernet frame. mac and nonce are those
// of the host that asks. A frame from that MAC claims nothing, and a probe with that nonce claims nothing:
// it is the own probe, which came back. A malformed frame claims nothing either. The MAC of the
// claim is a part of the frame.
func ParseClaim(frame []byte, mac net.HardwareAddr, nonce []byte) (c Claim, ok bool) {
	if len(frame) < ethernetLen || bytes.Equal(frame[6:12], mac) {
		return c, false
	}
	switch payload := frame[ethernetLen:]; binary.BigEndian.Uint16(frame[12:]) {
	case unix.ETH_P_ARP:
		c = parseARP(payload)
	case unix.ETH_P_IPV6:
		c = parseNeighbourMessage(payload, frame[6:12], nonce)
	}
	return c, c.Address.IsValid() && !bytes.Equal(c.MAC, mac)
}

// parseARP returns the address that the sender of an ARP packet has or probes for (RFC 5227,
// section 2.1.1), and its MAC. The address is invalid if the packet is no such one.
func parseARP(packet []byte) (c Claim) {
	if len(packet) < arpLen || !bytes.HasPrefix(packet, arpPrefix) {
		return c
	}
	op := binary.BigEndian.Uint16(packet[6:])
	c.MAC, c.Answer = packet[8:14], op == arpReplyOp
	sender, target := netip.AddrFrom4([4]byte(packet[14:18])), netip.AddrFrom4([4]byte(packet[24:28]))
	switch {
	case op != arpRequestOp && op != arpReplyOp:
	case !sender.IsUnspecified():
		c.Address = sender
	case op == arpRequestOp && !target.IsUnspecified():
		c.Address = target
	}
	return c
}

// parseNeighbourMessage returns the target of a neighbour advertisement, or of the solicitation of
// another host's duplicate address detection (RFC 4862, sections 5.4.3 and 5.4.4). It also returns
// the MAC of the target. If the packet does not have it, that is the MAC of the sender. The address
// is invalid if the packet is no such message, or breaks a rule of RFC 4861, section 7.1.
func parseNeighbourMessage(packet []byte, sender net.HardwareAddr, nonce []byte) (c Claim) {
	source, destination, message := parseICMPv6(packet)
	if message == nil {
		return c
	}
	target := netip.AddrFrom16([16]byte(message[8:24]))
	options, ok := parseOptions(message[neighbourLen:])
	if !ok || target.IsMulticast() || target.IsUnspecified() {
		return c
	}
	c.MAC, c.Answer = sender, message[0] == neighbourAdvertisement
	if c.Answer {
		if mac := options[targetMACOption]; len(mac) == len(sender) {
			c.MAC = mac
		}
		if solicited := message[4]&0x40 != 0; !solicited || !destination.IsMulticast() {
			c.Address = target
		}
		return c
	}
	_, hasSource := options[sourceMACOption]
	looped := bytes.Equal(options[nonceOption], nonce)
	// A solicitation with a source comes from a host that looks for the owner of the address.
	if message[0] == neighbourSolicitation && source.IsUnspecified() && destination == solicitedNode(target) && !hasSource && !looped {
		c.Address = target
	}
	return c
}

// parseICMPv6 returns the addresses and the message of an IPv6 packet. The message is nil unless it
// is long enough for a neighbour message, comes from this link, has code 0 and has the right
// checksum. Extension headers are not looked behind, because neighbour messages have none (RFC 6980
// forbids fragments).
func parseICMPv6(packet []byte) (source, destination netip.Addr, message []byte) {
	if len(packet) < ipv6Len || packet[0]>>4 != 6 || packet[6] != unix.IPPROTO_ICMPV6 || packet[7] != neighbourHopLimit {
		return source, destination, nil
	}
	length := int(binary.BigEndian.Uint16(packet[4:]))
	// Options fill units of 8 bytes. Padding may follow the packet.
	if length < neighbourLen || length%8 != 0 || length > len(packet)-ipv6Len {
		return source, destination, nil
	}
	source, destination = netip.AddrFrom16([16]byte(packet[8:24])), netip.AddrFrom16([16]byte(packet[24:40]))
	message = packet[ipv6Len : ipv6Len+length]
	if message[1] != 0 || icmpv6Checksum(source, destination, message) != 0 {
		return source, destination, nil
	}
	return source, destination, message
}

// parseOptions returns the first option of each type, without its type and length. ok is false if
// an option has no length or a wrong one.
func parseOptions(b []byte) (options map[byte][]byte, ok bool) {
	options = map[byte][]byte{}
	for len(b) > 0 {
		if len(b) < 2 || b[1] == 0 || int(b[1])*8 > len(b) {
			return nil, false
		}
		size := int(b[1]) * 8
		if _, exists := options[b[0]]; !exists {
			options[b[0]] = b[2:size]
		}
		b = b[size:]
	}
	return options, true
}
