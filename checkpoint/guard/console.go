package guard

import (
	"io"
	"sync"
	"time"
)

// console writes to a terminal that may die or hang. The guard waits for it only a short time: its work must not depend
// on a reader. Everything is in the log, too.
type console struct {
	queue chan queuedWrite
	ended chan struct{}
	mu    sync.Mutex
	// readerGone says that nobody reads any more.
	readerGone bool
	closed     bool
}

type queuedWrite struct {
	writer io.Writer
	text   []byte
}

const (
	// queueSize is how many writes wait for the reader.
	queueSize = 256
	// readerPatience is how long the guard waits for a reader once the queue is full, and at its end.
	readerPatience = time.Second
)

func newConsole() *console {
	c := &console{queue: make(chan queuedWrite, queueSize), ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		for w := range c.queue {
			_, _ = w.writer.Write(w.text) // If the terminal is dead, the log still has the text.
		}
	}()
	return c
}

// write queues a copy of the text for the writer.
func (c *console) write(writer io.Writer, text []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.readerGone || c.closed || writer == nil {
		return
	}
	w := queuedWrite{writer, append([]byte(nil), text...)}
	select {
	case c.queue <- w:
		return
	default:
	}
	select {
	case c.queue <- w:
	case <-time.After(readerPatience):
		c.readerGone = true
	}
}

// close waits until everything is written, at most readerPatience.
func (c *console) close() {
	c.mu.Lock()
	if !c.closed {
		c.closed = true
		close(c.queue)
	}
	c.mu.Unlock()
	select {
	case <-c.ended:
	case <-time.After(readerPatience):
	}
}
