package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/netstate"
)

var (
	ethernetBroadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	allNodesMAC       = net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}
	allNodes          = netip.MustParseAddr("ff02::1")
)

// Announcer tells the neighbours of interfaces which MAC their addresses are at. It
// sends on the interfaces' parent: a broadcast on a macvlan would be delivered to
// all its siblings first, which have not lost anything, and one socket in the host
// serves all sandboxes (to close one takes an RCU grace period, 10 ms and more).
// Several goroutines may use it at once. The caller closes it.
type Announcer struct {
	fd int
}

// NewAnnouncer returns an Announcer for interfaces whose parents are in n.
func (n *Namespace) NewAnnouncer() (*Announcer, error) {
	a := &Announcer{}
	err := n.do(func() (err error) {
		// Protocol 0: this socket sends and is never handed a packet.
		a.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("packet socket in %s: %w", n.Path(), err)
	}
	return a, nil
}

// Close releases the socket, without the wait for an RCU grace period, 10 ms and more,
// that the kernel puts on whoever drops the last hold on a packet socket, be it at the end
// of the process: a socket in flight between Unix sockets that nobody has open any more is
// dropped by the kernel's own worker (before 6.9 by whoever closes, as without this).
func (a *Announcer) Close() {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		_ = unix.Close(a.fd)
		return
	}
	sender, receiver := pair[0], pair[1]
	// The receiver goes along, into its own queue, so that nothing but the kernel's search
	// for such cycles finds the two. The sender's end begins that search.
	_ = unix.Sendmsg(sender, []byte{0}, unix.UnixRights(a.fd, receiver), nil, 0)
	for _, fd := range []int{a.fd, receiver, sender} {
		_ = unix.Close(fd)
	}
}

// Announce sends, once each, a gratuitous ARP request for every IPv4 address of the
// interface (RFC 5227, section 3) and an unsolicited neighbour advertisement for
// every IPv6 address (RFC 4861, section 7.2.6), on the parent of that index, which
// can send.
func (a *Announcer) Announce(parentIndex int, i netstate.Interface) error {
	mac, err := net.ParseMAC(i.Link.MAC)
	if err != nil {
		return err
	}
	failpoint.Here("before announcing")
	to := &unix.SockaddrLinklayer{Ifindex: parentIndex}
	var errs []error
	for _, address := range i.Addresses {
		frame := tagged(announcement(mac, address.Prefix.Addr()), i.Link.VLAN)
		if err := unix.Sendto(a.fd, frame, 0, to); err != nil {
			errs = append(errs, fmt.Errorf("announce %s of %s: %w", address.Prefix.Addr(), i.Link.Name, err))
		}
	}
	return errors.Join(errs...)
}

// tagged returns the frame with the tag that the interface itself would give it.
func tagged(frame []byte, v *netstate.VLAN) []byte {
	if v == nil {
		return frame
	}
	const addresses = 12
	tag := binary.BigEndian.AppendUint16(nil, etherType(v.Protocol))
	tag = binary.BigEndian.AppendUint16(tag, uint16(v.ID))
	return slices.Insert(frame, addresses, tag...)
}

func announcement(mac net.HardwareAddr, addr netip.Addr) []byte {
	if addr.Is4() {
		return gratuitousARP(mac, addr)
	}
	return unsolicitedNA(mac, addr)
}

// gratuitousARP returns an Ethernet frame with an ARP request (RFC 826) in which
// sender and target are the address itself.
func gratuitousARP(mac net.HardwareAddr, addr netip.Addr) []byte {
	f := ethernet(ethernetBroadcast, mac, unix.ETH_P_ARP)
	f = binary.BigEndian.AppendUint16(f, 1) // Ethernet
	f = binary.BigEndian.AppendUint16(f, unix.ETH_P_IP)
	f = append(f, 6, 4, 0, 1) // lengths of the addresses; request
	f = append(append(f, mac...), addr.AsSlice()...)
	return append(append(f, make([]byte, 6)...), addr.AsSlice()...)
}

// unsolicitedNA returns an Ethernet frame with a neighbour advertisement to all
// nodes, with the override flag set and the MAC as target link-layer address.
func unsolicitedNA(mac net.HardwareAddr, addr netip.Addr) []byte {
	na := []byte{136, 0, 0, 0, 0x20, 0, 0, 0} // type, code, checksum, override flag
	na = append(na, addr.AsSlice()...)
	na = append(na, 2, 1) // target link-layer address, 8 bytes
	na = append(na, mac...)
	binary.BigEndian.PutUint16(na[2:], icmpv6Checksum(addr, allNodes, na))

	f := ethernet(allNodesMAC, mac, unix.ETH_P_IPV6)
	f = append(f, 0x60, 0, 0, 0)
	f = binary.BigEndian.AppendUint16(f, uint16(len(na)))
	f = append(f, unix.IPPROTO_ICMPV6, 255)
	f = append(append(f, addr.AsSlice()...), allNodes.AsSlice()...)
	return append(f, na...)
}

func ethernet(to, from net.HardwareAddr, protocol uint16) []byte {
	f := append(append(make([]byte, 0, 96), to...), from...)
	return binary.BigEndian.AppendUint16(f, protocol)
}

// icmpv6Checksum is the checksum of RFC 4443, section 2.3, of a message of even
// length whose own checksum is still zero.
func icmpv6Checksum(from, to netip.Addr, message []byte) uint16 {
	b := append(append([]byte{}, from.AsSlice()...), to.AsSlice()...)
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
