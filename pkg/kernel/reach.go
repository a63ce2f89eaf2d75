package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Errors of ProbeTCP that callers match with errors.Is.
var (
	// ErrNoAnswer says that nothing came back in time.
	ErrNoAnswer = errors.New("no answer")
	// ErrRejected says that somebody on the way refused the packet by ICMP, such as a firewall.
	ErrRejected = errors.New("rejected on the way")
)

// discardPort is the port of the discard service (RFC 863). A host without it answers with a reset, which tells as much.
const discardPort = 9

// ProbeTCP begins a TCP connection from one address of n to another address, and ends it. It returns nil if the other end answers,
// even if it refuses, ErrNoAnswer if nothing comes back within the limit, and ErrRejected. source may be invalid: then the kernel chooses.
func (n *Namespace) ProbeTCP(source, destination netip.Addr, limit time.Duration) error {
	var sockets []int // A second descriptor of the dialer's socket, which outlives the dialer's own.
	dialer := &net.Dialer{Timeout: limit, Control: func(_, _ string, raw syscall.RawConn) (err error) {
		controlErr := raw.Control(func(fd uintptr) {
			var socket int
			if socket, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); err == nil {
				sockets, err = append(sockets, socket), enableICMPErrors(socket, familyOf(destination))
			}
		})
		return errors.Join(controlErr, err)
	}}
	defer func() {
		for _, socket := range sockets {
			_ = unix.Close(socket)
		}
	}()
	if source.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(source, 0))
	}
	err := n.Inside(func() error {
		conn, err := dialer.Dial("tcp", netip.AddrPortFrom(destination, discardPort).String())
		if err != nil {
			return err
		}
		return conn.Close()
	})
	var timeout net.Error
	var errno unix.Errno
	switch {
	case errors.As(err, &errno) && slices.ContainsFunc(sockets, hasICMPError):
		return fmt.Errorf("%w: %w", ErrRejected, errno)
	case errors.Is(err, unix.ECONNREFUSED):
		return nil // The other end itself.
	case errors.As(err, &timeout) && timeout.Timeout():
		return fmt.Errorf("%w within %s", ErrNoAnswer, limit)
	case errors.As(err, &errno):
		return errno // The caller names the two ends.
	}
	return err
}

// enableICMPErrors makes the socket keep the ICMP messages that it gets. Otherwise the port-unreachable of a firewall looks like the reset
// of the other end.
func enableICMPErrors(fd, family int) error {
	if family == unix.AF_INET6 {
		return unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_RECVERR, 1)
	}
	return unix.SetsockoptInt(fd, unix.SOL_IP, unix.IP_RECVERR, 1)
}

// hasICMPError says that an ICMP message has come.
func hasICMPError(fd int) bool {
	const enough = 512
	_, size, _, _, err := unix.Recvmsg(fd, make([]byte, enough), make([]byte, enough), unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	return err == nil && size > 0
}
