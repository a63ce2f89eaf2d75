package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/flock"
)

// RestoreNote is the note of a restore that is under way: it names the attachments that the restore may change.
type RestoreNote struct {
	store       *Store
	file        *os.File
	attachments []attachment.Key
}

// BeginRestore notes that a restore of the attachments is under way, and locks the note. After a kill the note is there
// without a lock: what that restore changed may not have been announced (Unannounced).
func (s *Store) BeginRestore(attachments []attachment.Key) (*RestoreNote, error) {
	f, err := s.createNote(func(f *os.File) error {
		if err := json.NewEncoder(f).Encode(attachments); err != nil {
			return err
		}
		return os.Rename(f.Name(), notePath(f))
	})
	if err != nil {
		return nil, fmt.Errorf("note restore: %w", err)
	}
	failpoint.Here("restore noted")
	return &RestoreNote{store: s, file: f, attachments: attachments}, nil
}

// createNote makes a file and locks it before others can see it. finish gives it its content and its name.
func (s *Store) createNote(finish func(*os.File) error) (f *os.File, err error) {
	const attempts = 4 // Another restore may remove it before it is locked.
	for range attempts {
		if err = os.MkdirAll(s.restoresDir(), 0o700); err == nil {
			f, err = os.CreateTemp(s.restoresDir(), ".run-*")
		}
		if err != nil {
			return nil, err
		}
		err = flock.Try(f, flock.Exclusive)
		if err == nil {
			err = finish(f)
		}
		if err == nil {
			return f, nil
		}
		_, _ = f.Close(), os.Remove(f.Name())
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return nil, err
}

// writeNote replaces a file beside the notes of restores, whose ends remove what a kill leaves of it.
func (s *Store) writeNote(path string, content []byte) error {
	f, err := s.createNote(func(f *os.File) error {
		if _, err := f.Write(content); err != nil {
			return err
		}
		failpoint.Here("before renaming note")
		return os.Rename(f.Name(), path)
	})
	if err != nil {
		return err
	}
	return f.Close()
}

// End ends the note. r may be nil. An attachment is announced if its neighbours know its addresses, or if its checkpoint
// says that they do not. End takes such attachments out of the notes, those of killed restores included, and also
// attachments without a checkpoint. A note stays until it names no attachment.
func (r *RestoreNote) End(announced func(attachment.Key) bool) {
	if r == nil {
		return
	}
	failpoint.Here("before ending restore")
	leftovers, _, _ := tryLocks(filepath.Join(r.store.restoresDir(), ".run-*"))
	for _, path := range leftovers {
		_ = os.Remove(path) // A kill left it.
	}
	r.store.removeAnnounced(notePath(r.file), r.attachments, announced)
	_ = r.file.Close()
	r.store.EndAnnounced(announced)
}

// EndAnnounced is End for the notes of restores that ended without settling all of their attachments.
func (s *Store) EndAnnounced(announced func(attachment.Key) bool) {
	for _, path := range s.unlockedNotes() {
		f, err := os.Open(path)
		if err != nil {
			continue // Another restore has ended it.
		}
		// While it is locked, no other restore writes it anew under its name.
		if flock.Try(f, flock.Exclusive) == nil && isFileAt(f, path) {
			if attachments, err := readKeys(f); err == nil {
				s.removeAnnounced(path, attachments, announced)
			}
		}
		_ = f.Close()
	}
}

// removeAnnounced writes the note without the attachments that are announced or have no checkpoint. If it cannot, the note stays
// as it is: to announce twice does no harm.
func (s *Store) removeAnnounced(path string, attachments []attachment.Key, announced func(attachment.Key) bool) {
	pending := slices.DeleteFunc(slices.Clone(attachments), func(key attachment.Key) bool {
		if announced(key) {
			return true
		}
		_, err := s.Load(key.ContainerID, key.IfName)
		return errors.Is(err, ErrNoCheckpoint)
	})
	switch len(pending) {
	case 0:
		_ = os.Remove(path)
	case len(attachments):
	default:
		if content, err := json.Marshal(pending); err == nil {
			_ = s.writeNote(path, content)
		}
	}
}

// Unannounced returns the attachments of restores that were killed, or that could not write what they owe: their
// neighbours may not know their addresses. An error says that a note cannot be read.
func (s *Store) Unannounced() (map[attachment.Key]bool, error) {
	unannounced := map[attachment.Key]bool{}
	var failed error
	for _, path := range s.unlockedNotes() {
		f, err := os.Open(path)
		if err != nil {
			continue // Another restore has ended it.
		}
		attachments, err := readKeys(f)
		_ = f.Close()
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("the note %s of a restore that did not finish: %w: remove it, and run relink restore", path, err))
		}
		for _, key := range attachments {
			unannounced[key] = true
		}
	}
	return unannounced, failed
}

// HasRestoreNote says that a restore is under way, or that one has not settled all of its attachments.
func (s *Store) HasRestoreNote() bool {
	paths, _ := filepath.Glob(s.notePattern())
	return len(paths) > 0
}

func readKeys(f *os.File) (attachments []attachment.Key, err error) {
	err = json.NewDecoder(f).Decode(&attachments)
	return attachments, err
}

// notePath is the name under which others see the note.
func notePath(f *os.File) string {
	dir, name := filepath.Split(f.Name())
	return filepath.Join(dir, strings.TrimPrefix(name, "."))
}

// unlockedNotes returns the notes that nobody holds. A note that cannot be looked at is none of them.
func (s *Store) unlockedNotes() []string {
	free, _, _ := tryLocks(s.notePattern())
	return free
}

// notePattern is the pattern of the notes' paths.
func (s *Store) notePattern() string { return filepath.Join(s.restoresDir(), "run-*") }

func (s *Store) restoresDir() string { return filepath.Join(s.dir, restoringDir) }
