package runlog

import (
	"fmt"
	"log/syslog"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"github.com/relink-cni/relink/pkg/printable"
)

const (
	// DefaultSocket is where journald or a syslog daemon takes messages.
	DefaultSocket = "/dev/log"
	// tag is the program's name in the log.
	tag = "relink"
	// maxFailures is how many failures have a line of their own.
	maxFailures = 50
	// maxLine is how many bytes of a line are kept. Daemons take 8 kB and more.
	maxLine = 2000
)

// limit bounds all the writes of a run together. A daemon that hangs must not keep the command from its end. Tests replace it.
var limit = 200 * time.Millisecond

// started is when this process did.
var started = time.Now()

// Run is what became of a run.
type Run struct {
	// Summary is the outcome in counts, such as "2 restored".
	Summary string
	// Failures has one line for each attachment that failed.
	Failures []string
	// Err is why nothing could be done, nil if something was.
	Err error
}

// Log is where runs are written, and who runs the command.
type Log struct {
	// Socket is the path of a unix datagram socket.
	Socket string
	// User is who runs the command. SudoUser is who became User by sudo, empty for nobody.
	User, SudoUser string
	// Command is the command line.
	Command []string
	// Started is when the run began.
	Started time.Time
}

// Current returns the log of this process.
func Current() Log {
	return Log{Socket: DefaultSocket, User: userName(os.Getuid()), SudoUser: os.Getenv("SUDO_USER"), Command: os.Args, Started: started}
}

// userName returns the user's name, or the number where it has none.
func userName(uid int) string {
	number := strconv.Itoa(uid)
	if u, err := user.LookupId(number); err == nil {
		return u.Username
	}
	return "user " + number
}

// Write writes one line for the run and one for each failure. It never fails and never waits for
// long: without a socket, or beside a daemon that does not read, lines are lost.
func (l Log) Write(r Run) {
	finished := make(chan struct{})
	go func() { // Beside a daemon that hangs, log/syslog waits without end.
		defer close(finished)
		w, err := syslog.Dial("unixgram", l.Socket, syslog.LOG_DAEMON|syslog.LOG_NOTICE, tag)
		if err == nil {
			l.writeTo(w, r)
			_ = w.Close()
		}
	}()
	select {
	case <-finished:
	case <-time.After(limit):
	}
}

// writeTo writes the lines of a run, that of the run first: it is the one that must not be lost.
func (l Log) writeTo(w *syslog.Writer, r Run) {
	write := w.Notice
	switch {
	case r.Err != nil:
		write = w.Err
	case len(r.Failures) > 0:
		write = w.Warning
	}
	err := write(limited(l.line(r)))
	for i, f := range r.Failures {
		switch {
		case err != nil:
		case i < maxFailures:
			err = w.Warning(limited("failed: " + f))
		case i == maxFailures:
			err = w.Warning(fmt.Sprintf("failed: %d more", len(r.Failures)-i))
		}
	}
}

// line says what became of the run, who ran it, how, and how long it took.
func (l Log) line(r Run) string {
	outcome := r.Summary
	if r.Err != nil {
		outcome = "nothing was done: " + printable.Joined(r.Err)
	}
	account := l.User
	if l.SudoUser != "" {
		account = fmt.Sprintf("%s (sudo by %s)", l.User, l.SudoUser)
	}
	return fmt.Sprintf("%s; run by %s in %s: %s", outcome, account, time.Since(l.Started).Round(time.Millisecond), printable.Command(l.Command...))
}

// limited returns the text as one line that a daemon takes.
func limited(text string) string {
	text = printable.Line(text)
	if len(text) > maxLine {
		text = strings.ToValidUTF8(text[:maxLine], "") + "..."
	}
	return text
}
