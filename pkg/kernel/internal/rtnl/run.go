package rtnl

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/failpoint"
)

// Message is one netlink request.
type Message struct {
	Request *nl.NetlinkRequest
	// Action says what the request is for. It begins with a verb, and each error of the request
	// begins with it.
	Action string
	// MayExist says that the object that the request makes may be there already. MayLack says that
	// the object that the request deletes may be gone.
	MayExist, MayLack bool
	// Take is called with what the kernel tells of the object that it made. The payload is valid
	// during the call only. Without Take, the kernel is not asked to tell anything.
	Take func(payload []byte) error
}

// Add adds attributes to the request.
func (m Message) Add(attributes ...nl.NetlinkRequestData) {
	m.Request.Data = append(m.Request.Data, attributes...)
}

// AddRtAttr adds an attribute to the request, as the method of nl.RtAttr adds one to an attribute.
func (m Message) AddRtAttr(attribute int, value []byte) *nl.RtAttr {
	attr := nl.NewRtAttr(attribute, value)
	m.Add(attr)
	return attr
}

// explain returns the error, if there is one, with what the message is for.
func (m Message) explain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", m.Action, err)
}

// tolerates says that the error is no failure of this request.
func (m Message) tolerates(err error) bool {
	isOneOf := func(errnos ...error) bool {
		return slices.ContainsFunc(errnos, func(errno error) bool { return errors.Is(err, errno) })
	}
	return m.MayExist && isOneOf(unix.EEXIST) || m.MayLack && isOneOf(unix.ESRCH, unix.EADDRNOTAVAIL, unix.ENOENT, unix.ENODEV)
}

// step is the verb of Action. Names are left out, because some are chosen at random.
func (m Message) step() string {
	verb, _, _ := strings.Cut(m.Action, " ")
	return verb
}

// Run sends the messages in one datagram. The kernel works through them in their order, even after
// a failure. Run returns all errors.
func (s *Socket) Run(messages ...Message) error {
	return errors.Join(s.RunEach(messages...)...)
}

// MaxBatch is how many messages go in one datagram. If more of them failed, their errors would
// overflow the socket.
const MaxBatch = 200

// RunEach is Run. It returns the outcome of each message at its place.
func (s *Socket) RunEach(messages ...Message) []error {
	if len(messages) == 0 {
		return nil
	}
	if len(messages) > MaxBatch {
		return append(s.RunEach(messages[:MaxBatch]...), s.RunEach(messages[MaxBatch:]...)...)
	}
	turn := s.inTurn
	if messages[len(messages)-1].Request.Type == unix.RTM_DELLINK {
		// A deletion may wait long until nobody uses the device any more. It does not hold the RTNL lock then.
		turn = func(f func() error) error { return f() }
	}
	outcomes, _ := s.runBatches(turn, newBatch(messages))
	return outcomes
}

// RunAfter runs first, and the rest only if that succeeds. All this is one turn. If first fails,
// the kernel would do the others to another device, which has the place of first. RunAfter returns
// the outcome of each of the others at its place, and the error of first. If that failed, the others have no outcome.
func (s *Socket) RunAfter(first Message, rest ...Message) (outcomes []error, failed error) {
	head, later := rest[:min(len(rest), MaxBatch)], rest[min(len(rest), MaxBatch):]
	if outcomes, failed = s.runBatches(s.inTurn, newBatch([]Message{first}), newBatch(head)); failed == nil && len(later) > 0 {
		outcomes = append(outcomes, s.RunEach(later...)...)
	}
	return outcomes, failed
}

// runBatches runs batches in one turn, each only if the ones before it have succeeded. The turn ends when the last one is sent. It
// returns the outcomes of the last one, or the error of one before.
func (s *Socket) runBatches(turn func(func() error) error, batches ...*batch) (outcomes []error, failed error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := batches[len(batches)-1]
	err := turn(func() error {
		for _, b := range batches {
			failpoint.Here("before", b.step())
			err := s.send(b.bytes)
			if b == last {
				return err
			}
			if failed = errors.Join(s.finish(b, err)...); failed != nil {
				return nil
			}
		}
		return nil
	})
	if failed != nil {
		return nil, failed
	}
	return s.finish(last, err), nil
}

// finish receives the answers to a batch that was sent with that error.
func (s *Socket) finish(b *batch, err error) []error {
	if err == nil {
		err = b.receive(s)
	}
	failpoint.Here("after", b.step())
	return b.end(err)
}

// queued is a function that sends changes, and where its result goes.
type queued struct {
	send func() error
	sent chan<- error
}

// sendQueue leads to the goroutine that sends the changes of all sockets. The kernel takes one
// change at a time anyway. A thread that waits in the kernel for the RTNL lock spins on a
// processor, or sleeps and is woken late. A goroutine that waits here leaves the processor to those
// that prepare the next change or look at the result of the last one.
var sendQueue = sync.OnceValue(func() chan<- queued {
	queue := make(chan queued, 64) // It has room, so that a sender need not be woken only to wait for its result.
	go func() {
		for next := range queue {
			next.sent <- next.send()
		}
	}()
	return queue
})

// inTurn calls send, which sends changes. Nobody else sends changes during the call.
func (s *Socket) inTurn(send func() error) error {
	sent := make(chan error, 1)
	sendQueue() <- queued{send, sent}
	return <-sent
}
