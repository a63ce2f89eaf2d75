package control_test

import (
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint/control"
)

// listenUnix listens on a socket, and calls answer with each connection. It returns the socket's path.
func listenUnix(t *testing.T, answer func(net.Conn)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				answer(conn)
			}()
		}
	}()
	return path
}

// read reads a request without a body.
func read(conn net.Conn) { _, _ = conn.Read(make([]byte, 4096)) }

func TestWhatIsNoAnswer(t *testing.T) {
	const ok = "HTTP/1.0 200 OK\r\n"
	for what, test := range map[string]struct {
		answer string
		want   string
	}{
		"nothing":           {"", `its answer begins with "": this is not HTTP, or only a part of it`},
		"another protocol":  {"SSH-2.0-OpenSSH\r\n", `its answer begins with "SSH-2.0-OpenSSH\r\n": this is not HTTP`},
		"a number alone":    {"200\r\n\r\n", "this is not HTTP"},
		"an endless header": {ok + "A: b\r\n", "or only a part of it"},
		"cut off":           {ok + "Content-Length: 10\r\n\r\n{", "its answer is no *control.Status in JSON: unexpected end of JSON input"},
		"no JSON":           {ok + "\r\n<html>", "its answer is no *control.Status in JSON"},
		"another path":      {"HTTP/1.0 404 Not Found\r\n\r\n404 page not found", "this relink-agent is too old: HTTP status 404"},
		"a bare error":      {"HTTP/1.0 500 x\r\n\r\nboom", "relink-agent refused: HTTP status 500"},
		"a reason":          {"HTTP/1.0 503 x\r\n\r\n" + `{"error":"it is ending"}`, "relink-agent refused: it is ending"},
		"too long":          {ok + "\r\n" + strings.Repeat("x", 17<<20), "its answer is longer than 16777216 bytes"},
	} {
		path := listenUnix(t, func(conn net.Conn) {
			read(conn)
			_, _ = conn.Write([]byte(test.answer))
		})
		_, err := (control.Client{Path: path}).Status(t.Context())
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %s", what, err, test.want)
		}
	}
}

func TestAnAgentThatHangs(t *testing.T) {
	for what, answer := range map[string]func(net.Conn){
		"says nothing": func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) },
		"stops half way": func(conn net.Conn) {
			read(conn)
			_, _ = conn.Write([]byte("HTTP/1.0 200 OK\r\n\r\n{"))
			_, _ = io.Copy(io.Discard, conn)
		},
	} {
		path := listenUnix(t, answer)
		start := time.Now()
		_, err := (control.Client{Path: path, Patience: 50 * time.Millisecond}).Status(t.Context())
		if want := "relink-agent does not answer within 50ms: look at its log, or restart it (" + path + ")"; !errors.Is(err, control.ErrNoAnswer) || err.Error() != want {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%s: it took %s", what, took)
		}
	}
}

// A stopped process (SIGSTOP) accepts nothing. The kernel queues connections to its socket until the queue is full.
func TestAnAgentThatAcceptsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client := control.Client{Path: path, Patience: 20 * time.Millisecond}
	if _, err := client.Status(t.Context()); !errors.Is(err, control.ErrNoAnswer) {
		t.Errorf("an empty queue: %v", err)
	}
	for full := false; !full; {
		conn, err := net.Dial("unix", path)
		if full = errors.Is(err, syscall.EAGAIN); full {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if _, err := client.Status(t.Context()); !errors.Is(err, control.ErrNoAnswer) {
		t.Errorf("a full queue: %v", err)
	}
}

func TestNoAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none", "agent.sock")
	_, err := (control.Client{Path: path}).Status(t.Context())
	if want := "no relink-agent runs on this node: nothing listens on " + path; !errors.Is(err, control.ErrNoAgent) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	t.Setenv(control.SocketEnv, path)
	if control.Socket() != path {
		t.Errorf("the environment names %s, not %s", path, control.Socket())
	}
}
