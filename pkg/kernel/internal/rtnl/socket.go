package rtnl

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Socket is a netlink route socket. Several goroutines may use it at once: requests and their
// answers go through it one batch at a time. The caller closes it.
type Socket struct {
	fd int
	// mu is held from a request to the end of its answers. The kernel itself
	// takes one change at a time, of all sockets (the RTNL lock).
	mu sync.Mutex
}

// answerTimeout bounds the wait for an answer. The kernel answers while it
// takes the request, so that only a kernel in trouble is ever waited for.
var answerTimeout = unix.Timeval{Sec: 30}

// Protocol is what a descriptor for NewSocket is opened with, besides AF_NETLINK and SOCK_RAW.
const Protocol = unix.NETLINK_ROUTE

// NewSocket makes a Socket of a descriptor, which it owns from now on, and closes if it fails. The
// socket works in the namespace in which the descriptor was opened, whoever uses it and wherever.
func NewSocket(fd int) (*Socket, error) {
	s := &Socket{fd: fd}
	if err := s.configure(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Socket) configure() error {
	return errors.Join(
		unix.Bind(s.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &answerTimeout),
		// The kernel's own words for an error, where it has some.
		unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1),
		// An error's answer without the request in it.
		unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1),
		// Dumps of one device's addresses instead of all (since 4.20).
		unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1),
	)
}

// Close closes the descriptor.
func (s *Socket) Close() { _ = unix.Close(s.fd) }

// FD returns the descriptor, for the ioctls and socket options of the namespace. It stays the Socket's.
func (s *Socket) FD() int { return s.fd }

func (s *Socket) send(b []byte) error {
	return unix.Sendto(s.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
}

// receiveBuffers hold one datagram each. The kernel fills up to 32 KiB.
var receiveBuffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// receive hands the answers over until handle says that it wants no more. After a failure
// nothing is left that would be in the way of the next answers: to a socket that has
// overflowed the kernel sends nothing more until it is empty.
func (s *Socket) receive(handle func(*syscall.NetlinkMessage) (more bool, err error)) error {
	buf := receiveBuffers.Get().(*[]byte)
	defer receiveBuffers.Put(buf)
	err := s.receiveInto(*buf, handle)
	if err != nil {
		s.discardAnswers(*buf)
	}
	return err
}

func (s *Socket) discardAnswers(buf []byte) {
	for {
		_, _, _, _, err := unix.Recvmsg(s.fd, buf, nil, unix.MSG_DONTWAIT)
		if err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func (s *Socket) receiveInto(buf []byte, handle func(*syscall.NetlinkMessage) (more bool, err error)) error {
	for {
		size, _, flags, from, err := unix.Recvmsg(s.fd, buf, nil, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("netlink answer: %w", err)
		}
		if flags&unix.MSG_TRUNC != 0 {
			return errors.New("netlink answer: longer than the buffer")
		}
		// Whoever may send netlink messages in a sandbox, which is not ours, can
		// send them to this socket too. The kernel's port is 0.
		if sender, ok := from.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
			continue
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:size])
		if err != nil {
			return fmt.Errorf("netlink answer: %w", err)
		}
		for i := range messages {
			if more, err := handle(&messages[i]); !more || err != nil {
				return err
			}
		}
	}
}
