package kernel

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/failpoint"
)

// conn is a netlink route socket. Requests and their answers go through it one
// batch at a time.
type conn struct {
	fd int
	// mu is held from a request to the end of its answers. The kernel itself
	// takes one change at a time, of all sockets (the RTNL lock).
	mu sync.Mutex
}

// answerTimeout bounds the wait for an answer. The kernel answers while it
// takes the request, so that only a kernel in trouble is ever waited for.
var answerTimeout = unix.Timeval{Sec: 30}

// dial opens the socket inside the namespace, so that whatever is sent through
// it works there without any further change of namespace.
func dial(at netns.NsHandle) (*conn, error) {
	fd := -1
	n := &Namespace{handle: at}
	err := n.do(func() (err error) {
		fd, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return nil, err
	}
	c := &conn{fd: fd}
	if err := c.configure(); err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

func (c *conn) configure() error {
	return errors.Join(
		unix.Bind(c.fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}),
		unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &answerTimeout),
		// The kernel's own words for an error, where it has some.
		unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1),
		// An error's answer without the request in it.
		unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1),
		// Dumps of one device's addresses instead of all (since 4.20).
		unix.SetsockoptInt(c.fd, unix.SOL_NETLINK, unix.NETLINK_GET_STRICT_CHK, 1),
	)
}

func (c *conn) close() { _ = unix.Close(c.fd) }

// errOldKernel says that the kernel is too old for relink.
var errOldKernel = errors.New("relink needs Linux 5.14 or newer")

// cookie returns the namespace's cookie.
func (c *conn) cookie() (uint64, error) {
	cookie, err := unix.GetsockoptUint64(c.fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	return cookie, cookieError(err)
}

// cookieError says of a kernel without cookies that it is too old: which namespace is
// which could only be guessed, as inode numbers are given again.
func cookieError(err error) error {
	if errors.Is(err, unix.ENOPROTOOPT) {
		return fmt.Errorf("the kernel has no cookies of network namespaces (SO_NETNS_COOKIE): %w", errOldKernel)
	}
	if err != nil {
		return fmt.Errorf("read SO_NETNS_COOKIE: %w", err)
	}
	return nil
}

// message is one netlink request and what it is for, for the error.
type message struct {
	request *nl.NetlinkRequest
	what    string
	// mayExist says that what the request makes may be there already, mayLack that what
	// it deletes may not.
	mayExist, mayLack bool
	// take is called with what the kernel tells of the object that it made, which is
	// valid during the call only; nil to be told nothing.
	take func(payload []byte) error
}

// tolerates says that the error is none for this request.
func (m message) tolerates(err error) bool {
	return m.mayExist && errors.Is(err, unix.EEXIST) || m.mayLack && errors.Is(err, unix.ESRCH)
}

// step is what is done, without the names, some of which are chosen at random.
func (m message) step() string {
	verb, _, _ := strings.Cut(m.what, " ")
	return verb
}

// run sends the messages in one datagram, which the kernel works through in
// order whatever comes of each, and returns the errors of all that failed.
func (c *conn) run(messages ...message) error {
	return errors.Join(c.runEach(messages...)...)
}

// maxBatch is how many messages go in one datagram: were more to fail, their errors
// would overflow the socket.
const maxBatch = 200

// runEach is run with the outcome of each message at its place.
func (c *conn) runEach(messages ...message) []error {
	if len(messages) == 0 {
		return nil
	}
	if len(messages) > maxBatch {
		return append(c.runEach(messages[:maxBatch]...), c.runEach(messages[maxBatch:]...)...)
	}
	b := newBatch(messages)
	c.mu.Lock()
	defer c.mu.Unlock()
	failpoint.Here("before", b.step())
	turn := c.inTurn
	if messages[len(messages)-1].request.Type == unix.RTM_DELLINK {
		turn = func(f func() error) error { return f() } // It may wait long, for whoever still uses the device, and not for the RTNL lock.
	}
	err := turn(func() error { return c.send(b.bytes) })
	if err == nil {
		err = b.receive(c)
	}
	failpoint.Here("after", b.step())
	return b.end(err)
}

// runAfter runs first, and the others once that has succeeded, in one turn. Without that
// success they are not sent: the kernel would do them to whoever is in first's place. It
// returns the error of first, and those of all others that failed.
func (c *conn) runAfter(first message, others ...message) (failed, more error) {
	now, later := others[:min(len(others), maxBatch)], others[min(len(others), maxBatch):]
	a, b := newBatch([]message{first}), newBatch(now)
	if failed, more = c.runBatchAfter(a, b); failed == nil && len(later) > 0 {
		more = errors.Join(more, c.run(later...))
	}
	return failed, more
}

func (c *conn) runBatchAfter(a, b *batch) (failed, more error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	failpoint.Here("before", a.step())
	err := c.inTurn(func() error {
		err := c.sendHolding(a.bytes)
		if err == nil {
			err = a.receive(c)
		}
		failpoint.Here("after", a.step())
		if failed = errors.Join(a.end(err)...); failed != nil {
			return nil
		}
		failpoint.Here("before", b.step())
		return c.sendHolding(b.bytes)
	})
	if failed != nil {
		return failed, nil
	}
	if err == nil {
		err = b.receive(c)
	}
	failpoint.Here("after", b.step())
	return nil, errors.Join(b.end(err)...)
}

// maxDumps is how often a dump is begun again that the kernel marked as
// inconsistent because something changed meanwhile.
const maxDumps = 20

// dump sends a request for a list and calls each with every answer's payload,
// which is valid during the call only. reset is called before each attempt: a
// list that changed under the reader is read again from the start, never taken
// in part.
func (c *conn) dump(m message, reset func(), each func(payload []byte) error) error {
	m.request.Flags |= unix.NLM_F_DUMP
	for range maxDumps {
		reset()
		interrupted, err := c.dumpOnce(m.request, each)
		if err != nil {
			return fmt.Errorf("%s: %w", m.what, err)
		}
		if !interrupted {
			return nil
		}
	}
	return fmt.Errorf("%s: the list changed during each of %d readings", m.what, maxDumps)
}

func (c *conn) dumpOnce(request *nl.NetlinkRequest, each func([]byte) error) (interrupted bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.send(request.Serialize()); err != nil {
		return false, err
	}
	var failed error
	err = c.receive(func(m *syscall.NetlinkMessage) (bool, error) {
		if m.Header.Seq != request.Seq {
			return true, nil
		}
		interrupted = interrupted || m.Header.Flags&unix.NLM_F_DUMP_INTR != 0
		switch m.Header.Type {
		case unix.NLMSG_DONE, unix.NLMSG_ERROR:
			return false, parseError(m)
		}
		// The rest is read even after a failure: an answer left in the
		// socket would be taken for the next request's.
		if failed == nil {
			failed = each(m.Data)
		}
		return true, nil
	})
	return interrupted, errors.Join(failed, err)
}

// get sends a request for one object and calls take with the answer's payload,
// which is valid during the call only.
func (c *conn) get(m message, take func(payload []byte) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.send(m.request.Serialize()); err != nil {
		return fmt.Errorf("%s: %w", m.what, err)
	}
	err := c.receive(func(answer *syscall.NetlinkMessage) (bool, error) {
		switch {
		case answer.Header.Seq != m.request.Seq:
			return true, nil
		case answer.Header.Type == unix.NLMSG_ERROR:
			return false, parseError(answer)
		}
		return false, take(answer.Data)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", m.what, err)
	}
	return nil
}

func (c *conn) send(b []byte) error {
	return unix.Sendto(c.fd, b, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
}

// receiveBuffers hold one datagram each. The kernel fills up to 32 KiB.
var receiveBuffers = sync.Pool{New: func() any { b := make([]byte, 64<<10); return &b }}

// receive hands the answers over until handle says that it wants no more. After a failure
// nothing is left that would be in the way of the next answers: to a socket that has
// overflowed the kernel sends nothing more until it is empty.
func (c *conn) receive(handle func(*syscall.NetlinkMessage) (more bool, err error)) error {
	buf := receiveBuffers.Get().(*[]byte)
	defer receiveBuffers.Put(buf)
	err := c.receiveInto(*buf, handle)
	if err != nil {
		c.discardAnswers(*buf)
	}
	return err
}

func (c *conn) discardAnswers(buf []byte) {
	for {
		_, _, _, _, err := unix.Recvmsg(c.fd, buf, nil, unix.MSG_DONTWAIT)
		if err != nil && !errors.Is(err, unix.ENOBUFS) && !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

func (c *conn) receiveInto(buf []byte, handle func(*syscall.NetlinkMessage) (more bool, err error)) error {
	for {
		size, _, flags, from, err := unix.Recvmsg(c.fd, buf, nil, 0)
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

// parseError returns the error in an NLMSG_ERROR or NLMSG_DONE, nil for an
// acknowledgement: an errno, with the kernel's explanation if it gave one.
func parseError(m *syscall.NetlinkMessage) error {
	if len(m.Data) < 4 {
		return nil
	}
	errno := -int32(nl.NativeEndian().Uint32(m.Data))
	if errno == 0 {
		return nil
	}
	err := error(syscall.Errno(errno))
	attrs := unix.SizeofNlMsghdr + 4
	if m.Header.Type == unix.NLMSG_DONE {
		attrs = 4
	}
	if m.Header.Flags&unix.NLM_F_ACK_TLVS == 0 || len(m.Data) < attrs {
		return err
	}
	parsed, parseErr := nl.ParseRouteAttr(m.Data[attrs:])
	if parseErr != nil {
		return err
	}
	for _, a := range parsed {
		if a.Attr.Type == nl.NLMSGERR_ATTR_MSG {
			return fmt.Errorf("%w: %s", err, nl.BytesToString(a.Value))
		}
	}
	return err
}
