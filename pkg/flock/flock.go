package flock

import (
	"context"
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// ErrBusy says that somebody else holds the lock.
var ErrBusy = errors.New("in use by another process")

// How a lock is held.
const (
	Shared    = unix.LOCK_SH
	Exclusive = unix.LOCK_EX
)

// Try locks f without waiting: ErrBusy if somebody else holds it. The lock goes with
// the last descriptor of the open file.
func Try(f *os.File, how int) error {
	err := retry(f, how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrBusy
	}
	return err
}

// Lock locks f and waits until ctx is done, then returns ErrBusy. It closes f when it
// fails: a lock that comes too late is given back at once.
func Lock(ctx context.Context, f *os.File, how int) error {
	err := Try(f, how)
	if !errors.Is(err, ErrBusy) {
		return closeIf(err, f)
	}
	locked := make(chan error, 1)
	go func() { locked <- retry(f, how) }()
	select {
	case err := <-locked:
		return closeIf(err, f)
	case <-ctx.Done():
		go func() { _ = errors.Join(<-locked, f.Close()) }()
		return ErrBusy
	}
}

// Unlock gives the lock back before its time.
func Unlock(f *os.File) error { return retry(f, unix.LOCK_UN) }

func closeIf(err error, f *os.File) error {
	if err != nil {
		_ = f.Close()
	}
	return err
}

// retry is flock(2), begun again when a signal interrupts it.
func retry(f *os.File, how int) error {
	for {
		err := unix.Flock(int(f.Fd()), how)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
