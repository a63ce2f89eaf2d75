package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
)

// The summary of the last restore is read as it was written, whatever ran before.
func TestTheLastRestoreIsRemembered(t *testing.T) {
	s := OpenStore(t.TempDir())
	if l, err := s.LastRestore(); !errors.Is(err, ErrNoCheckpoint) {
		t.Errorf("before there was one: %+v, %v", l, err)
	}
	first := LastRestore{StartedAt: time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC), Duration: 2440 * time.Millisecond, Counts: map[string]int{"restored": 2}}
	second := LastRestore{
		StartedAt: first.StartedAt.Add(time.Hour), Duration: time.Minute, WaitDuration: 30 * time.Second, Selection: []string{"shop/web-0"}, Interrupted: true,
		Counts: map[string]int{"as recorded": 1, "failed": 1}, Problems: 3,
		Failed: []FailedRestore{{
			Attachment: attachment.Key{Network: "lan", ContainerID: "c1", IfName: "eth0"}, Pod: attachment.Pod{Namespace: "shop", Name: "web-0"},
			Reason: "eth1 is not there",
		}},
	}
	for _, want := range []LastRestore{first, second} {
		if err := s.SaveLastRestore(want); err != nil {
			t.Fatal(err)
		}
		got, err := s.LastRestore()
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (-written +read):\n%s", err, diff)
		}
	}
	if records, unreadable, err := s.List(); len(records)+len(unreadable) > 0 || err != nil {
		t.Errorf("it is taken for a checkpoint: %v, %v, %v", records, unreadable, err)
	}
	files, err := filepath.Glob(filepath.Join(s.Dir(), ".restoring", "*"))
	if err != nil || len(files) != 1 {
		t.Errorf("files %v, %v", files, err)
	}
}

func TestALastRestoreThatCannotBeReadOrWritten(t *testing.T) {
	s := OpenStore(t.TempDir())
	path := filepath.Join(s.Dir(), ".restoring", "last.json")
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(`{"counts":`), 0o600)); err != nil {
		t.Fatal(err)
	}
	if l, err := s.LastRestore(); !errors.Is(err, ErrTorn) || !strings.Contains(err.Error(), path) {
		t.Errorf("torn: %+v, %v", l, err)
	}
	if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
		t.Fatal(err)
	}
	if l, err := s.LastRestore(); err == nil || errors.Is(err, ErrNoCheckpoint) {
		t.Errorf("a directory: %+v, %v", l, err)
	}
	if err := s.SaveLastRestore(LastRestore{}); err == nil || !strings.HasPrefix(err.Error(), "note what the restore did: ") {
		t.Errorf("written over a directory: %v", err)
	}
	if files, err := filepath.Glob(filepath.Join(s.Dir(), ".restoring", ".*")); err != nil || len(files) > 0 {
		t.Errorf("left: %v, %v", files, err)
	}
}

// A restore that cannot change the host's devices, because somebody else does, still says what it did. It says so at once, after an
// interrupt too.
func TestNotesOfRestoresDoNotWaitForTheHost(t *testing.T) {
	s := OpenStore(t.TempDir())
	unlock, err := s.LockNode(t.Context(), HostLock)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	start := time.Now()
	if err := s.SaveLastRestore(LastRestore{}); err != nil || time.Since(start) > 5*time.Second {
		t.Errorf("after %v: %v", time.Since(start), err)
	}
}
