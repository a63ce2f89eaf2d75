package flock

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
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
func Try(f *os.File, how int) error {
	err := retry(f, how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrBusy
	}
	return err
}

// Between two looks at a lock that is held, Lock waits for an eighth of the time that it has waited
// already. These are the limits of that. Two hundred processes that looked every 5 ms kept both
// processors from the lock's holder.
const (
	shortest = 100 * time.Microsecond
	longest  = 100 * time.Millisecond
)

// Patience is how long relink waits for a lock where nothing says otherwise. An ADD holds the
// lock of its sandbox for that long if it finds addresses in use. Runtimes and Multus give a
// plugin minutes for all that it does.
const Patience = 30 * time.Second

// Lock locks f. It waits until ctx is done. Then it returns an error that is ErrBusy and names
// the holders of the lock. It closes f when it fails.
//
// It looks again and again. A flock(2) that waits returns only when the holder lets go: each
// wait that is given up would leave a thread and an open file.
func Lock(ctx context.Context, f *os.File, how int) error { return LockNoticed(ctx, f, how, nil) }

// LockNoticed is Lock. It calls notice once when it has waited for NoticeAfter, with the holders
// of the lock. A notice of nil is for nobody.
func LockNoticed(ctx context.Context, f *os.File, how int, notice func([]Holder)) error {
	err := Try(f, how)
	for start := time.Now(); errors.Is(err, ErrBusy); err = Try(f, how) {
		if notice != nil && time.Since(start) >= NoticeAfter {
			notice(HoldersOf(f))
			notice = nil
		}
		if !sleep(ctx, min(max(time.Since(start)/8, shortest), longest)) {
			err = &busyError{HoldersOf(f)}
			break
		}
	}
	if err != nil {
		_ = f.Close()
	}
	return err
}

// sleep returns false if ctx is done before the time is up.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Unlock releases the lock before the file is closed.
func Unlock(f *os.File) error { return retry(f, unix.LOCK_UN) }

// retry is flock(2). It begins again when a signal interrupts it.
func retry(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
