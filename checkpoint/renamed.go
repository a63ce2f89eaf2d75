package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/relink-cni/relink/pkg/attachment"
)

// NoteRenamed notes that an operator said that the device oldName of the checkpoints is newName now. A restore writes the
// new name into the checkpoints. The note tells that the old one was right, when it is said again.
func (s *Store) NoteRenamed(oldName, newName string) error {
	for _, name := range []string{oldName, newName} {
		if err := attachment.ValidateIfName(name); err != nil {
			return fmt.Errorf("note that %q is %q now: %q %w", oldName, newName, name, err)
		}
	}
	if err := s.writeNote(filepath.Join(s.renamed(), oldName), []byte(newName)); err != nil {
		return fmt.Errorf("note that %s is %s now: %w", oldName, newName, err)
	}
	return nil
}

// RenamedTo returns what an operator has said that the device is called now, "" if nobody has.
func (s *Store) RenamedTo(oldName string) (string, error) {
	if err := attachment.ValidateIfName(oldName); err != nil {
		return "", fmt.Errorf("device %q %w", oldName, err)
	}
	newName, err := os.ReadFile(filepath.Join(s.renamed(), oldName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("what %s is now: %w", oldName, err)
	}
	return string(newName), nil
}

func (s *Store) renamed() string { return filepath.Join(s.dir, restoringDir, "renamed") }
