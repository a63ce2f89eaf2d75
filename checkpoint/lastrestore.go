package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/statefile"
)

// MaxFailed is how many failed attachments a LastRestore has at most.
const MaxFailed = 20

// LastRestore says when a restore ran and what it did. A dry run leaves none.
type LastRestore struct {
	// StartedAt is when it began, in UTC.
	StartedAt time.Time `json:"startedAt"`
	// Duration is the whole of its time. WaitDuration is how much of it went into waiting for devices and
	// carrier.
	Duration     time.Duration `json:"tookNanoseconds"`
	WaitDuration time.Duration `json:"waitedNanoseconds"`
	// Selection has the words that limited it to some sandboxes. None stands for all.
	Selection []string `json:"selection,omitempty"`
	// Interrupted says that somebody ended it early.
	Interrupted bool `json:"interrupted,omitempty"`
	// Counts has the number of attachments by their state in the report.
	Counts map[string]int `json:"counts"`
	// Failed are the attachments that failed, no more than MaxFailed.
	Failed []FailedRestore `json:"failed,omitempty"`
	// Problems is the number of other things that were not as recorded.
	Problems int `json:"problems,omitempty"`
}

// FailedRestore is an attachment that a restore could not bring back.
type FailedRestore struct {
	Attachment attachment.Key `json:"attachment"`
	Pod        attachment.Pod `json:"pod,omitzero"`
	Reason     string         `json:"reason"`
}

// SaveLastRestore writes it in place of that of the restore before. It does not wait for those who change the host's devices.
func (s *Store) SaveLastRestore(l LastRestore) error {
	unlock, err := s.LockNode(context.Background(), restoringLock)
	if err == nil {
		defer unlock()
		removeLeftovers(s.lastRestorePath())
		removeLeftovers(s.IndicesPath())
		err = statefile.Save(s.lastRestorePath(), l)
	}
	if err != nil {
		return fmt.Errorf("note what the restore did: %w", err)
	}
	failpoint.Here("last restore noted")
	return nil
}

// removeLeftovers removes what kills have left of writing the file. The caller keeps others off.
func removeLeftovers(path string) {
	leftovers, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"*")) // Only a bad pattern is an error.
	for _, temporary := range leftovers {
		_ = os.Remove(temporary)
	}
}

// loadNote reads a note. It returns ErrNoCheckpoint if there is none, or ErrTorn for a file that this relink cannot read.
func loadNote(path string, note any) error {
	err := statefile.Load(path, note)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s: %w", path, ErrNoCheckpoint)
	case err == nil, errors.As(err, new(*fs.PathError)):
		return err
	}
	return fmt.Errorf("%s: %w: %w", path, ErrTorn, errors.Unwrap(err))
}

// LastRestore returns what the last restore of this boot did. ErrNoCheckpoint: there was none. ErrTorn: the
// file is none that this relink can read.
func (s *Store) LastRestore() (LastRestore, error) {
	var l LastRestore
	err := loadNote(s.lastRestorePath(), &l)
	if err != nil && !errors.Is(err, ErrTorn) {
		err = fmt.Errorf("the last restore: %w", err)
	}
	return l, err
}

func (s *Store) lastRestorePath() string { return filepath.Join(s.dir, restoringDir, "last"+suffix) }
