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
var changing = regexp.MustCompile(`>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d relink\[(\d+)\]|in (\d+m)?[\d.]+m?s`)

// written returns what the daemon gets of a run, without what changes. The run has all the time that it needs.
func written(t *testing.T, l Log, r Run) []string {
	t.Helper()
	usual := limit
	limit = time.Minute
	defer func() { limit = usual }()
	conn := daemon(t)
	l.Socket = conn.LocalAddr().String()
	if err := conn.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	const end = "the end"
	go func() { // A daemon reads while it is written to: its queue is short.
		l.Write(r)
		// All messages are in one queue.
		if to, err := net.DialUnix("unixgram", nil, conn.LocalAddr().(*net.UnixAddr)); err == nil {
			_, _ = to.Write([]byte(end))
			_ = to.Close()
		}
	}()
	var all []string
	b := make([]byte, 1<<16)
	for {
		n, err := conn.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		line := string(b[:n])
		if line == end {
			return all
		}
		if pid := fmt.Sprintf("relink[%d]: ", os.Getpid()); !strings.Contains(line, pid) {
			t.Errorf("without %q: %q", pid, line)
		}
		all = append(all, changing.ReplaceAllString(line, "*"))
	}
}

func TestWrite(t *testing.T) {
	l := Log{User: "root", Command: []string{"relink", "restore", "--wait", "5s"}, Started: time.Now()}
	sudo := l
	sudo.SudoUser, sudo.Command = "an\x1bna", []string{"relink", "forget", "a b", ""}
	for name, test := range map[string]struct {
		log  Log
		run  Run
		want []string
	}{
		"it took long": {Log{User: "root", Started: time.Now().Add(-61500 * time.Millisecond)}, Run{Summary: "2 restored"}, []string{"<29*: 2 restored; run by root *: \n"}},
		"all is well":  {l, Run{Summary: "2 restored"}, []string{"<29*: 2 restored; run by root *: relink restore --wait 5s\n"}},
		"something failed": {l, Run{Summary: "1 restored, 1 failed", Failures: []string{"shop/web-0 eth0: no\nparent"}}, []string{
			"<28*: 1 restored, 1 failed; run by root *: relink restore --wait 5s\n", "<28*: failed: shop/web-0 eth0: no\\nparent\n",
		}},
		"nothing was done": {sudo, Run{Err: errors.Join(errors.New("no directory"), errors.New("no root"))}, []string{
			`<27*: nothing was done: no directory; no root; run by root (sudo by an\u001bna) *: relink forget 'a b' ''` + "\n",
		}},
	} {
		if diff := cmp.Diff(test.want, written(t, test.log, test.run)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// A node can have thousands of pods: not each failure has a line, and no line is without end.
func TestWriteOfVeryMuch(t *testing.T) {
	r := Run{Summary: strings.Repeat("é", maxLine)}
	for i := range 200 {
		r.Failures = append(r.Failures, fmt.Sprint("pod ", i))
	}
	got := written(t, Log{User: "root", Started: time.Now()}, r)
	if len(got) != 1+maxFailures+1 || got[maxFailures] != "<28*: failed: pod 49\n" || got[1+maxFailures] != "<28*: failed: 150 more\n" {
		t.Errorf("%d lines, the last: %q", len(got), got[max(0, len(got)-2):])
	}
	if len(got[0]) > maxLine+100 || !strings.HasSuffix(got[0], "é...\n") {
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
	Log{Socket: socket, Started: start}.Write(Run{Summary: "1 failed", Failures: []string{strings.Repeat("a", maxLine)}})
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
	l := Current()
	if l.Socket != "/dev/log" || l.SudoUser != "anna" || l.User != userName(os.Getuid()) || len(l.Command) == 0 || time.Since(l.Started) > time.Hour {
		t.Errorf("%+v", l)
	}
	if got := userName(4000000000); got != "user 4000000000" {
		t.Errorf("a user without a name: %q", got)
	}
}
