package rtnl

import "sync"

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
