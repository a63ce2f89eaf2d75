package rtnl

import (
	"errors"
	"fmt"
	"strings"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/failpoint"
)

// Message is one netlink request.
type Message struct {
	Request *nl.NetlinkRequest
	// What says what the request is for, and begins its errors. It begins with a verb.
	What string
	// MayExist says that what the request makes may be there already, MayLack that what
	// it deletes may not.
	MayExist, MayLack bool
	// Take is called with what the kernel tells of the object that it made. The payload is
	// valid during the call only. Nil to be told nothing.
	Take func(payload []byte) error
	// Advise returns what to do about the error, empty for nothing. It may be nil.
	Advise func(error) string
}

// explain returns the error with what the message is for.
func (m Message) explain(err error) error {
	if m.Advise != nil {
		if advice := m.Advise(err); advice != "" {
			return fmt.Errorf("%s: %w: %s", m.What, err, advice)
		}
	}
	return fmt.Errorf("%s: %w", m.What, err)
}

// tolerates says that the error is none for this request.
func (m Message) tolerates(err error) bool {
	return m.MayExist && errors.Is(err, unix.EEXIST) || m.MayLack && errors.Is(err, unix.ESRCH)
}

// step is what is done, without the names, some of which are chosen at random.
func (m Message) step() string {
	verb, _, _ := strings.Cut(m.What, " ")
	return verb
}

// Run sends the messages in one datagram, which the kernel works through in
// order whatever comes of each, and returns the errors of all that failed.
func (s *Socket) Run(messages ...Message) error {
	return errors.Join(s.RunEach(messages...)...)
}

// MaxBatch is how many messages go in one datagram: were more to fail, their errors
// would overflow the socket.
const MaxBatch = 200

// RunEach is Run with the outcome of each message at its place.
func (s *Socket) RunEach(messages ...Message) []error {
	if len(messages) == 0 {
		return nil
	}
	if len(messages) > MaxBatch {
		return append(s.RunEach(messages[:MaxBatch]...), s.RunEach(messages[MaxBatch:]...)...)
	}
	b := newBatch(messages)
	s.mu.Lock()
	defer s.mu.Unlock()
	failpoint.Here("before", b.step())
	turn := s.inTurn
	if messages[len(messages)-1].Request.Type == unix.RTM_DELLINK {
		turn = func(f func() error) error { return f() } // It may wait long, for whoever still uses the device, and not for the RTNL lock.
	}
	err := turn(func() error { return s.send(b.bytes) })
	if err == nil {
		err = b.receive(s)
	}
	failpoint.Here("after", b.step())
	return b.end(err)
}

// RunAfter runs first, and the others once that has succeeded, in one turn. Without that
// success they are not sent: the kernel would do them to whoever is in first's place. It
// returns the error of first, and those of all others that failed.
func (s *Socket) RunAfter(first Message, others ...Message) (failed, more error) {
	now, later := others[:min(len(others), MaxBatch)], others[min(len(others), MaxBatch):]
	a, b := newBatch([]Message{first}), newBatch(now)
	if failed, more = s.runBatchAfter(a, b); failed == nil && len(later) > 0 {
		more = errors.Join(more, s.Run(later...))
	}
	return failed, more
}

func (s *Socket) runBatchAfter(a, b *batch) (failed, more error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	failpoint.Here("before", a.step())
	err := s.inTurn(func() error {
		err := s.sendHolding(a.bytes)
		if err == nil {
			err = a.receive(s)
		}
		failpoint.Here("after", a.step())
		if failed = errors.Join(a.end(err)...); failed != nil {
			return nil
		}
		failpoint.Here("before", b.step())
		return s.sendHolding(b.bytes)
	})
	if failed != nil {
		return failed, nil
	}
	if err == nil {
		err = b.receive(s)
	}
	failpoint.Here("after", b.step())
	return nil, errors.Join(b.end(err)...)
}
