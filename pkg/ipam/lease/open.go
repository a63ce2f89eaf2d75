package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"syscall"

	bolt "go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/flock"
)

// opened is a store's file that is open and locked.
type opened struct {
	db   *bolt.DB
	file *os.File
}

// open opens the file and locks it: bbolt's own lock looks only every 50 ms. The lock ends when the file is
// closed.
func (s *Store) open(ctx context.Context, readOnly bool, use func(*opened) error) (err error) {
	mode := flock.Exclusive
	if readOnly {
		mode = flock.Shared
	}
	o := &opened{}
	options := &bolt.Options{
		ReadOnly: readOnly, NoStatistics: true,
		OpenFile: func(path string, flag int, _ os.FileMode) (_ *os.File, err error) {
			o.file, err = s.openLocked(ctx, path, flag&^os.O_CREATE, mode)
			return o.file, err
		},
	}
	// A damaged file makes bbolt panic. A file that was cut short makes it touch memory that is not there.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("store %s: %w", s.path, damaged("%v", r))
			// bbolt has mapped the file, and the mapping keeps the lock after the descriptor is closed. The next
			// look would wait for it.
			_ = errors.Join(flock.Unlock(o.file), o.file.Close())
		}
	}()
	o.db, err = bolt.Open(s.path, 0o600, options)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("network %s: %w (no %s)", s.network, ErrNotLeased, s.path)
	case errors.Is(err, ErrBusy):
		return fmt.Errorf("store %s: %w for more than %s", s.path, err, s.wait)
	case errors.Is(err, ErrMoved):
		return fmt.Errorf("store %s: %w while it was waited for", s.path, err)
	case isDamage(err):
		return fmt.Errorf("store %s: %w", s.path, damaged("%w", err))
	case err != nil:
		return fmt.Errorf("open store: %w", err)
	}
	defer func() { err = errors.Join(err, o.db.Close()) }()
	if err = use(o); errors.Is(err, ErrDamaged) {
		err = fmt.Errorf("store %s: %w", s.path, err)
	}
	return err
}

// openLocked opens the file and locks it. Somebody may replace the file meanwhile, with a backup for
// example. A change always goes to the file that others will find there.
func (s *Store) openLocked(ctx context.Context, path string, flag, mode int) (*os.File, error) {
	for retry := false; ; retry = true {
		f, err := openFile(path, flag)
		if retry && errors.Is(err, fs.ErrNotExist) {
			return nil, ErrMoved
		}
		if err != nil {
			return nil, err
		}
		if err := s.lock(ctx, f, mode); err != nil {
			return nil, err
		}
		failpoint.Here("store locked")
		if ok, err := flock.IsNamed(f); err != nil {
			_ = f.Close()
			return nil, err
		} else if ok {
			return f, checkLength(f)
		}
		_ = f.Close()
	}
}

// openFile is os.OpenFile without the poller of the Go runtime, which would need a thread: nobody waits for a
// file on disk.
func openFile(path string, flag int) (*os.File, error) {
	var fd int
	err := flock.Uninterrupted(func() (err error) {
		fd, err = syscall.Open(path, flag|syscall.O_CLOEXEC, 0)
		return err
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return os.NewFile(uintptr(fd), path), nil
}

// lock is flock.Lock with the store's bound on the wait. Most often the lock is free. Then it sets no timer, which
// would start the poller as well.
func (s *Store) lock(ctx context.Context, f *os.File, mode int) error {
	err := flock.Try(f, mode)
	switch {
	case errors.Is(err, flock.ErrBusy):
		ctx, cancel := context.WithTimeout(ctx, s.wait)
		defer cancel()
		return flock.LockWithNotice(ctx, f, mode, s.onWait, func() string { return "the addresses of " + s.network })
	case err != nil:
		_ = f.Close()
	}
	return err
}

// minPageSize is the smallest page size of all kernels: a store may come from another machine.
const minPageSize = 4096

// checkLength reports a file that is too short for bbolt's two first pages. bbolt would make an empty store
// of an empty file.
func checkLength(f *os.File) error {
	info, err := f.Stat()
	if err == nil && info.Size() < 2*minPageSize {
		err = fmt.Errorf("%w: it was cut short to %d bytes", bolterrors.ErrInvalid, info.Size())
	}
	if err != nil {
		_ = f.Close()
	}
	return err
}

// isDamage says whether bbolt does not know the file as its own.
func isDamage(err error) bool {
	for _, damage := range []error{bolterrors.ErrInvalid, bolterrors.ErrVersionMismatch, bolterrors.ErrChecksum} {
		if errors.Is(err, damage) {
			return true
		}
	}
	return false
}
