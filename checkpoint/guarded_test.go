package checkpoint_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/flock"
)

// The note counts as long as its writer holds it. The file alone counts for nothing.
func TestANoteOfAGuardCountsWhileItIsHeld(t *testing.T) {
	s := checkpoint.OpenStore(filepath.Join(t.TempDir(), "checkpoints"))
	if s.Guarded() {
		t.Error("without a note")
	}
	for range 2 {
		end, err := s.BeginGuard()
		if err != nil {
			t.Fatal(err)
		}
		if !s.Guarded() {
			t.Error("not under a note that is held")
		}
		if _, err := s.BeginGuard(); !errors.Is(err, flock.ErrBusy) {
			t.Errorf("a second note: %v", err)
		}
		end()
		if _, err := os.Stat(filepath.Join(s.Dir(), ".guard")); err != nil || s.Guarded() {
			t.Errorf("a note that is left counts: %v", err)
		}
	}
	if records, unreadable, err := s.List(); err != nil || len(records)+len(unreadable) > 0 {
		t.Errorf("the note is taken for a sandbox's: %v %v %v", records, unreadable, err)
	}
}
