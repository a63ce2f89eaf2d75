package flock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/wait"
)

// ErrBusy says that somebody else holds the lock.
var ErrBusy = errors.New("in use by another process")

// How a lock is held.
const (
	Shared    = unix.LOCK_SH
	Exclusive = unix.LOCK_EX
)

// Try locks f without waiting. It returns ErrBusy if somebody else holds the lock. The lock goes
// with the last descriptor of the open file.
func Try(f *os.File, mode int) error {
	err := flockRetrying(f, mode|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrBusy
	}
	return err
}

// Between two looks at a lock that is held, Lock waits for an eighth of the time that it has waited
// already. These are the limits of that. Two hundred processes that looked every 5 ms kept both
// processors from the lock's holder.
const (
	minPause = 100 * time.Microsecond
	maxPause = 100 * time.Millisecond
)

// DefaultTimeout is how long relink waits for a lock where nothing says otherwise. An ADD holds the
// lock of its sandbox for that long if it finds addresses in use. Runtimes and Multus give a
// plugin minutes for all that it does.
const DefaultTimeout = 30 * time.Second

// RequestTimeout is how long an ADD or a DEL waits for others of its kind, which come hundreds at once. The kubelet waits for two minutes
// and more for what it asks of the runtime.
const RequestTimeout = 110 * time.Second

// NoticeAfter is how long a wait lasts before it is reported. Most waits are over in milliseconds.
const NoticeAfter = time.Second

// OnWait is called once for each wait that lasts longer than NoticeAfter, by the goroutine that
// waits, with a line for the person who started the program. Several goroutines can call it at once. nil is for nobody.
type OnWait func(line string)

// Lock locks f. It waits until ctx is done. Then it returns an error that is ErrBusy and names
// the holders of the lock. It closes f when it fails.
//
// It looks again and again. A flock(2) that waits returns only when the holder lets go: each
// wait that is given up would leave a thread and an open file, and would have the lock for a moment
// after that, when somebody else needs it.
func Lock(ctx context.Context, f *os.File, mode int) error {
	return LockWithNotice(ctx, f, mode, nil, nil)
}

// LockWithNotice is Lock. It calls notify once when it has waited for NoticeAfter. subject names the lock, and is only called then.
func LockWithNotice(ctx context.Context, f *os.File, mode int, notify OnWait, subject func() string) error {
	err := Try(f, mode)
	for start := time.Now(); errors.Is(err, ErrBusy); err = Try(f, mode) {
		if notify != nil && time.Since(start) >= NoticeAfter {
			notify("waiting for the lock of " + subject() + holderNote(f))
			notify = nil
		}
		if !wait.Sleep(ctx, min(max(time.Since(start)/8, minPause), maxPause)) {
			err = fmt.Errorf("%w%s", ErrBusy, holderNote(f))
			break
		}
	}
	if err != nil {
		_ = f.Close()
	}
	return err
}

// holderNote names the holders behind a text. It is empty where the kernel does not tell them.
func holderNote(f *os.File) string {
	if holders := HoldersOf(f); len(holders) > 0 {
		return " (held by " + strings.Join(holders, "; ") + ")"
	}
	return ""
}

// Unlock releases the lock before the file is closed.
func Unlock(f *os.File) error { return flockRetrying(f, unix.LOCK_UN) }

// IsNamed says whether the name by which f was opened still leads to it: nobody has removed or replaced it.
func IsNamed(f *os.File) (bool, error) {
	opened, err := f.Stat()
	if err != nil {
		return false, err
	}
	named, err := os.Stat(f.Name())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && os.SameFile(opened, named), err
}

// flockRetrying is flock(2). It begins again when a signal interrupts it.
func flockRetrying(f *os.File, mode int) error {
	return Uninterrupted(func() error { return unix.Flock(int(f.Fd()), mode) })
}

// Uninterrupted makes a system call again for as long as signals interrupt it. The Go runtime sends its own threads
// signals at any time, which preempt goroutines. Package os does the same for its own calls.
func Uninterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
