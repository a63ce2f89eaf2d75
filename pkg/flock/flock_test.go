package flock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"
)

// open opens the same file anew: flock(2) tells open files apart, not processes.
func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func TestTry(t *testing.T) {
	for _, test := range []struct {
		name         string
		first, other int
		want         error
	}{
		{"two readers", Shared, Shared, nil},
		{"a writer beside a reader", Shared, Exclusive, ErrBusy},
		{"a reader beside a writer", Exclusive, Shared, ErrBusy},
		{"two writers", Exclusive, Exclusive, ErrBusy},
	} {
		path := filepath.Join(t.TempDir(), "lock")
		first, other := open(t, path), open(t, path)
		if err := Try(first, test.first); err != nil {
			t.Fatal(err)
		}
		if err := Try(other, test.other); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
		_ = first.Close()
		if err := Try(other, test.other); err != nil {
			t.Errorf("%s, after the first is closed: %v", test.name, err)
		}
	}
}

func TestLockWaits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, other := open(t, path), open(t, path)
	if err := Try(first, Exclusive); err != nil {
		t.Fatal(err)
	}
	got := make(chan error)
	go func() { got <- Lock(t.Context(), other, Exclusive) }()
	select {
	case err := <-got:
		t.Fatalf("got the lock beside another: %v", err)
	case <-time.After(20 * time.Millisecond): // Nothing depends on how long this is.
	}
	_ = first.Close()
	if err := <-got; err != nil {
		t.Errorf("after the first is closed: %v", err)
	}
	if err := Try(open(t, path), Shared); !errors.Is(err, ErrBusy) {
		t.Errorf("another: %v, want %v", err, ErrBusy)
	}
}

// A lock that nobody waits for any more goes as soon as it comes.
func TestLockEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first := open(t, path)
	late, err := os.OpenFile(path, os.O_RDWR, 0) // Lock closes it.
	if err != nil {
		t.Fatal(err)
	}
	if err := Try(first, Exclusive); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Lock(ctx, late, Exclusive); !errors.Is(err, ErrBusy) {
		t.Fatalf("%v, want %v", err, ErrBusy)
	}
	_ = first.Close()
	if err := Lock(t.Context(), open(t, path), Exclusive); err != nil {
		t.Errorf("after the first is closed: %v", err)
	}
}

// A wait that was given up leaves nothing behind, however long the holder holds on.
func TestAWaitThatIsGivenUpLeavesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first := open(t, path)
	if err := Try(first, Exclusive); err != nil {
		t.Fatal(err)
	}
	count := func(dir string) int {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	files := count("/proc/self/fd")
	var waits sync.WaitGroup
	for range 50 {
		late, err := os.OpenFile(path, os.O_RDWR, 0) // Lock closes it.
		if err != nil {
			t.Fatal(err)
		}
		waits.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			if err := Lock(ctx, late, Exclusive); !errors.Is(err, ErrBusy) {
				t.Errorf("%v, want %v", err, ErrBusy)
			}
		})
	}
	waits.Wait()
	if now := count("/proc/self/fd"); now > files {
		t.Errorf("%d open files, %d before", now, files)
	}
	// Nor does a thread wait in the kernel, which has an arrow in its line.
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		t.Fatal(err)
	}
	if waits := regexp.MustCompile(fmt.Sprintf(`-> FLOCK +ADVISORY +WRITE +%d `, os.Getpid())).FindAll(locks, -1); len(waits) > 0 {
		t.Errorf("%d threads wait still", len(waits))
	}
}

// The error says who is in the way, and that it is stopped.
func TestLockSaysWhoHoldsIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	holder := exec.Command("flock", "--no-fork", path, "sh", "-c", `kill -STOP $$; : a \x1b of the command`)
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(holder.Process.Kill(), holder.Wait()) })
	name := fmt.Sprintf(`sh -c kill -STOP $$; : a \x1b of the command, process %d, which is stopped`, holder.Process.Pid)
	for deadline := time.Now().Add(10 * time.Second); processName(holder.Process.Pid) != name; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it is %s", processName(holder.Process.Pid))
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Lock(ctx, open(t, path), Shared)
	want := "in use by another process (held by " + name + ")"
	if !errors.Is(err, ErrBusy) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestAProcessThatHasEndedHasANumber(t *testing.T) {
	if got, want := processName(1<<30), fmt.Sprint("process ", 1<<30); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestHoldersIn(t *testing.T) {
	const locks = `1: FLOCK  ADVISORY  WRITE 1234 00:1a:77 0 EOF
1: -> FLOCK  ADVISORY  WRITE 1235 00:1a:77 0 EOF
2: FLOCK  ADVISORY  READ  1236 00:1a:77 0 EOF
3: FLOCK  ADVISORY  READ  1236 00:1a:77 0 EOF
4: POSIX  ADVISORY  WRITE 1237 00:1a:77 0 EOF
5: FLOCK  ADVISORY  WRITE 1238 08:01:77 0 EOF
6: FLOCK  ADVISORY  WRITE 1239 00:1a:78 0 EOF
7: FLOCK  ADVISORY  WRITE 0 00:1a:77 0 EOF
`
	if got := holdersIn(locks, 0, 0x1a, 77); !slices.Equal(got, []int{1234, 1236}) {
		t.Errorf("%v", got)
	}
}

// Locks of others come and go while somebody looks who holds this one.
func TestHoldersOfWhileLocksComeAndGo(t *testing.T) {
	dir := t.TempDir()
	held := open(t, filepath.Join(dir, "held"))
	if err := Try(held, Exclusive); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var others sync.WaitGroup
	for i := range 6 {
		others.Go(func() {
			for path := filepath.Join(dir, fmt.Sprint(i)); ; time.Sleep(100 * time.Microsecond) {
				select {
				case <-stop:
					return
				default:
				}
				f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
				if err = errors.Join(err, Try(f, Exclusive), f.Close()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 1000 {
		if holders := HoldersOf(held); len(holders) != 1 || holders[0] != processName(os.Getpid()) {
			t.Errorf("%v, want this process", holders)
		}
	}
	close(stop)
	others.Wait()
}

func TestLockOfWhatCantBeLocked(t *testing.T) {
	f := open(t, filepath.Join(t.TempDir(), "lock"))
	_ = f.Close()
	if err := Lock(t.Context(), f, Exclusive); err == nil || errors.Is(err, ErrBusy) {
		t.Errorf("a closed file: %v", err)
	}
}

// A short wait is not reported. A long one is, once, with who is in the way.
func TestALongWaitIsNoticedOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first := open(t, path)
	if err := Try(first, Exclusive); err != nil {
		t.Fatal(err)
	}
	var noticed []string
	wait := func(ctx context.Context, tell OnWait) (took time.Duration) {
		t.Helper()
		late, err := os.OpenFile(path, os.O_RDWR, 0) // LockWithNotice closes it.
		if err != nil {
			t.Fatal(err)
		}
		noticed = nil
		start := time.Now()
		if err := LockWithNotice(ctx, late, Exclusive, tell, func() string { return "shop/web-0" }); !errors.Is(err, ErrBusy) {
			t.Errorf("%v, want %v", err, ErrBusy)
		}
		return time.Since(start)
	}
	for short := false; !short; { // A busy machine can make a long wait of it.
		ctx, cancel := context.WithTimeout(t.Context(), NoticeAfter/4)
		if short = wait(ctx, func(line string) { noticed = append(noticed, line) }) < NoticeAfter; short && len(noticed) > 0 {
			t.Errorf("a short wait: %v", noticed)
		}
		cancel()
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	wait(ctx, func(line string) { // It goes on for a while, so that it could be told again.
		noticed = append(noticed, line)
		time.AfterFunc(NoticeAfter/2, cancel)
	})
	want := fmt.Sprintf("waiting for the lock of shop/web-0 (held by %s)", processName(os.Getpid()))
	if len(noticed) != 1 || noticed[0] != want {
		t.Errorf("a long wait: %v, want one: %s", noticed, want)
	}
}
