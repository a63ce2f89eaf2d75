package checkpoint

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/relink-cni/relink/pkg/flock"
)

// LockHost takes the lock for changes to the host's devices. One restore after the other makes such
// changes. It waits until ctx is done and then returns ErrBusy. The holder waits for nothing
// meanwhile: no device, no carrier, no sandbox's lock.
func (s *Store) LockHost(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("lock the host's devices: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(s.dir, hostLock), os.O_RDWR|os.O_CREATE|openNonblock, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the host's devices: %w", err)
	}
	notice := s.onWait.Notice(func() string { return "the host's devices" })
	if err := flock.LockWithNotice(ctx, f, flock.Exclusive, notice); err != nil {
		return nil, fmt.Errorf("lock the host's devices (%s): %w", f.Name(), err)
	}
	return func() { _ = f.Close() }, nil
}
