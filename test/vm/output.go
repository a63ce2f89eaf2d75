package vm

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// sink takes what the guest writes on one channel. finish is called after the last Write.
type sink interface {
	io.Writer
	finish()
}

// trailerReader passes the guest's output on until the trailer comes, which carries the exit status. What follows it,
// from processes that the command left behind, is dropped.
type trailerReader struct {
	trailer string
	out     io.Writer
	done    func() // called once the status is known

	held []byte // not passed on: may turn out to be the trailer
	code *int
}

// Write never fails: a reader that gave up would block the guest.
func (r *trailerReader) Write(p []byte) (int, error) {
	if r.code != nil {
		return len(p), nil
	}
	r.held = append(r.held, p...)
	if before, after, found := bytes.Cut(r.held, []byte(r.trailer)); found {
		r.pass(before)
		r.held = append([]byte(r.trailer), after...)
		r.parse(string(after))
		return len(p), nil
	}
	keep := partialSuffix(r.held, r.trailer)
	r.pass(r.held[:len(r.held)-keep])
	r.held = append([]byte(nil), r.held[len(r.held)-keep:]...)
	return len(p), nil
}

func (r *trailerReader) parse(after string) {
	digits, _, complete := strings.Cut(after, "\n")
	if !complete {
		return
	}
	code, err := strconv.Atoi(digits)
	if err != nil {
		return
	}
	r.code, r.held = &code, nil
	r.done()
}

func (r *trailerReader) pass(p []byte) {
	if len(p) > 0 {
		_, _ = r.out.Write(p) // a caller's broken writer must not change the result
	}
}

func (r *trailerReader) finish() {
	if !bytes.HasPrefix(r.held, []byte(r.trailer)) {
		r.pass(r.held)
	}
	r.held = nil
}

// status returns the command's exit status, if it came.
func (r *trailerReader) status() (int, bool) {
	if r.code == nil {
		return 0, false
	}
	return *r.code, true
}

// partialSuffix returns how many of data's last bytes are the beginning of mark.
func partialSuffix(data []byte, mark string) int {
	for n := min(len(data), len(mark)-1); n > 0; n-- {
		if string(data[len(data)-n:]) == mark[:n] {
			return n
		}
	}
	return 0
}

const (
	consoleBytes = 64 << 10 // how much of the console is kept
	consoleLines = 40       // how much of it an error shows
	panicMark    = "Kernel panic - not syncing"
)

// consoleLog keeps the end of the guest's serial console.
type consoleLog struct {
	onPanic func() // called when a panic is first seen

	text  []byte
	panic bool
}

func (c *consoleLog) Write(p []byte) (int, error) {
	unseen := max(0, len(c.text)-len(panicMark))
	c.text = append(c.text, p...)
	if !c.panic && bytes.Contains(c.text[unseen:], []byte(panicMark)) {
		c.panic = true
		c.onPanic()
	}
	if extra := len(c.text) - consoleBytes; extra > 0 {
		c.text = append([]byte(nil), c.text[extra:]...)
	}
	return len(p), nil
}

func (c *consoleLog) finish() {}

func (c *consoleLog) panicked() bool { return c.panic }

// tail returns the console's last lines, without carriage returns. Those since a panic are all among
// them: what it was stands before a trace of any length.
func (c *consoleLog) tail() string {
	lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(string(c.text), "\r", "")), "\n")
	from := max(0, len(lines)-consoleLines)
	panicked := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, panicMark) })
	if panicked >= 0 {
		from = min(from, panicked)
	}
	return strings.Join(lines[from:], "\n")
}

// pipe is a pipe whose reading end is copied to a sink.
type pipe struct {
	write  *os.File
	copied chan struct{}
}

func newPipe(to sink) (*pipe, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe for the guest: %w", err)
	}
	p := &pipe{write: w, copied: make(chan struct{})}
	go func() {
		defer close(p.copied)
		defer func() { _ = r.Close() }()
		_, _ = io.Copy(to, r) // the sinks do not fail, and the end of the pipe is the end of the guest
		to.finish()
	}()
	return p, nil
}

// finish closes the writing end and waits until everything is copied.
func (p *pipe) finish() {
	_ = p.write.Close()
	<-p.copied
}
