package checkpoint

import (
	"errors"
	"fmt"
	"os"
)

// Usable returns nil if a checkpoint could be saved now, which it tries out with as
// much as a checkpoint is long, and if there is a lock of the parents, which every ADD
// takes. It makes the directory and that lock if they are missing.
func (s *Store) Usable() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("checkpoint directory: %w", err)
	}
	f, err := os.CreateTemp(s.dir, ".usable-*") // A dot: it is no sandbox's.
	if err != nil {
		return fmt.Errorf("checkpoint directory: %w", err)
	}
	const length = 4096
	_, err = f.Write(make([]byte, length))
	if err = errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name())); err != nil {
		return fmt.Errorf("checkpoint directory: %w", err)
	}
	// Not the lock of the host's devices: an ADD does without.
	lock, err := s.openParents()
	if err != nil {
		return err
	}
	return lock.Close()
}
