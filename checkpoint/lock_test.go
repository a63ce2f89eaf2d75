package checkpoint

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/flock"
)

// lock takes the lock. It waits as long as the test may run.
func lock(t *testing.T, s *Store, containerID string) (unlock func()) {
	t.Helper()
	unlock, err := s.Lock(t.Context(), containerID)
	if err != nil {
		t.Fatal(err)
	}
	return unlock
}

// expiredContext returns a context whose time is up.
func expiredContext() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func expectBusy(t *testing.T, s *Store, containerID string) {
	t.Helper()
	unlock, err := s.Lock(expiredContext(), containerID)
	if err == nil {
		unlock()
	}
	want := "lock sandbox " + containerID + ": in use by "
	if !errors.Is(err, ErrBusy) || !strings.HasPrefix(message(err), want) || !strings.Contains(message(err), ", process ") {
		t.Errorf("Lock() = %v, want %s and who it is", err, want)
	}
}

func TestLockIsBusyAtTheDeadlineWhileItIsHeld(t *testing.T) {
	s := newStore(t)
	unlock := lock(t, s, "c1")
	ctx, cancel := context.WithTimeout(t.Context(), 1)
	defer cancel()
	if _, err := s.Lock(ctx, "c1"); !errors.Is(err, ErrBusy) {
		t.Errorf("Lock() = %v, want ErrBusy", err)
	}
	expectBusy(t, s, "c1")
	unlock()
	lock(t, s, "c1")()
}

func TestLockOfAnotherSandboxIsFree(t *testing.T) {
	s := newStore(t)
	defer lock(t, s, "c1")()
	unlock, err := s.Lock(expiredContext(), "c2")
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

func TestLockWaitsForTheHolder(t *testing.T) {
	s := newStore(t)
	save(t, s, record("c1", "eth0"))
	unlock := lock(t, s, "c1")
	var released atomic.Bool
	var waiters sync.WaitGroup
	for range 3 {
		waiters.Go(func() {
			unlock, err := s.Lock(t.Context(), "c1")
			if err != nil {
				t.Error(err)
				return
			}
			if !released.Load() {
				t.Error("two hold the lock")
			}
			unlock()
		})
	}
	expectBusy(t, s, "c1")
	released.Store(true)
	unlock()
	waiters.Wait()
}

func TestUnlockLeavesNothingOfASandboxWithoutCheckpoint(t *testing.T) {
	s := newStore(t)
	unlock := lock(t, s, "c1")
	save(t, s, record("c1", "eth0"), record("c2", "eth0"))
	write(t, s, "c1/.eth0.json123456", "what a kill left")
	if err := s.Forget("c1", "eth0"); err != nil {
		t.Fatal(err)
	}
	unlock()
	expectFiles(t, s, "c2/", "c2/eth0.json")
}

func TestUnlockKeepsWhatIsThere(t *testing.T) {
	for name, file := range map[string]string{
		"a checkpoint":               "eth0.json",
		"a torn one":                 "net1.json",
		"a file of somebody else's":  "notes.txt",
		"a directory of other files": "other/file",
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			unlock := lock(t, s, "c1")
			write(t, s, "c1/eth0.json", "{")
			write(t, s, "c1/"+file, "{")
			unlock()
			for _, want := range []string{"c1/eth0.json", "c1/" + file} {
				if _, err := os.Stat(filepath.Join(s.Dir(), want)); err != nil {
					t.Error(err)
				}
			}
			lock(t, s, "c1")()
		})
	}
}

// unlock removes it, because a checkpoint can stay for as long as its sandbox lives.
func TestUnlockRemovesWhatAKillLeftBesideACheckpoint(t *testing.T) {
	s := newStore(t)
	unlock := lock(t, s, "c1")
	save(t, s, record("c1", "eth0"))
	write(t, s, "c1/.eth0.json123456", "what a kill left")
	unlock()
	expectFiles(t, s, "c1/", "c1/.lock", "c1/eth0.json")
}

func TestTryLockDoesNotWait(t *testing.T) {
	s := newStore(t)
	unlock, err := s.TryLock("c1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.TryLock("c1"); !errors.Is(err, ErrBusy) {
		t.Errorf("held, and it says %v", err)
	}
	unlock()
	// None of the earlier attempts holds it.
	if unlock, err = s.TryLock("c1"); err != nil {
		t.Fatal(err)
	}
	unlock()
}

// The lock of a listed record's sandbox is like any other lock, whatever happens to the record.
func TestTryLockOfARecord(t *testing.T) {
	for name, test := range map[string]struct {
		before, during func(*testing.T, *Store)
		left           []string
	}{
		"stays":          {left: []string{"c1/", "c1/.lock", "c1/eth0.json"}},
		"a kill's":       {before: writeLeftover, left: []string{"c1/", "c1/.lock", "c1/eth0.json"}},
		"is forgotten":   {during: forget("eth0")},
		"another's stay": {before: func(t *testing.T, s *Store) { save(t, s, record("c1", "net1")) }, during: forget("eth0"), left: []string{"c1/", "c1/.lock", "c1/net1.json"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			save(t, s, record("c1", "eth0"))
			if test.before != nil {
				test.before(t, s)
			}
			records, _, err := s.List()
			if err != nil {
				t.Fatal(err)
			}
			unlock, err := s.TryLockRecord(records[0])
			if err != nil {
				t.Fatal(err)
			}
			expectBusy(t, s, "c1")
			if test.during != nil {
				test.during(t, s)
			}
			unlock()
			expectFiles(t, s, test.left...)
			lock(t, s, "c1")()
		})
	}
}

func writeLeftover(t *testing.T, s *Store) { write(t, s, "c1/.eth0.json123456", "what a kill left") }

func forget(ifName string) func(*testing.T, *Store) {
	return func(t *testing.T, s *Store) {
		if err := s.Forget("c1", ifName); err != nil {
			t.Fatal(err)
		}
	}
}

// A waiter can get a lock whose file is already gone, while somebody else holds the lock that replaced it.
func TestLockWhoseDirectoryWasRemovedIsNotTheLockAnyMore(t *testing.T) {
	s := newStore(t)
	unlock := lock(t, s, "c1")
	waiting, err := openLock(s.sandboxDir("c1"))
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	if !isNamed(waiting) {
		t.Error("the lock's file is there, and is said not to be")
	}
	unlock()
	if err := flock.Lock(t.Context(), waiting, flock.Exclusive); err != nil {
		t.Fatal(err)
	}
	if isNamed(waiting) {
		t.Error("the lock's file was removed, and is said to be there")
	}
	unlock, err = s.Lock(expiredContext(), "c1")
	if err != nil {
		t.Fatalf("the new lock: %v", err)
	}
	defer unlock()
	if isNamed(waiting) {
		t.Error("another file took its place, and is said to be the lock's")
	}
	expectBusy(t, s, "c1")
}

func TestLockThatCannotBeMadeSaysSo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := OpenStore(path).Lock(t.Context(), "c1")
	if !errors.Is(err, unix.ENOTDIR) || !strings.HasPrefix(message(err), "lock sandbox: ") {
		t.Errorf("Lock() = %v, want ENOTDIR", err)
	}
}

// A problem that only the admin can fix is reported at once, with its path.
func TestLockBehindALinkToNowhereSaysSo(t *testing.T) {
	for name, link := range map[string]string{"the lock": "c1/.lock", "the directory": "c1"} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			path := filepath.Join(s.Dir(), link)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Join(t.TempDir(), "no/where"), path); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if _, err := s.Lock(ctx, "c1"); !strings.Contains(message(err), path) || ctx.Err() != nil {
				t.Errorf("Lock() = %v (%v), want an error with %s at once", err, ctx.Err(), path)
			}
			if _, err := s.TryLock("c1"); !strings.Contains(message(err), path) {
				t.Errorf("TryLock() = %v, want an error with %s", err, path)
			}
		})
	}
}

func TestLockKeepsOthersOut(t *testing.T) {
	s := newStore(t)
	defer lock(t, s, "c1")()
	for name, want := range map[string]os.FileMode{"": os.ModeDir | 0o700, "c1": os.ModeDir | 0o700, "c1/.lock": 0o600} {
		info, err := os.Stat(filepath.Join(s.Dir(), name))
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != want {
			t.Errorf("%q: mode %s, want %s", name, info.Mode(), want)
		}
	}
}

// TestLockExcludesManyAtOnce lets many goroutines use a sandbox. Another interface's checkpoint keeps its directory.
func TestLockExcludesManyAtOnce(t *testing.T) {
	s := newStore(t)
	save(t, s, record("c1", "net1"))
	lockConcurrently(t, s)
	expectFiles(t, s, "c1/", "c1/.lock", "c1/net1.json")
}

// lockConcurrently lets many goroutines lock sandbox c1, use it and unlock it, over and over. Only the lock protects
// counter, so the race detector finds any gap. At the end it forgets the checkpoint of eth0.
func lockConcurrently(t *testing.T, s *Store) {
	t.Helper()
	const workers, rounds = 8, 40
	var inside atomic.Int32
	counter := 0
	var all sync.WaitGroup
	for worker := range workers {
		all.Go(func() {
			for round := range rounds {
				unlock, err := s.Lock(t.Context(), "c1")
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d hold the lock", n)
				}
				counter++
				useSandbox(t, s, counter, worker+round)
				inside.Add(-1)
				unlock()
			}
		})
	}
	all.Wait()
	if counter != workers*rounds {
		t.Errorf("%d times in the lock, want %d", counter, workers*rounds)
	}
	defer lock(t, s, "c1")()
	if err := s.Forget("c1", "eth0"); err != nil {
		t.Fatal(err)
	}
}

// useSandbox saves, forgets or leaves the record, and checks the result.
func useSandbox(t *testing.T, s *Store, mtu, what int) {
	switch what % 3 {
	case 0:
		r := record("c1", "eth0")
		r.Interface.Link.MTU = mtu
		if err := s.Save(r); err != nil {
			t.Error(err)
		}
		if r, err := s.Load("c1", "eth0"); err != nil || r.Interface.Link.MTU != mtu {
			t.Errorf("saved MTU %d, read %d, %v", mtu, r.Interface.Link.MTU, err)
		}
	case 1:
		if err := s.Forget("c1", "eth0"); err != nil {
			t.Error(err)
		}
		if _, err := s.Load("c1", "eth0"); !errors.Is(err, ErrNoCheckpoint) {
			t.Errorf("forgotten: %v, want ErrNone", err)
		}
	}
}

// TestLockExcludesManyWhileTheDirectoryComesAndGoes lets each holder meet what the holder before it left, often no
// directory at all.
func TestLockExcludesManyWhileTheDirectoryComesAndGoes(t *testing.T) {
	lockConcurrently(t, newStore(t))
}

func TestUnlockOfALockWhoseDirectoryWasReplacedLeavesTheNewLockAlone(t *testing.T) {
	s := newStore(t)
	unlock := lock(t, s, "c1")
	if err := os.RemoveAll(s.sandboxDir("c1")); err != nil {
		t.Fatal(err)
	}
	defer lock(t, s, "c1")()
	unlock()
	expectBusy(t, s, "c1")
}
