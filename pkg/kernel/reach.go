package kernel

import (
	"errors"
	"fmt"
	"net/netip"
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
	family := familyOf(destination)
	fd, err := n.openSocket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	if source.IsValid() {
		if err := unix.Bind(fd, sockaddr(source, 0)); err != nil {
			return fmt.Errorf("from %s: %w", source, err)
		}
	}
	if err := enableICMPErrors(fd, family); err != nil {
		return err
	}
	err = unix.Connect(fd, sockaddr(destination, discardPort))
	if errors.Is(err, unix.EINPROGRESS) {
		err = awaitConnect(fd, limit)
	}
	switch {
	case err != nil && hasICMPError(fd):
		return fmt.Errorf("%w: %w", ErrRejected, err)
	case errors.Is(err, unix.ECONNREFUSED):
		return nil // The other end itself.
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

func sockaddr(addr netip.Addr, port int) unix.Sockaddr {
	if addr.Is4() {
		return &unix.SockaddrInet4{Addr: addr.As4(), Port: port}
	}
	return &unix.SockaddrInet6{Addr: addr.As16(), Port: port}
}

// awaitConnect waits for the end of a connect.
func awaitConnect(fd int, limit time.Duration) error {
	for until := time.Now().Add(limit); ; {
		remaining := max(time.Until(until).Milliseconds(), 0)
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, int(remaining))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case ready == 0:
			return fmt.Errorf("%w within %s", ErrNoAnswer, limit)
		}
		number, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
		if err != nil || number == 0 {
			return err
		}
		return unix.Errno(number)
	}
}
