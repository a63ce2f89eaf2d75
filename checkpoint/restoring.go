package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/flock"
)

// Restoring is the note of a restore that is under way.
type Restoring struct {
	file    *os.File
	earlier []string
}

// BeginRestore notes that a restore is under way and locks the note. After a kill the note is there
// without a lock: what that restore built may not have been announced.
func (s *Store) BeginRestore() (*Restoring, error) {
	earlier := s.unfinished()
	f, err := s.note(func(f *os.File) error { return os.Rename(f.Name(), noteName(f)) })
	if err != nil {
		return nil, fmt.Errorf("note restore: %w", err)
	}
	failpoint.Here("restore noted")
	return &Restoring{file: f, earlier: earlier}, nil
}

// note makes a file and locks it before others can see it. finish gives it its content and its name.
func (s *Store) note(finish func(*os.File) error) (*os.File, error) {
	f, err := s.tryNote(finish)
	for range 3 { // Another restore may remove it before it is locked.
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
		f, err = s.tryNote(finish)
	}
	return f, err
}

func (s *Store) tryNote(finish func(*os.File) error) (*os.File, error) {
	if err := os.MkdirAll(s.restoring(), 0o700); err != nil {
		return nil, err
	}
	f, err := os.CreateTemp(s.restoring(), ".run-*")
	if err != nil {
		return nil, err
	}
	if err = tryFlock(f); err == nil {
		if err = finish(f); err == nil {
			return f, nil
		}
		_ = f.Close()
	}
	_ = os.Remove(f.Name())
	return nil, err
}

// Earlier says that an earlier restore did not finish.
func (r *Restoring) Earlier() bool { return len(r.earlier) > 0 }

// End ends the note. r may be nil. A restore is settled if it has announced everything, or has noted
// in the checkpoints what it owes. Then its note goes. If it was a restore of all sandboxes, the
// notes of earlier ones go too. Otherwise a note stays for the next restore.
func (r *Restoring) End(settled, all bool) {
	if r == nil {
		return
	}
	failpoint.Here("before ending restore")
	if settled && all {
		for _, path := range slices.Concat(r.earlier, unheld(filepath.Join(filepath.Dir(r.file.Name()), ".run-*"))) {
			_ = os.Remove(path)
		}
	}
	if settled || r.Earlier() {
		_ = os.Remove(noteName(r.file))
	}
	_ = r.file.Close()
}

// noteName is the name under which others see the note.
func noteName(f *os.File) string {
	dir, name := filepath.Split(f.Name())
	return filepath.Join(dir, strings.TrimPrefix(name, "."))
}

// RestoreUnfinished says whether a restore did not finish, and no later restore of all sandboxes has
// done the rest.
func (s *Store) RestoreUnfinished() bool { return len(s.unfinished()) > 0 }

// unfinished returns the notes that nobody holds.
func (s *Store) unfinished() []string { return unheld(filepath.Join(s.restoring(), "run-*")) }

// unheld returns the files of the pattern that nobody has locked.
func unheld(pattern string) []string {
	paths, _ := filepath.Glob(pattern) // Only a bad pattern is an error.
	var left []string
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			continue // Its restore has finished.
		}
		if flock.Try(f, flock.Shared) == nil {
			left = append(left, path)
		}
		_ = f.Close()
	}
	return left
}

// The dot marks it as no sandbox's directory.
func (s *Store) restoring() string { return filepath.Join(s.dir, ".restoring") }
