package rtnl

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// maxDumps is how often a list is read that the kernel marks as inconsistent, because something
// changed meanwhile.
const maxDumps = 20

// ErrChanging says that a list changed during each reading. By then each has had the answers of all readings.
var ErrChanging error = changingError{}

type changingError struct{}

func (changingError) Error() string {
	return fmt.Sprintf("the list changed during each of %d readings", maxDumps)
}

// Temporary says that the same request can succeed later.
func (changingError) Temporary() bool { return true }

// Dump sends a request for a list, and calls handle with the payload of every answer. The payload is
// valid during the call only. Dump calls reset before each attempt: if the list changed while it
// was read, it reads the list again from the start. At last it returns ErrChanging.
func (s *Socket) Dump(m Message, reset func(), handle func(payload []byte) error) error {
	m.Request.Flags |= unix.NLM_F_DUMP
	for range maxDumps {
		reset()
		interrupted, err := s.dumpOnce(m.Request, handle)
		if err != nil || !interrupted {
			return m.explain(err)
		}
	}
	return m.explain(ErrChanging)
}

func (s *Socket) dumpOnce(request *nl.NetlinkRequest, handle func([]byte) error) (interrupted bool, err error) {
	var failed error
	err = s.ask(request, func(m *syscall.NetlinkMessage) (bool, error) {
		interrupted = interrupted || m.Header.Flags&unix.NLM_F_DUMP_INTR != 0
		if m.Header.Type == unix.NLMSG_DONE {
			return false, parseError(m)
		}
		// After a failure the rest is read too. An answer that stays in the socket would be taken
		// for that of the next request.
		if failed == nil {
			failed = handle(m.Data)
		}
		return true, nil
	})
	return interrupted, errors.Join(failed, err)
}

// ask sends a request, and calls handle with each answer until it wants no more or the kernel refuses the request.
func (s *Socket) ask(request *nl.NetlinkRequest, handle func(*syscall.NetlinkMessage) (proceed bool, err error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.send(request.Serialize()); err != nil {
		return err
	}
	return s.receive(func(m *syscall.NetlinkMessage) (bool, error) {
		switch {
		case m.Header.Seq != request.Seq:
			return true, nil
		case m.Header.Type == unix.NLMSG_ERROR:
			return false, parseError(m)
		}
		return handle(m)
	})
}

// First sends a request for a list, and calls take with the first answer, if there is one. The kernel fills one datagram, which can be read
// no further: the caller closes the socket.
func (s *Socket) First(m Message, take func(payload []byte)) error {
	return m.explain(s.ask(m.Request, func(answer *syscall.NetlinkMessage) (bool, error) {
		if answer.Header.Type == unix.NLMSG_DONE {
			return false, parseError(answer)
		}
		take(answer.Data)
		return false, nil
	}))
}

// Get sends a request for one object, and calls take with the payload of the answer. The payload is
// valid during the call only.
func (s *Socket) Get(m Message, take func(payload []byte) error) error {
	return m.explain(s.ask(m.Request, func(answer *syscall.NetlinkMessage) (bool, error) { return false, take(answer.Data) }))
}
