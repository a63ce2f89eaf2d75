package checkpoint

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/relink-cni/relink/pkg/flock"
)

// BeginGuard notes that somebody takes the parents away on purpose, and brings them back. Until end is called, Guarded
// says so. It returns flock.ErrBusy if somebody has noted that already. The lock on the note is what counts: after a kill
// the file says nothing.
func (s *Store) BeginGuard() (end func(), err error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, fmt.Errorf("note guard: %w", err)
	}
	f, err := os.OpenFile(s.guardPath(), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("note guard: %w", err)
	}
	// Whoever looks holds the lock for a moment.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := flock.Lock(ctx, f, flock.Exclusive); err != nil {
		return nil, fmt.Errorf("note guard (%s): %w", f.Name(), err)
	}
	return func() { _ = f.Close() }, nil
}

// Guarded says whether a note of BeginGuard counts: a parent that is missing is then no fault of the node.
func (s *Store) Guarded() bool {
	f, err := os.Open(s.guardPath())
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // It was only read.
	return flock.Try(f, flock.Shared) != nil
}

func (s *Store) guardPath() string { return filepath.Join(s.dir, guardFile) }
