package wire

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

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

// ParseSolicited returns what a host says in an answer to a Solicitation. mac is that of the host which
// asks: a frame from there is no answer. A probe or a question of another host is none either, although
// it names an address. The MAC of the claim is a part of the frame.
func ParseSolicited(frame []byte, mac net.HardwareAddr) (_ Claim, ok bool) {
	if len(frame) < ethernetLen || bytes.Equal(frame[6:12], mac) {
		return Claim{}, false
	}
	switch payload := frame[ethernetLen:]; binary.BigEndian.Uint16(frame[12:]) {
	case unix.ETH_P_ARP:
		if len(payload) < arpLen || binary.BigEndian.Uint16(payload[6:]) != arpReplyOp {
			return Claim{}, false
		}
	case unix.ETH_P_IPV6:
		if _, _, message := parseICMPv6(payload); message == nil || message[0] != neighbourAdvertisement {
			return Claim{}, false
		}
	}
	// No probe has the nonce that is empty.
	return ParseProbeAnswer(frame, mac, nil)
}
