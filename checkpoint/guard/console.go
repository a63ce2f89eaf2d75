package guard

import (
	"io"
	"sync"
	"time"
)

// console writes to a terminal that may die or hang. The guard waits for it only a short time: its work must not depend
// on a reader. Everything is in the log, too.
type console struct {
	queue chan written
	ended chan struct{}
	mu    sync.Mutex
	// gone says that nobody reads any more.
	gone   bool
	closed bool
}

type written struct {
	to   io.Writer
	text []byte
}

const (
	// queued is how many writes wait for the reader.
	queued = 256
	// readerPatience is how long the guard waits for a reader once the queue is full, and at its end.
	readerPatience = time.Second
)

func newConsole() *console {
	c := &console{queue: make(chan written, queued), ended: make(chan struct{})}
	go func() {
		defer close(c.ended)
		for w := range c.queue {
			_, _ = w.to.Write(w.text) // If the terminal is dead, the log still has the text.
		}
	}()
	return c
}

// write queues a copy of the text for the writer.
func (c *console) write(to io.Writer, text []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone || c.closed || to == nil {
		return
	}
	w := written{to, append([]byte(nil), text...)}
	select {
	case c.queue <- w:
		return
	default:
	}
	select {
	case c.queue <- w:
	case <-time.After(readerPatience):
		c.gone = true
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
