package checkpoint

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// mountTmpfs mounts a file system for the store alone. It needs root.
func mountTmpfs(t *testing.T, options string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Fatalf("mount tmpfs (this test needs root): %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// fill writes until the file system has no room left.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{4096, 1} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
	}
}

// TestSaveThatFailsKeepsTheLastRecord also shows that the next save works once the obstacle is gone.
func TestSaveThatFailsKeepsTheLastRecord(t *testing.T) {
	for name, test := range map[string]struct {
		options     string
		block, mend func(t *testing.T, dir string)
		want        error
	}{
		"no space": {
			options: "size=64k",
			block:   func(t *testing.T, dir string) { fill(t, filepath.Join(dir, "filler")) },
			mend: func(t *testing.T, dir string) {
				if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
					t.Fatal(err)
				}
			},
			want: unix.ENOSPC,
		},
		"no inodes": {
			options: "nr_inodes=6", // The root, two directories, the record, the lock of each Save, and a free one.
			block: func(t *testing.T, dir string) {
				if err := os.WriteFile(filepath.Join(dir, "filler"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			},
			mend: func(t *testing.T, dir string) {
				if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
					t.Fatal(err)
				}
			},
			want: unix.ENOSPC,
		},
		"read-only": {
			block: func(t *testing.T, dir string) { remount(t, dir, unix.MS_RDONLY) },
			mend:  func(t *testing.T, dir string) { remount(t, dir, 0) },
			want:  unix.EROFS,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := mountTmpfs(t, test.options)
			s := OpenStore(filepath.Join(dir, "checkpoints"))
			last, next := record("c1", "eth0"), record("c1", "eth0")
			next.Interface.Link.MTU = 9000
			save(t, s, last)

			test.block(t, dir)
			err := s.Save(next)
			if !errors.Is(err, test.want) || !strings.HasPrefix(message(err), "save checkpoint "+s.Dir()+"/c1/eth0.json: ") {
				t.Errorf("Save() = %v, want %v with the file's name", err, test.want)
			}
			expectRecord(t, s, last)
			expectFiles(t, s, "c1/", "c1/eth0.json")

			test.mend(t, dir)
			save(t, s, next)
			expectRecord(t, s, next)
		})
	}
}

func remount(t *testing.T, dir string, flags uintptr) {
	t.Helper()
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|flags, ""); err != nil {
		t.Fatal(err)
	}
}

func expectRecord(t *testing.T, s *Store, want Record) {
	t.Helper()
	r, err := s.Load(want.Attachment.ContainerID, want.Attachment.IfName)
	if diff := cmp.Diff(want, r, sameRecord); err != nil || diff != "" {
		t.Errorf("Load() (-want +got): %v\n%s", err, diff)
	}
}
