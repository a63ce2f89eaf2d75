package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// probeFrameLen is what is read of a frame: no answer to a probe is nearly as long.
const probeFrameLen = 1514

// packetTypeOf is the offset at which a filter finds what PACKET_HOST and its like tell of
// the frame (SKF_AD_OFF + SKF_AD_PKTTYPE of linux/filter.h).
const packetTypeOf = 1<<32 - 0x1000 + 4

// Filters that pass what may answer a probe, and so keep the load of a busy link away.
// Neither passes what the kernel does not take for this host's: what the socket itself
// sends, and the frames of VLANs that have no device here, which come without their tag
// (__netif_receive_skb_core has them as PACKET_OTHERHOST) and say nothing of this link.
var (
	arpFilter = []unix.SockFilter{
		load(packetTypeOf), ifMore(unix.PACKET_MULTICAST, 1, 0),
		pass(probeFrameLen), pass(0),
	}
	neighbourFilter = []unix.SockFilter{
		load(packetTypeOf), ifMore(unix.PACKET_MULTICAST, 6, 0),
		load(ethernetLen + 6), ifEqual(unix.IPPROTO_ICMPV6, 0, 4),
		load(ethernetLen + ipv6Len), ifEqual(neighbourSolicitation, 1, 0), ifEqual(neighbourAdvertisement, 0, 1),
		pass(probeFrameLen), pass(0),
	}
)

// load loads the byte at the offset.
func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: offset}
}

// ifMore goes on behind as many instructions as yes and no say.
func ifMore(than uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, K: than, Jt: yes, Jf: no}
}

func ifEqual(to uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: to, Jt: yes, Jf: no}
}

// pass ends the filter: so many bytes of the frame are to be read, 0 for none of it.
func pass(size uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: size}
}

// probeSocket returns a packet socket, for the caller to close, for the frames of the
// protocol on the device that pass the filter and go to the host or to the groups. The
// switches on the way are not told of the groups (as by MLD): where they keep track, the
// probes of others do not come, but answers do, which go to all nodes.
func (n *Namespace) probeSocket(index int, protocol uint16, filter []unix.SockFilter, groups []net.HardwareAddr) (*os.File, error) {
	fd := -1
	err := n.do(func() (err error) {
		// Protocol 0: nothing comes before the socket is bound, and has its filter.
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("packet socket in %s: %w", n.Path(), err)
	}
	program := &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	errs := []error{unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, program)}
	for _, group := range groups {
		m := &unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_MULTICAST, Alen: uint16(len(group))}
		copy(m.Address[:], group)
		errs = append(errs, unix.SetsockoptPacketMreq(fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, m))
	}
	onWire := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, protocol))
	errs = append(errs, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: onWire, Ifindex: index}))
	if err := errors.Join(errs...); err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("packet socket in %s: %w", n.Path(), err)
	}
	return os.NewFile(uintptr(fd), "packet socket"), nil
}
