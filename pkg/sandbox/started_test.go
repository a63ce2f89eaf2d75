package sandbox

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestProcessOf(t *testing.T) {
	for path, want := range map[string]int{
		"/proc/1234/ns/net": 1234, "/proc/1/../7/ns/net": 7,
		"/proc/self/ns/net": 0, "/proc/12/ns/mnt": 0, "/proc/12/task/12/ns/net": 0, "/run/netns/12": 0, "12": 0, "/proc/-1/ns/net": 0, "": 0,
	} {
		if pid, ok := ProcessOf(path); ok != (want != 0) || ok && pid != want {
			t.Errorf("%q: %d, %v", path, pid, ok)
		}
	}
}

func TestStarted(t *testing.T) {
	begun := time.Now()
	booted, err := Booted()
	if err != nil || booted.After(time.Now()) {
		t.Fatal(booted, err)
	}
	before := time.Now()
	// Booted reads two clocks, one after the other.
	precision := 50*time.Millisecond + before.Sub(begun)
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	at, err := Started(cmd.Process.Pid, booted)
	if err != nil || at.Before(before.Add(-precision)) || at.After(time.Now().Add(precision)) {
		t.Errorf("%s, %v: between %s and %s", at, err, before, time.Now())
	}
	if at, err := Started(os.Getpid(), booted); err != nil || at.After(before.Add(precision)) {
		t.Error(at, err)
	}
	if _, err := Started(1<<30, booted); err == nil {
		t.Error("no error of a process that is not there")
	}
}

func TestParseStarted(t *testing.T) {
	booted := time.Unix(1000, 0)
	const rest = " S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 250 1 2"
	for _, command := range []string{"(sleep)", "(a b)", "(x) 1 2 3)", "(()"} {
		at, err := parseStarted("1234 "+command+rest, booted)
		if want := booted.Add(2500 * time.Millisecond); err != nil || !at.Equal(want) {
			t.Errorf("%s: %s, %v, want %s", command, at, err, want)
		}
	}
	for _, stat := range []string{"", "1234 (sleep)", "1234 (sleep) S 1 2", "1234 (sleep) S 1 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 soon"} {
		if at, err := parseStarted(stat, booted); err == nil {
			t.Errorf("%q: %s", stat, at)
		}
	}
}
