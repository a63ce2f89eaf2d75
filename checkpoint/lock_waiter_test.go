package checkpoint

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"testing"

	"github.com/relink-cni/relink/pkg/flock"
)

// waitsForLock says whether a goroutine of this process waits for a lock on a
// file (proc_locks(5)).
func waitsForLock(t *testing.T) bool {
	t.Helper()
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile(fmt.Sprintf(`(?m)-> FLOCK +ADVISORY +WRITE +%d `, os.Getpid())).Match(locks)
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
	untilItWaits(t, got)

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
	untilItWaits(t, got)
	save(t, s, record("c1", "eth0"))
	unlock()
	unlock = <-got
	expectBusy(t, s, "c1")
	unlock()
}

// untilItWaits returns when the waiter waits, and fails when it has the lock.
func untilItWaits(t *testing.T, got <-chan func()) {
	t.Helper()
	for !waitsForLock(t) {
		select {
		case <-got:
			t.Fatal("the waiter has a lock that somebody else holds")
		default:
			runtime.Gosched()
		}
	}
}
