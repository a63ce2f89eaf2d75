package main

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// TestSupervisor plays systemd: it gets what the agent sends.
func TestSupervisor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	t.Setenv("WATCHDOG_USEC", "400000")
	s, err := newSupervisor()
	if err != nil {
		t.Fatal(err)
	}
	if s.every != 100*time.Millisecond || s.patience() != s.every {
		t.Errorf("a sign of life every %v, a round after %v at most; want a quarter of 400ms", s.every, s.patience())
	}
	s.ready()
	for range 1000 {
		s.alive() // Only the first call sends something.
	}
	time.Sleep(s.every)
	s.alive()
	s.stopping()
	for _, want := range []string{"READY=1", "WATCHDOG=1", "WATCHDOG=1", "STOPPING=1"} {
		if got := received(t, conn); got != want {
			t.Errorf("systemd hears %q, want %q", got, want)
		}
	}
}

func received(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	line := make([]byte, 100)
	_ = conn.SetReadDeadline(time.Now().Add(time.Second))
	n, err := conn.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	return string(line[:n])
}

func TestSupervisorThatNobodyIs(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "")
	t.Setenv("WATCHDOG_USEC", "")
	s, err := newSupervisor()
	if err != nil || s.every != 0 || s.patience() != time.Minute {
		t.Errorf("%+v, %v", s, err)
	}
	s.ready()
	s.alive()
	t.Setenv("WATCHDOG_USEC", "soon")
	if _, err := newSupervisor(); err == nil {
		t.Error("no error for WATCHDOG_USEC=soon")
	}
}
