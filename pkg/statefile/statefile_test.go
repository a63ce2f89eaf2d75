package statefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestSaveLoadRemove(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b.json")
	var got map[string]int
	if err := Load(path, &got); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("load nothing: %v", err)
	}
	for _, value := range []int{1, 2} {
		if err := Save(path, map[string]int{"x": value}); err != nil {
			t.Fatal(err)
		}
		if err := Load(path, &got); err != nil || got["x"] != value {
			t.Errorf("load: %v, %v", got, err)
		}
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("%v, %v beside the file", entries, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	for range 2 {
		if err := Remove(path); err != nil {
			t.Error(err)
		}
	}
}

func TestAFailedSaveChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.json")
	if err := Save(path, 1); err != nil {
		t.Fatal(err)
	}
	if err := Save(path, func() {}); err == nil {
		t.Error("a function was saved")
	}
	var got int
	if err := Load(path, &got); err != nil || got != 1 {
		t.Errorf("%d, %v", got, err)
	}
}

// A pipe in the place of the file is an error like a torn file. It does not hang.
func TestLoadWhatIsNoState(t *testing.T) {
	dir := t.TempDir()
	torn, pipe := filepath.Join(dir, "torn"), filepath.Join(dir, "pipe")
	if err := errors.Join(os.WriteFile(torn, []byte(`{"x":`), 0o600), syscall.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{torn, pipe, dir} {
		if err := Load(path, new(any)); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
