package main

import (
	"fmt"
	"io"
	"sync"

	"github.com/relink-cni/relink/pkg/printable"
)

// outlet is one of the two streams. It remembers that a write failed, because nobody looks at the errors of single
// lines. Several goroutines can write at once.
type outlet struct {
	to io.Writer
	// line is cleared before each write.
	line   *statusLine
	failed error
}

func (o *outlet) Write(p []byte) (int, error) {
	o.line.mu.Lock()
	defer o.line.mu.Unlock()
	o.line.clearLocked()
	n, err := o.to.Write(p)
	if err != nil && o.failed == nil {
		o.failed = err
	}
	return n, err
}

// outletOf returns the outlet below w, nil if there is none.
func outletOf(w io.Writer) *outlet {
	if p, ok := w.(*printable.Writer); ok {
		w = p.To
	}
	o, _ := w.(*outlet)
	return o
}

// statusLine is the last line of a terminal while a verb works. Each new text replaces the text before it. Both streams
// share the line, because standard output can be the same terminal.
type statusLine struct {
	mu sync.Mutex
	// on is the terminal that shows the line, nil if none does.
	on io.Writer
}

// show shows the text on the terminal.
func (l *statusLine) show(on io.Writer, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clearLocked()
	fmt.Fprint(on, text)
	l.on = on
}

// clear takes the line away.
func (l *statusLine) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clearLocked()
}

// clearLocked is clear for a caller that holds the lock. It erases the line with ECMA-48's "EL".
func (l *statusLine) clearLocked() {
	if l.on != nil {
		fmt.Fprint(l.on, "\r\x1b[K")
		l.on = nil
	}
}

// progress returns a function that shows progress on a terminal, or nil where there is none.
func (s *screen) progress() func(done, total int) {
	f, o := terminal(s.err), outletOf(s.err)
	if f == nil || o == nil || s.quiet {
		return nil
	}
	return func(done, total int) {
		if done == total {
			o.line.clear()
			return
		}
		o.line.show(f, fmt.Sprintf("%d of %s", done, count(total, "sandbox")))
	}
}
