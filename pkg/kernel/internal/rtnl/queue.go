package rtnl

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// queued is a function that sends changes, and who is told what it returned.
type queued struct {
	send func() error
	sent chan<- error
}

// sendQueue leads to the goroutine that sends the changes of all sockets. The kernel takes
// one at a time anyway, and who waits in it for the RTNL lock spins on a CPU, or sleeps
// and is woken late. Whoever waits here leaves the CPU to those who prepare the next
// change or look at what came of the last one.
var sendQueue = sync.OnceValue(func() chan<- queued {
	queue := make(chan queued, 64) // With room, so that who fills it is not woken only to wait again.
	go func() {
		for next := range queue {
			next.sent <- next.send()
		}
	}()
	return queue
})

// inTurn calls send, which sends changes, while nobody else sends any.
func (s *Socket) inTurn(send func() error) error {
	sent := make(chan error, 1)
	sendQueue() <- queued{send, sent}
	return <-sent
}

// holdsProcessor is what HoldProcessor was told.
var holdsProcessor atomic.Bool

// HoldProcessor says whether that goroutine keeps its processor (GOMAXPROCS) while the kernel
// works through what RunAfter sends, which takes it 0.1 ms. Otherwise the runtime gives the
// processor to another goroutine during such a system call, and the one that comes back waits for
// the next that is free: up to a tenth of the time of a restore of many.
//
// While another process holds the RTNL lock, the runtime then can't collect garbage, and all
// goroutines wait for that.
func HoldProcessor(hold bool) { holdsProcessor.Store(hold) }

// sendHolding is send for a change that the kernel makes in a moment. It is called in turn.
func (s *Socket) sendHolding(b []byte) error {
	if !holdsProcessor.Load() {
		return s.send(b)
	}
	// Without an address it is for the kernel (netlink_sendmsg).
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
