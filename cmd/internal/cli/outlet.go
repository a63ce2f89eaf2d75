package cli

import (
	"fmt"
	"io"
	"sync"

	"github.com/relink-cni/relink/pkg/printable"
)

// stream is one of the two streams. It remembers that a write failed, because nobody looks at the errors of single
// lines. Several goroutines can write at once.
type stream struct {
	Writer io.Writer
	// line is cleared before each write.
	line     *statusLine
	writeErr error
}

func (o *stream) Write(p []byte) (int, error) {
	o.line.mu.Lock()
	defer o.line.mu.Unlock()
	o.line.clearLocked()
	n, err := o.Writer.Write(p)
	if err != nil && o.writeErr == nil {
		o.writeErr = err
	}
	return n, err
}

// StreamOf returns the stream below w, nil if there is none.
func StreamOf(w io.Writer) *stream {
	o, _ := Raw(w).(*stream)
	return o
}

// statusLine is the last line of a terminal while a verb works. Each new text replaces the text before it. Both streams
// share the line, because standard output can be the same terminal.
type statusLine struct {
	mu sync.Mutex
	// tty is the terminal that shows the line, nil if none does.
	tty io.Writer
}

// show shows the text on the terminal, or nothing if that is nil.
func (l *statusLine) show(tty io.Writer, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.clearLocked()
	if tty != nil {
		fmt.Fprint(tty, text)
		l.tty = tty
	}
}

// clear takes the line away.
func (l *statusLine) clear() { l.show(nil, "") }

// clearLocked is clear for a caller that holds the lock. It erases the line with ECMA-48's "EL".
func (l *statusLine) clearLocked() {
	if l.tty != nil {
		fmt.Fprint(l.tty, "\r\x1b[K")
		l.tty = nil
	}
}

// Progress returns a function that shows on a terminal how many of the things with that name are done, or nil where there is none.
func (s *Screen) Progress(noun string) func(finished, total int) {
	f, o := terminal(s.Err), StreamOf(s.Err)
	if f == nil || o == nil || s.Quiet {
		return nil
	}
	return func(finished, total int) {
		if finished == total {
			o.line.clear()
			return
		}
		o.line.show(f, fmt.Sprintf("%d of %s", finished, printable.Count(total, noun)))
	}
}
