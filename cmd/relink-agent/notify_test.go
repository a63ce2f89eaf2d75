package main

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
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
	if s.interval != 100*time.Millisecond {
		t.Errorf("a sign of life every %v; want a quarter of 400ms", s.interval)
	}
	expect := func(want string) {
		t.Helper()
		if got := readNotification(t, conn); got != want {
			t.Errorf("systemd hears %q, want %q", got, want)
		}
	}
	notifySystemd(daemon.SdNotifyReady)
	expect("READY=1")
	s.notifyWatchdog()
	expect("WATCHDOG=1")
	if s.last.IsZero() {
		t.Error("it does not note when it gave a sign of life")
	}
	s.last = time.Now().Add(time.Minute) // However long the next calls take, the sign was a moment ago.
	for range 1000 {
		s.notifyWatchdog() // It sends nothing.
	}
	s.last = time.Now().Add(-s.interval)
	s.notifyWatchdog()
	expect("WATCHDOG=1")
	notifySystemd(daemon.SdNotifyStopping)
	expect("STOPPING=1")
}

func readNotification(t *testing.T, conn *net.UnixConn) string {
	t.Helper()
	line := make([]byte, 100)
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
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
	if err != nil || s.interval != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	notifySystemd(daemon.SdNotifyReady)
	s.notifyWatchdog()
	t.Setenv("WATCHDOG_USEC", "soon")
	if _, err := newSupervisor(); err == nil {
		t.Error("no error for WATCHDOG_USEC=soon")
	}
}
