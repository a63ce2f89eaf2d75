package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/test/fresh"
)

// inodeOf returns the inode of the namespace at the path.
func inodeOf(t *testing.T, path string) uint64 {
	t.Helper()
	file, ok := Identify(path)
	if !ok {
		t.Fatalf("no namespace at %s", path)
	}
	return file.Inode
}

// A namespace that no listed path leads to still exists.
func TestKeptFindsWhatNothingLeadsTo(t *testing.T) {
	for what, keep := range map[string]func(t *testing.T, path string) (by string){
		"an open file": func(t *testing.T, path string) string {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
			fresh.Remove(t, path)
			return fmt.Sprintf("an open file of process %d", os.Getpid())
		},
		"a thread": func(t *testing.T, path string) string {
			end := make(chan struct{})
			t.Cleanup(func() { close(end) })
			entered := make(chan error)
			go func() {
				runtime.LockOSThread() // The thread ends with its goroutine.
				f, err := os.Open(path)
				if err == nil {
					err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
					_ = f.Close()
				}
				entered <- err
				<-end
			}()
			if err := <-entered; err != nil {
				t.Fatal(err)
			}
			fresh.Remove(t, path)
			return fmt.Sprintf("a thread of process %d", os.Getpid())
		},
		"a mount that is covered": func(t *testing.T, path string) string {
			over := filepath.Dir(path)
			fresh.Run(t, "", "mount -t tmpfs none "+over)
			t.Cleanup(func() { fresh.Run(t, "", "umount "+over) })
			return "a mount at " + path
		},
		"a mount of another mount namespace": func(t *testing.T, path string) string {
			fresh.Start(t, "unshare", "-m", "--propagation", "private", "sh", "-c", "echo; exec sleep 60")
			// The other mount namespace has this mount too. Removing the file would remove the mount in both. So only
			// unmount it here.
			if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
				t.Fatal(err)
			}
			return "a mount at " + path
		},
	} {
		t.Run(what, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ns")
			fresh.At(t, path)
			inode := inodeOf(t, path)
			by := keep(t, path)
			for _, s := range list(t) {
				if s.Inode == inode {
					t.Fatalf("it is listed: %+v", s)
				}
			}
			kept, err := findKeepers()
			if err != nil || !strings.HasPrefix(kept[inode].Description, by) {
				t.Errorf("kept by %q, want %q: %v", kept[inode].Description, by, err)
			}
			if file, ok := Identify(kept[inode].Path); what != "a mount that is covered" && (!ok || file.Inode != inode) {
				t.Errorf("%s does not lead to it", kept[inode].Path)
			}
		})
	}
}

// An open directory is no namespace, although it has an inode number too.
func TestKeptTakesNoDirectoryForANamespace(t *testing.T) {
	root, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	file, _ := Identify("/")
	kept, err := findKeepers()
	if by, ok := kept[file.Inode]; err != nil || ok {
		t.Errorf("kept by %+v, %v", by, err)
	}
}

func TestKeptForgetsWhatIsGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ns")
	fresh.At(t, path)
	inode := inodeOf(t, path)
	fresh.Remove(t, path)
	kept, err := findKeepers()
	if by, ok := kept[inode]; err != nil || ok {
		t.Errorf("kept by %+v, %v", by, err)
	}
}

// The path that lasts longest counts. Of those that last equally long, the newest counts. No number of threads pushes it out.
func TestPathOfAKeeper(t *testing.T) {
	var k NamespaceKeeper
	for _, step := range []struct {
		path string
		by   durability
		want string
	}{
		{"/thread0", byThread, "/thread0"}, {"/thread1", byThread, "/thread1"}, {"/file0", byFile, "/file0"}, {"/mount", byMount, "/mount"},
		{"/file1", byFile, "/mount"}, {"/late", byThread, "/mount"},
	} {
		if k = k.with("it", step.path, step.by); k.Path != step.want {
			t.Errorf("after %s it is %s, want %s", step.path, k.Path, step.want)
		}
	}
	socket := NamespaceKeeper{Description: "a socket", Device: 4, Cookie: 7}
	if got := socket.with("a thread", "/thread", byThread); got.Description != "a thread" || got.Path != "/thread" || got.Cookie != 0 {
		t.Errorf("a thread besides: %+v", got)
	}
}

// findKeepers is one look of a search that asks no sockets.
func findKeepers() (map[uint64]NamespaceKeeper, error) {
	pids, err := processes()
	k := newKeepers()
	for _, pid := range pids {
		k.addProcess(pid)
	}
	return k.found, err
}
