package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/relink-cni/relink/pkg/attachment"
)

// NoteRenamed notes that the checkpoints named a device was, and that an operator said that it is
// called is now. A restore writes the new name into the checkpoints: the note tells that the old one was
// right, when it is said again.
func (s *Store) NoteRenamed(was, is string) error {
	for _, name := range []string{was, is} {
		if err := attachment.ValidateIfName(name); err != nil {
			return fmt.Errorf("note that %q is %q now: %q %w", was, is, name, err)
		}
	}
	if err := os.MkdirAll(s.renamed(), 0o700); err != nil {
		return fmt.Errorf("note that %s is %s now: %w", was, is, err)
	}
	if err := s.writeNote(filepath.Join(s.renamed(), was), []byte(is)); err != nil {
		return fmt.Errorf("note that %s is %s now: %w", was, is, err)
	}
	return nil
}

// RenamedTo returns what an operator has said that the device was is called now, "" if nobody has.
func (s *Store) RenamedTo(was string) (string, error) {
	if err := attachment.ValidateIfName(was); err != nil {
		return "", fmt.Errorf("device %q %w", was, err)
	}
	is, err := os.ReadFile(filepath.Join(s.renamed(), was))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("what %s is now: %w", was, err)
	}
	return string(is), nil
}

// NoteExchanged notes that checkpoints are about to be rewritten for the exchange of names, such as "eth0=eth1 eth1=eth0".
func (s *Store) NoteExchanged(exchange string) error {
	if err := s.writeNote(s.ExchangedPath(), []byte(exchange)); err != nil {
		return fmt.Errorf("note the exchange of names: %w", err)
	}
	return nil
}

// Exchanged returns the last exchange of names for which checkpoints were rewritten since the boot, "" for none.
func (s *Store) Exchanged() (string, error) {
	b, err := os.ReadFile(s.ExchangedPath())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the last exchange of names: %w", err)
	}
	return string(b), nil
}

// ExchangedPath is the file with the note of NoteExchanged.
func (s *Store) ExchangedPath() string { return filepath.Join(s.restoresDir(), "exchanged") }

// It is beside the notes of restores that are under way, as lastRestore is.
func (s *Store) renamed() string { return filepath.Join(s.restoresDir(), "renamed") }
