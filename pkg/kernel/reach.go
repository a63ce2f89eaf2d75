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
	level, option := unix.SOL_IP, unix.IP_RECVERR
	if destination.Is6() {
		level, option = unix.SOL_IPV6, unix.IPV6_RECVERR
	}
	fd, err := n.openSocket(familyOf(destination), unix.SOCK_STREAM)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	timeout := unix.NsecToTimeval(limit.Nanoseconds())
	err = errors.Join(
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout),
		// The socket keeps the ICMP messages that it gets. Otherwise the port-unreachable of a firewall looks like the reset of the other end.
		unix.SetsockoptInt(fd, level, option, 1),
	)
	if err == nil && source.IsValid() {
		err = unix.Bind(fd, socketAddress(source, 0))
	}
	if err != nil {
		return err
	}
	err = unix.EINTR
	for errors.Is(err, unix.EINTR) {
		err = unix.Connect(fd, socketAddress(destination, discardPort))
	}
	// What comes while the kernel sends the first packet only becomes known here.
	if code, soErr := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); soErr == nil && code != 0 {
		err = unix.Errno(code)
	}
	switch {
	case err != nil && hasICMPError(fd):
		return fmt.Errorf("%w: %w", ErrRejected, err)
	case errors.Is(err, unix.ECONNREFUSED):
		return nil // The other end itself.
	case errors.Is(err, unix.EINPROGRESS), errors.Is(err, unix.EALREADY):
		return fmt.Errorf("%w within %s", ErrNoAnswer, limit)
	}
	return err // The caller names the two ends.
}

func socketAddress(address netip.Addr, port int) unix.Sockaddr {
	if address.Is6() {
		return &unix.SockaddrInet6{Port: port, Addr: address.As16()}
	}
	return &unix.SockaddrInet4{Port: port, Addr: address.As4()}
}

// hasICMPError says that an ICMP message has come.
func hasICMPError(fd int) bool {
	const enough = 512
	_, size, _, _, err := unix.Recvmsg(fd, make([]byte, enough), make([]byte, enough), unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
	return err == nil && size > 0
}
