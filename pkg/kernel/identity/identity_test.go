package identity

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/test/fresh"
)

func TestMain(m *testing.M) { fresh.Main(m) }

// All paths to a namespace give the same identity. Another namespace has another one.
func TestRead(t *testing.T) {
	path, other := fresh.Sandbox(t), fresh.Sandbox(t)
	bootID, err := boot.ID()
	if err != nil {
		t.Fatal(err)
	}
	one, err := Read(path)
	if err != nil || one.Path != path || one.BootID != bootID || one.Inode == 0 || one.Device == 0 || one.Cookie == 0 {
		t.Errorf("%+v, %v", one, err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	again, err := Read(link)
	if again.Path != link || errors.Join(one.Same(again), err) != nil || again.Cookie != one.Cookie {
		t.Errorf("by another path: %+v, %v", again, err)
	}
	two, err := Read(other)
	if err != nil || one.Same(two) == nil || two.Cookie == one.Cookie {
		t.Errorf("another one: %+v, %v", two, err)
	}
	host, err := Read("/proc/self/ns/net")
	if err != nil || host.Cookie == 0 || host.Same(one) == nil {
		t.Errorf("the host's: %+v, %v", host, err)
	}
}

func TestReadOfWhatIsNoNamespace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, why := range map[string]string{
		"/nowhere": "it does not exist", file + "/below": "it does not exist", file: "it is a plain file",
		"/proc/self/ns/mnt": "it is a namespace of another type",
	} {
		_, err := Read(path)
		if want := path + ": no network namespace: " + why; !errors.Is(err, ErrNoNamespace) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	long := fmt.Sprintf("/%0300d", 0)
	if _, err := Read(long); err == nil || errors.Is(err, ErrNoNamespace) {
		t.Errorf("a path that cannot be opened: %v", err)
	}
}

// A process that ends during the look has no namespace, whatever error the kernel returns.
func TestOpenWhileAProcessEnds(t *testing.T) {
	const processes, readers = 500, 4
	for range processes {
		cmd := exec.Command("true")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		path := fmt.Sprintf("/proc/%d/ns/net", cmd.Process.Pid)
		var all sync.WaitGroup
		for range readers {
			all.Go(func() {
				for {
					fd, _, err := Open(path)
					if errors.Is(err, ErrNoNamespace) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					_ = unix.Close(fd)
				}
			})
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
		all.Wait()
	}
}

// Reading an identity moves no thread to another namespace.
func TestReadLeavesEverybodyWhereTheyAre(t *testing.T) {
	here := func() string {
		link, err := os.Readlink("/proc/thread-self/ns/net")
		if err != nil {
			t.Error(err)
		}
		return link
	}
	own := here()
	sandboxes := []string{fresh.Sandbox(t), fresh.Sandbox(t)}
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if _, err := Read(sandboxes[i%2]); err != nil {
				t.Error(err)
			}
			if now := here(); now != own {
				t.Errorf("in %s, was in %s", now, own)
			}
		})
	}
	all.Wait()
}

// The process cannot open its own namespace while it has no free descriptor. Afterwards it can.
func TestAFailureToOpenTheOwnNamespaceIsNotRemembered(t *testing.T) {
	fd, _, err := Open(fresh.Sandbox(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	usual := processFD.Swap(0)
	t.Cleanup(func() { processFD.Store(usual) })
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	failed := Inside(fd, "pod", func() error { return nil })
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(failed, unix.EMFILE) {
		t.Errorf("without descriptors: %v", failed)
	}
	if err := Inside(fd, "pod", func() error { return nil }); err != nil {
		t.Errorf("and then: %v", err)
	}
}
