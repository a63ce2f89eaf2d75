package rtnl

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/kernel/internal/privilege"
)

// ErrOverrun says that messages of the kernel are lost, or that one cannot be read.
var ErrOverrun = errors.New("messages of the kernel are lost")

// LocalNSID is the number of the namespace of the listener's socket.
const LocalNSID = -1

// Subscription says what a Listener hears.
type Subscription struct {
	// Groups are the multicast groups (RTNLGRP_*).
	Groups []int
	// AllNamespaces hears every namespace that has a number in the socket's own. It needs CAP_NET_BROADCAST.
	AllNamespaces bool
	// ReceiveBuffer is SO_RCVBUFFORCE in bytes. It needs CAP_NET_ADMIN. The kernel takes twice as much.
	ReceiveBuffer int
}

// Listener is a netlink route socket that hears what the kernel tells unasked. Wait and Read may be called at the same
// time. Only one goroutine may be in Read. The caller closes it.
type Listener struct {
	file       *os.File
	conn       syscall.RawConn
	buf, aside []byte
}

// NewListener makes a Listener of the descriptor, and owns it from now on. If it fails, it closes it. The socket must be
// made with SOCK_NONBLOCK. If it has a filter, that drops messages before they take room in the receive buffer. What changes after NewListener has returned is heard.
func NewListener(fd int, h Subscription) (*Listener, error) {
	if err := h.subscribe(fd); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "netlink")
	conn, err := file.SyscallConn()
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return &Listener{file: file, conn: conn, buf: make([]byte, 64<<10), aside: make([]byte, unix.CmsgSpace(4)*2)}, nil
}

func (h Subscription) subscribe(fd int) error {
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("bind netlink socket: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, h.ReceiveBuffer); err != nil {
		return fmt.Errorf("set SO_RCVBUFFORCE: %w", privilege.Explain(err, "CAP_NET_ADMIN"))
	}
	if h.AllNamespaces {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1); err != nil {
			return fmt.Errorf("set NETLINK_LISTEN_ALL_NSID: %w", privilege.Explain(err, "CAP_NET_BROADCAST"))
		}
	}
	return setMembership(fd, unix.NETLINK_ADD_MEMBERSHIP, h.Groups)
}

func setMembership(fd, option int, groups []int) error {
	for _, group := range groups {
		if err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, option, group); err != nil {
			return fmt.Errorf("join or leave netlink group %d: %w", group, err)
		}
	}
	return nil
}

// SetMembership makes the listener hear the groups (NETLINK_ADD_MEMBERSHIP), or hear them no more (NETLINK_DROP_MEMBERSHIP).
func (l *Listener) SetMembership(option int, groups ...int) (err error) {
	controlErr := l.conn.Control(func(fd uintptr) { err = setMembership(int(fd), option, groups) })
	return errors.Join(controlErr, err)
}

// Close closes the socket. A Wait that is under way returns.
func (l *Listener) Close() { _ = l.file.Close() }

// Wait returns when there is something to read. It returns an error after Close.
func (l *Listener) Wait() error {
	return l.conn.Read(func(fd uintptr) bool {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return ready > 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
}

// Read reads one datagram, and calls handle with each message in it and with the number of the namespace that it is
// about. A message is valid during the call only. Read waits for nothing: found is false if nothing was there. It returns
// ErrOverrun if something is lost. The kernel then tells nothing more until the socket is empty.
func (l *Listener) Read(handle func(namespace int, m *syscall.NetlinkMessage)) (found bool, err error) {
	controlErr := l.conn.Control(func(fd uintptr) { found, err = l.read(int(fd), handle) })
	return found, errors.Join(controlErr, err)
}

func (l *Listener) read(fd int, handle func(int, *syscall.NetlinkMessage)) (found bool, err error) {
	messages, aside, err := receiveDatagram(fd, l.buf, l.aside, unix.MSG_DONTWAIT)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return false, nil
	case errors.Is(err, unix.EINTR):
		return true, nil
	case err != nil:
		return true, fmt.Errorf("%w: %w", ErrOverrun, err)
	}
	namespace, err := namespaceIn(l.aside[:aside])
	if err != nil {
		return true, err
	}
	for i := range messages {
		if messages[i].Header.Type < unix.NLMSG_MIN_TYPE { // No group is told of errors.
			return true, fmt.Errorf("%w: a message of type %d", ErrOverrun, messages[i].Header.Type)
		}
		handle(namespace, &messages[i])
	}
	return true, nil
}

// namespaceIn returns the number of the namespace that the kernel tells beside a message. It tells none for the
// socket's own namespace.
func namespaceIn(aside []byte) (int, error) {
	for len(aside) > 0 {
		header, data, rest, err := unix.ParseOneSocketControlMessage(aside)
		if err != nil {
			return LocalNSID, fmt.Errorf("%w: %w", ErrOverrun, err)
		}
		if header.Level == unix.SOL_NETLINK && header.Type == unix.NETLINK_LISTEN_ALL_NSID && len(data) >= 4 {
			return int(int32(binary.NativeEndian.Uint32(data))), nil
		}
		aside = rest
	}
	return LocalNSID, nil
}
