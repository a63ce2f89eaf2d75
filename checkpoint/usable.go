package checkpoint

import (
	"errors"
	"fmt"
	"os"
)

// CheckWritable returns nil if a checkpoint could be saved now. It tries with a file of a checkpoint's
// length. It also opens the locks that every ADD takes. It creates the directory and these locks if they are missing.
func (s *Store) CheckWritable() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("checkpoint directory: %w", err)
	}
	f, err := os.CreateTemp(s.dir, probePrefix+"*")
	if err != nil {
		return fmt.Errorf("checkpoint directory: %w", err)
	}
	const length = 4096
	_, err = f.Write(make([]byte, length))
	if err = errors.Join(err, f.Sync(), f.Close(), os.Remove(f.Name())); err != nil {
		return fmt.Errorf("checkpoint directory: %w", err)
	}
	// Not the lock of the host's devices: no ADD takes that.
	for _, l := range []NodeLock{parentsLock, savesLock} {
		lock, err := s.openNodeFile(l)
		if err != nil {
			return err
		}
		_ = lock.Close()
	}
	return nil
}
