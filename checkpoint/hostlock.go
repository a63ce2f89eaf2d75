package checkpoint

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/statefile"
)

// LockHost takes the lock for changes to the host's devices. One restore after the other makes such
// changes. It waits as Lock does. The holder waits for nothing meanwhile: no device, no carrier, no sandbox's lock.
func (s *Store) LockHost(ctx context.Context) (unlock func(), err error) {
	return s.lockExclusive(ctx, hostLock, "the host's devices")
}

// LockGC keeps other passes of gc away. It waits as Lock does.
func (s *Store) LockGC(ctx context.Context) (unlock func(), err error) {
	return s.lockExclusive(ctx, agentDir+"/gc.lock", "gc")
}

func (s *Store) lockExclusive(ctx context.Context, name, subject string) (unlock func(), err error) {
	f, err := s.lockNodeFile(ctx, name, subject, flock.Exclusive)
	if err != nil {
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}

// lockNodeFile locks a file beside the sandboxes' directories. It waits as Lock does.
func (s *Store) lockNodeFile(ctx context.Context, name, subject string, mode int) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, flock.DefaultTimeout)
	defer cancel()
	f, err := s.openNodeFile(name, subject)
	if err != nil {
		return nil, err
	}
	if err := flock.LockWithNotice(ctx, f, mode, s.onWait.Notice(func() string { return subject })); err != nil {
		return nil, fmt.Errorf("lock %s (%s): %w", subject, f.Name(), err)
	}
	return f, nil
}

func (s *Store) openNodeFile(name, subject string) (f *os.File, err error) {
	path := filepath.Join(s.dir, name)
	if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|statefile.OpenFlags, 0o600)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", subject, err)
	}
	return f, nil
}
