package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/failpoint"
)

// detachLimit is how long a DEL of all plugins of a list can take. Runtimes end one after minutes.
const detachLimit = 2 * time.Minute

// BeginDetach notes that another program is about to delete the interface. That program does not
// forget the checkpoint. Without the note, a capture would remember the interface as a new one. The
// caller holds the sandbox's lock. Notes that are out of date are removed.
func (s *Store) BeginDetach(n attachment.Namespace, ifName string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("note detaching: %w", err)
		}
	}()
	note := s.detachNote(n, ifName)
	dir := filepath.Dir(note)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	notes, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range notes {
		if path := filepath.Join(dir, entry.Name()); !isFresh(path) {
			_ = os.Remove(path)
		}
	}
	uptime, _ := boot.Uptime() // CLOCK_BOOTTIME is there since Linux 2.6.39.
	failpoint.Here("before noting DEL")
	if err := errors.Join(os.WriteFile(note, nil, 0o600), os.Chtimes(note, time.Time{}, time.Unix(0, int64(uptime)))); err != nil {
		return err
	}
	failpoint.Here("after noting DEL")
	return nil
}

// EndDetach removes the note: the interface was attached again.
func (s *Store) EndDetach(n attachment.Namespace, ifName string) {
	failpoint.Here("before ending note")
	_ = os.Remove(s.detachNote(n, ifName))
}

// Detaching says whether a note tells that the interface is about to be deleted.
func (s *Store) Detaching(n attachment.Namespace, ifName string) bool {
	return isFresh(s.detachNote(n, ifName))
}

// isFresh says that the note is there and not out of date. Its modification time is the time since the boot, which nobody
// can set: a full disk takes a note without content. A later time than the present is of an earlier boot.
func isFresh(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	uptime, _ := boot.Uptime()
	age := uptime - time.Duration(info.ModTime().UnixNano())
	return age >= 0 && age <= detachLimit
}

func (s *Store) detachNote(n attachment.Namespace, ifName string) string {
	return filepath.Join(s.dir, detachingDir, UnnamedID(n)+"."+ifName)
}
