package checkpoint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/relink-cni/relink/pkg/attachment"
)

func TestQuietUnlessALockIsHeld(t *testing.T) {
	s := OpenStore(filepath.Join(t.TempDir(), "missing"))
	expect := func(when string, want bool) {
		t.Helper()
		if quiet, err := s.NoSandboxLocked(); err != nil || quiet != want {
			t.Errorf("%s: %v %v", when, quiet, err)
		}
	}
	expect("without a directory", true)
	save(t, s, record("c1", "eth0"))
	unlock, err := s.Lock(t.Context(), "c1")
	if err != nil {
		t.Fatal(err)
	}
	expect("while the sandbox is locked", false)
	unlock()
	expect("after that", true)
	if _, err := os.Stat(filepath.Join(s.Dir(), "c1", lockName)); err != nil {
		t.Errorf("the lock itself is not looked at: %v", err)
	}
}

func TestUsable(t *testing.T) {
	dir := t.TempDir()
	s := OpenStore(filepath.Join(dir, "new"))
	if err := s.CheckWritable(); err != nil {
		t.Error(err)
	}
	// Only the locks are left, which an ADD would make too.
	if files, err := os.ReadDir(s.Dir()); err != nil || len(files) != 2 || files[0].Name() != ".parents.lock" || files[1].Name() != ".saves.lock" {
		t.Errorf("left: %v %v", files, err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := OpenStore(file).CheckWritable(); err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Errorf("a file: %v", err)
	}
	if err := OpenStore("/proc/relink").CheckWritable(); err == nil {
		t.Error("a place where nothing can be made is usable")
	}
}

// All ADDs take these locks. If no ADD can take one, nothing can be saved.
func TestAStoreWhoseLocksCannotBeTakenIsNotUsable(t *testing.T) {
	for name, obstruct := range map[string]func(path string) error{
		"a directory":       func(path string) error { return os.Mkdir(path, 0o700) },
		"a link to nowhere": func(path string) error { return os.Symlink("no/where", path) },
	} {
		for lock, take := range map[string]func(*Store) error{
			".parents.lock": func(s *Store) error { _, err := s.LockParents(t.Context()); return err },
			".saves.lock":   func(s *Store) error { return s.Save(record("c1", "eth0")) },
		} {
			s := OpenStore(t.TempDir())
			path := filepath.Join(s.Dir(), lock)
			if err := obstruct(path); err != nil {
				t.Fatal(err)
			}
			err, takeErr := s.CheckWritable(), take(s)
			if err == nil || !strings.Contains(message(takeErr), message(err)) || !strings.Contains(message(err), path) {
				t.Errorf("%s: usable: %v, taken: %v", name, err, takeErr)
			}
		}
	}
}

// A sandbox's operation and a restore's change of the host's devices do not last. The store is usable meanwhile.
func TestAStoreThatIsLockedIsUsable(t *testing.T) {
	s := newStore(t)
	if p := lockParents(t, s); !p.TryExclusive() {
		t.Fatal("not alone")
	}
	if err := s.CheckWritable(); err != nil {
		t.Error(err)
	}
}

func TestUnnamedIDIsAContainerID(t *testing.T) {
	id := UnnamedID(attachment.Namespace{Inode: 4026532287, Cookie: 71})
	if id != "ns-4026532287-71" || attachment.ValidateName(id) != nil {
		t.Error(id)
	}
}
