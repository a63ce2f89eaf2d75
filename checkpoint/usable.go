package checkpoint

import (
	"errors"
	"fmt"
	"os"
)

// Usable returns nil if a checkpoint could be saved now, which it tries out with as
// much as a checkpoint is long. It makes the directory if it is missing.
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
	return nil
}
