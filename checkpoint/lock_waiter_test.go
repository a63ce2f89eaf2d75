package checkpoint

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/relink-cni/relink/pkg/flock"
)

// waitsForLock says whether a goroutine of this process waits for the lock that another one
// holds: both have the file open.
func waitsForLock(t *testing.T, path string) bool {
	t.Helper()
	const own = "/proc/self/fd"
	files, err := os.ReadDir(own)
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, f := range files {
		if file, err := os.Readlink(filepath.Join(own, f.Name())); err == nil && file == path {
			count++
		}
	}
	return count > 1
}

// TestLockWaitsForTheLockThatTookTheOldOnesPlace lets a waiter have the lock of a
// directory that was removed and made anew meanwhile, by somebody who holds the
// new one.
func TestLockWaitsForTheLockThatTookTheOldOnesPlace(t *testing.T) {
	s := newStore(t)
	first, err := openLock(t.Context(), s.sandboxDir("c1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := flock.Try(first, flock.Exclusive); err != nil {
		t.Fatal(err)
	}
	got := make(chan func(), 1)
	go func() {
		unlock, err := s.Lock(t.Context(), "c1")
		if err != nil {
			t.Error(err)
		}
		got <- unlock
	}()
	untilItWaits(t, s, got)

	// What unlock does, and another Lock behind it.
	for _, path := range []string{filepath.Join(s.sandboxDir("c1"), lockName), s.sandboxDir("c1")} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
	unlock := lock(t, s, "c1")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	untilItWaits(t, s, got)
	save(t, s, record("c1", "eth0"))
	unlock()
	unlock = <-got
	expectBusy(t, s, "c1")
	unlock()
}

// untilItWaits returns when the waiter waits, and fails when it has the lock.
func untilItWaits(t *testing.T, s *Store, got <-chan func()) {
	t.Helper()
	for !waitsForLock(t, filepath.Join(s.sandboxDir("c1"), lockName)) {
		select {
		case <-got:
			t.Fatal("the waiter has a lock that somebody else holds")
		default:
			runtime.Gosched()
		}
	}
}
