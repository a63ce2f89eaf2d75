package kernel

import (
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// change is what sends changes, and who is told what came of it.
type change struct {
	send func() error
	sent chan<- error
}

// changeQueue leads to the goroutine that sends the changes of all sockets. The kernel takes
// one at a time anyway, and who waits in it for the RTNL lock spins on a CPU, or sleeps
// and is woken late. Whoever waits here leaves the CPU to those who prepare the next
// change or look at what came of the last one.
var changeQueue = sync.OnceValue(func() chan<- change {
	queue := make(chan change, 64) // With room, so that who fills it is not woken only to wait again.
	go func() {
		for ch := range queue {
			ch.sent <- ch.send()
		}
	}()
	return queue
})

// inTurn calls send, which sends changes, while nobody else sends any.
func (c *conn) inTurn(send func() error) error {
	sent := make(chan error, 1)
	changeQueue() <- change{send, sent}
	return <-sent
}

// holdsProcessor is set by HoldProcessor.
var holdsProcessor atomic.Bool

// HoldProcessor has the goroutine that sends changes keep its processor (GOMAXPROCS) while
// the kernel builds an interface at once, which takes it 0.1 ms. Otherwise the runtime gives the
// processor to another goroutine during such a system call, and the one that comes back waits for
// the next that is free: up to a tenth of the time of a restore of many.
//
// It is for a command that does nothing but make changes. While another process holds the RTNL
// lock, the runtime can't collect garbage, and all goroutines wait for that. What takes long by
// itself, such as deleting or moving a device, holds nothing.
func HoldProcessor() {
	holdsProcessor.Store(runtime.GOMAXPROCS(0) > 1)
}

// sendHolding is send for a change that the kernel makes in a moment. It is called in turn.
func (c *conn) sendHolding(b []byte) error {
	if !holdsProcessor.Load() {
		return c.send(b)
	}
	// Without an address it is for the kernel (netlink_sendmsg).
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(c.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
