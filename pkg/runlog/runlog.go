package runlog

import (
	"fmt"
	"log/syslog"
	"net"
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
// long: without a socket, or beside a daemon that does not read, lines are lost. log/syslog would
// wait for such a daemon without end.
func (l Log) Write(r Run) {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: l.Socket, Net: "unixgram"})
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	if conn.SetWriteDeadline(time.Now().Add(limit)) != nil {
		return
	}
	for _, m := range l.messages(r) {
		if _, err := conn.Write([]byte(m.format(time.Now(), os.Getpid()))); err != nil {
			return
		}
	}
}

// message is a line and how grave it is.
type message struct {
	severity syslog.Priority
	text     string
}

// messages returns the lines of a run, that of the run first: it is the one that must not be lost.
func (l Log) messages(r Run) []message {
	failures := r.Failures
	rest := len(failures) - maxFailures
	if rest > 0 {
		failures = failures[:maxFailures]
	}
	messages := []message{{r.severity(), l.line(r)}}
	for _, f := range failures {
		messages = append(messages, message{syslog.LOG_WARNING, "failed: " + f})
	}
	if rest > 0 {
		messages = append(messages, message{syslog.LOG_WARNING, fmt.Sprintf("failed: %d more", rest)})
	}
	return messages
}

func (r Run) severity() syslog.Priority {
	switch {
	case r.Err != nil:
		return syslog.LOG_ERR
	case len(r.Failures) > 0:
		return syslog.LOG_WARNING
	}
	return syslog.LOG_NOTICE
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
	return fmt.Sprintf("%s; run by %s in %s: %s", outcome, account, time.Since(l.Started).Round(time.Millisecond), commandLine(l.Command))
}

// commandLine quotes the words that would not be seen as such.
func commandLine(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		if quoted[i] = w; w == "" || strings.ContainsAny(w, " \t\n\"'") {
			quoted[i] = strconv.Quote(w)
		}
	}
	return strings.Join(quoted, " ")
}

// format returns the message as log/syslog writes it to a local daemon.
func (m message) format(instant time.Time, pid int) string {
	text := printable.Line(m.text)
	if len(text) > maxLine {
		text = strings.ToValidUTF8(text[:maxLine], "") + "..."
	}
	return fmt.Sprintf("<%d>%s %s[%d]: %s\n", syslog.LOG_DAEMON|m.severity, instant.Format(time.Stamp), tag, pid, text)
}
