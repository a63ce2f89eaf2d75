package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// probeSocket returns a packet socket, which the caller closes. It gets the frames of the protocol
// on the device that pass the filter, and are for the host or for the groups. The switches on the
// way do not learn of the groups (as MLD would tell them). If they track groups, the probes of
// other hosts do not arrive. Answers do arrive, because they go to all nodes.
func (n *Namespace) probeSocket(index int, protocol uint16, filter []bpf.Instruction, groups []net.HardwareAddr) (*os.File, error) {
	// Protocol 0: no frame comes before the socket is bound, and has its filter.
	fd, err := n.openSocket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK)
	if err != nil {
		return nil, err
	}
	errs := []error{attachFilter(fd, filter)}
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

func attachFilter(fd int, filter []bpf.Instruction) error {
	assembled, err := bpf.Assemble(filter)
	if err != nil {
		return err
	}
	program := make([]unix.SockFilter, len(assembled))
	for i, f := range assembled {
		program[i] = unix.SockFilter{Code: f.Op, Jt: f.Jt, Jf: f.Jf, K: f.K}
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
}
