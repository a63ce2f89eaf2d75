package checkpoint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestARenamedDeviceIsNoted(t *testing.T) {
	s := OpenStore(t.TempDir())
	expect := func(was, want string) {
		t.Helper()
		if is, err := s.RenamedTo(was); err != nil || is != want {
			t.Errorf("%s is %q, %v, want %q", was, is, err, want)
		}
	}
	expect("eth0", "")
	for _, pair := range [][2]string{{"eth0", "ens5f0"}, {"eth0", "ens6f0"}, {"bond4", "eth1"}} {
		if err := s.NoteRenamed(pair[0], pair[1]); err != nil {
			t.Fatal(err)
		}
	}
	expect("eth0", "ens6f0")
	expect("bond4", "eth1")
	expect("ens6f0", "")
}

// A path is not the name of a device.
func TestARenamedDeviceHasANameOfADevice(t *testing.T) {
	s := OpenStore(t.TempDir())
	for _, name := range []string{"", ".", "../eth0", "with space", strings.Repeat("a", 16)} {
		if err := s.NoteRenamed(name, "eth0"); err == nil {
			t.Errorf("%q was noted", name)
		}
		if err := s.NoteRenamed("eth0", name); err == nil {
			t.Errorf("%q was noted as what eth0 is", name)
		}
		if is, err := s.RenamedTo(name); err == nil {
			t.Errorf("%q is %q", name, is)
		}
	}
	if err := os.MkdirAll(filepath.Join(s.Dir(), ".restoring", "renamed", "eth0"), 0o700); err != nil {
		t.Fatal(err)
	}
	if is, err := s.RenamedTo("eth0"); err == nil {
		t.Errorf("a directory says %q", is)
	}
	if err := s.NoteRenamed("eth0", "eth1"); err == nil {
		t.Error("it was written over a directory")
	}
}
