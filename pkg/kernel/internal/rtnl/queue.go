package rtnl

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

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

// holdsProcessor is the argument of the last HoldProcessor.
var holdsProcessor atomic.Bool

// HoldProcessor says whether this goroutine keeps its processor (GOMAXPROCS) while the kernel works
// through a RunAfter, which takes 0.1 ms. Otherwise the runtime gives the processor to another
// goroutine during such a system call, and the goroutine then waits for a free one. That takes up
// to a tenth of the time of a restore of many interfaces.
//
// The price: while another process holds the RTNL lock, the runtime cannot collect garbage, and all
// goroutines wait for it.
func HoldProcessor(hold bool) { holdsProcessor.Store(hold) }

// sendHolding is send for changes that the kernel makes in a moment. It may hold the processor. The
// caller has its turn.
func (s *Socket) sendHolding(b []byte) error {
	if !holdsProcessor.Load() {
		return s.send(b)
	}
	// A message without an address goes to the kernel (netlink_sendmsg).
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
