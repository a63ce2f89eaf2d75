package rtnl

import (
	"errors"
	"fmt"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Socket is a netlink route socket. It takes one batch of requests with its answers at a time.
// Several goroutines may use it at once. The caller closes it.
type Socket struct {
	fd int
	// mu is held from a request to the end of its answers.
	mu sync.Mutex
}

// answerTimeout bounds the wait for an answer. The kernel answers while it takes the request, so
// that only a kernel in trouble is late.
var answerTimeout = unix.Timeval{Sec: 30}

// NewSocket makes a Socket of the descriptor of a socket of NETLINK_ROUTE, and owns it from now on. If it fails, it closes it.
// Requests work in the namespace in which the descriptor was opened, whichever thread sends them.
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
		// The kernel explains an error in words, if it has some.
		unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1),
		// The answer to a request that fails does not repeat the request.
		unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1),
		// The kernel lists only what was asked for, such as the addresses of one device (since
		// 4.20).
		unix.SetsockoptInt(s.fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1),
	)
}

// Close closes the descriptor.
func (s *Socket) Close() { _ = unix.Close(s.fd) }

// FD returns the descriptor, for ioctls and socket options. The Socket still owns it.
func (s *Socket) FD() int { return s.fd }

func (s *Socket) send(b []byte) error {
	return unix.Sendto(s.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
}

// receiveBuffers hold one datagram each. The kernel fills at most 32 KiB.
var receiveBuffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// receive calls handle with each answer until it wants no more. After a failure, receive empties
// the socket: the kernel sends nothing to a socket that has overflowed until it is empty.
func (s *Socket) receive(handle func(*syscall.NetlinkMessage) (proceed bool, err error)) error {
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

func (s *Socket) receiveInto(buf []byte, handle func(*syscall.NetlinkMessage) (proceed bool, err error)) error {
	for {
		messages, _, err := receiveDatagram(s.fd, buf, nil, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("netlink answer: %w", err)
		}
		for i := range messages {
			if proceed, err := handle(&messages[i]); !proceed || err != nil {
				return err
			}
		}
	}
}

// receiveDatagram reads one datagram, and so many bytes beside it. It returns no messages if the datagram is not from the kernel: a
// process in a sandbox, which is a stranger, can send netlink messages to any socket. The port of the kernel is 0.
func receiveDatagram(fd int, buf, aside []byte, mode int) (messages []syscall.NetlinkMessage, asideSize int, err error) {
	size, asideSize, flags, addr, err := unix.Recvmsg(fd, buf, aside, mode)
	if err != nil {
		return nil, 0, err
	}
	if sender, ok := addr.(*unix.SockaddrNetlink); !ok || sender.Pid != 0 {
		return nil, 0, nil
	}
	if flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		return nil, 0, errors.New("longer than the buffer")
	}
	messages, err = syscall.ParseNetlinkMessage(buf[:size])
	return messages, asideSize, err
}
