package runlog

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// daemon takes messages at a socket of its own.
func daemon(t *testing.T) *net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "log")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// changing is what differs from run to run.
var changing = regexp.MustCompile(`>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d relink\[(\d+)\]|in \d+(ms|s)`)

// received returns the messages that have come, without what changes.
func received(t *testing.T, conn *net.UnixConn) []string {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	var all []string
	b := make([]byte, 1<<16)
	for {
		n, err := conn.Read(b)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		line := string(b[:n])
		if pid := fmt.Sprintf("relink[%d]: ", os.Getpid()); !strings.Contains(line, pid) {
			t.Errorf("without %q: %q", pid, line)
		}
		all = append(all, changing.ReplaceAllString(line, "*"))
	}
}

// written returns what the daemon gets of a run.
func written(t *testing.T, l Log, r Run) []string {
	t.Helper()
	conn := daemon(t)
	l.Socket = conn.LocalAddr().String()
	// A daemon reads while it is written to: its queue is short.
	done := make(chan struct{})
	go func() { defer close(done); l.Write(r) }()
	var lines []string
	for writing := true; writing; {
		select {
		case <-done:
			writing = false
		default:
		}
		lines = append(lines, received(t, conn)...)
	}
	return lines
}

func TestWrite(t *testing.T) {
	l := Log{User: "root", Command: []string{"relink", "restore", "--wait", "5s"}, Began: time.Now()}
	sudo := l
	sudo.SudoUser, sudo.Command = "an\x1bna", []string{"relink", "forget", "a b", ""}
	for name, test := range map[string]struct {
		log  Log
		run  Run
		want []string
	}{
		"all is well": {l, Run{Summary: "2 restored"}, []string{"<29*: 2 restored; run by root *: relink restore --wait 5s\n"}},
		"something failed": {l, Run{Summary: "1 restored, 1 failed", Failures: []string{"shop/web-0 eth0: no\nparent"}}, []string{
			"<28*: 1 restored, 1 failed; run by root *: relink restore --wait 5s\n", "<28*: failed: shop/web-0 eth0: no\\nparent\n",
		}},
		"nothing was done": {sudo, Run{Err: errors.Join(errors.New("no directory"), errors.New("no root"))}, []string{
			`<27*: nothing was done: no directory; no root; run by root (sudo by an\u001bna) *: relink forget "a b" ""` + "\n",
		}},
	} {
		if diff := cmp.Diff(test.want, written(t, test.log, test.run)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A node can have thousands of pods: not each failure has a line, and no line is without end.
func TestWriteOfVeryMuch(t *testing.T) {
	r := Run{Summary: strings.Repeat("é", longest)}
	for i := range 200 {
		r.Failures = append(r.Failures, fmt.Sprint("pod ", i))
	}
	var got []string
	for range 10 { // On a busy machine, the time ends before some of the runs are written, not before all.
		if got = written(t, Log{User: "root", Began: time.Now()}, r); len(got) == 1+mostFailures+1 {
			break
		}
	}
	if len(got) != 1+mostFailures+1 || got[mostFailures] != "<28*: failed: pod 49\n" || got[1+mostFailures] != "<28*: failed: 150 more\n" {
		t.Errorf("%d lines, the last: %q", len(got), got[max(0, len(got)-2):])
	}
	if len(got[0]) > longest+100 || !strings.HasSuffix(got[0], "é...\n") {
		t.Errorf("%d bytes: %q", len(got[0]), got[0][len(got[0])-20:])
	}
}

// Without a daemon nothing is written, and nobody waits.
func TestWriteToNobody(t *testing.T) {
	stream, err := net.Listen("unix", filepath.Join(t.TempDir(), "stream"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dead := daemon(t)
	deadPath := dead.LocalAddr().String()
	_ = dead.Close()
	for name, socket := range map[string]string{
		"nowhere": filepath.Join(t.TempDir(), "none"), "no name": "", "a stream": stream.Addr().String(), "a plain file": plain,
		"a daemon that has ended": deadPath,
	} {
		// A busy machine holds up one of them, not all.
		if took := min(timeToWrite(socket), timeToWrite(socket), timeToWrite(socket)); took >= limit {
			t.Errorf("%s: it took %s", name, took)
		}
	}
}

// timeToWrite is how long a run with a failure takes.
func timeToWrite(socket string) time.Duration {
	start := time.Now()
	Log{Socket: socket, Began: start}.Write(Run{Summary: "1 failed", Failures: []string{strings.Repeat("a", longest)}})
	return time.Since(start)
}

// A daemon that does not read does not keep the command from its end: its queue is full after
// net.unix.max_dgram_qlen messages.
func TestWriteToADaemonThatHangs(t *testing.T) {
	hanging := daemon(t)
	waited := false
	for range 1000 {
		took := timeToWrite(hanging.LocalAddr().String())
		if took > 20*time.Second {
			t.Fatalf("it took %s", took)
		}
		if waited = took >= limit; waited {
			break
		}
	}
	if !waited {
		t.Error("the queue is never full")
	}
}

func TestHere(t *testing.T) {
	t.Setenv("SUDO_USER", "anna")
	l := Here()
	if l.Socket != "/dev/log" || l.SudoUser != "anna" || l.User != userName(os.Getuid()) || len(l.Command) == 0 || time.Since(l.Began) > time.Hour {
		t.Errorf("%+v", l)
	}
	if got := userName(4000000000); got != "user 4000000000" {
		t.Errorf("a user without a name: %q", got)
	}
}
