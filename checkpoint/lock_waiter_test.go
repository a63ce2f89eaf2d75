package checkpoint

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/relink-cni/relink/pkg/flock"
)

// waitsForLock reports whether one goroutine of this process waits for the lock that another one holds. Then both have
// the file open.
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

// TestLockWaitsForTheLockThatTookTheOldOnesPlace removes and remakes the directory of a lock while somebody waits for
// it. Another holder has the new lock, so the waiter must not return with the old one.
func TestLockWaitsForTheLockThatTookTheOldOnesPlace(t *testing.T) {
	s := newStore(t)
	first, err := openLock(s.sandboxDir("c1"))
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

	// Do the same as unlock. The next lock then makes the directory again.
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

// untilItWaits returns once the waiter waits. It fails the test if the waiter has the lock.
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
