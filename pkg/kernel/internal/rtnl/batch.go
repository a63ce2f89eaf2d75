package rtnl

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// batch is the messages of one datagram, with their outcomes.
type batch struct {
	messages []Message
	bytes    []byte
	outcomes []error
	// places are the places of the messages by their sequence numbers.
	places map[uint32]int
}

func newBatch(messages []Message) *batch {
	b := &batch{messages: messages, outcomes: make([]error, len(messages)), places: make(map[uint32]int, len(messages))}
	// The kernel answers in order, and tells each error unasked. So only the last message asks for
	// an answer: all messages without an error before it have succeeded. One answer for each
	// message could overflow the socket.
	messages[len(messages)-1].Request.Flags |= unix.NLM_F_ACK
	for i, m := range messages {
		if m.Take != nil {
			m.Request.Flags |= unix.NLM_F_ECHO
		}
		b.bytes = append(b.bytes, m.Request.Serialize()...)
		b.places[m.Request.Seq] = i
	}
	return b
}

// step names the batch for tests that kill the program at it.
func (b *batch) step() string { return b.messages[0].step() }

// receive reads the answers up to that of the last message.
func (b *batch) receive(s *Socket) error {
	return s.receive(func(m *syscall.NetlinkMessage) (proceed bool, err error) {
		i, ok := b.places[m.Header.Seq]
		switch {
		case !ok:
			return true, nil
		case m.Header.Type == unix.NLMSG_ERROR:
		case b.messages[i].Take != nil:
			return true, b.messages[i].Take(m.Data)
		default:
			return true, nil
		}
		if b.outcomes[i] = parseError(m); b.messages[i].tolerates(b.outcomes[i]) {
			b.outcomes[i] = nil
		}
		return i < len(b.messages)-1, nil
	})
}

// end returns the outcomes. err is the error of sending or receiving.
func (b *batch) end(err error) []error {
	for i := range b.outcomes {
		if b.outcomes[i] == nil {
			b.outcomes[i] = err // Nobody knows what became of this message.
		}
		b.outcomes[i] = b.messages[i].explain(b.outcomes[i])
	}
	return b.outcomes
}
