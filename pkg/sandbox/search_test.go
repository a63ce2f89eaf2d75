package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/attachment"
	kernelid "github.com/relink-cni/relink/pkg/kernel/identity"
	"github.com/relink-cni/relink/test/fresh"
)

// kept makes a namespace. Only the file that open returns keeps it.
func kept(t *testing.T, open func() (int, error)) (was attachment.Namespace, end func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ns")
	fresh.At(t, path)
	was, err := kernelid.Read(path)
	if err != nil || was.Cookie == 0 {
		t.Fatal(was, err)
	}
	fd, opened := -1, make(chan error)
	go func() {
		runtime.LockOSThread() // The thread ends with its goroutine.
		f, err := os.Open(path)
		if err == nil {
			err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
			_ = f.Close()
		}
		if err == nil {
			fd, err = open()
		}
		opened <- err
	}()
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	end = func() {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
		fd = -1
	}
	t.Cleanup(end)
	fresh.Remove(t, path)
	waitFor(t, func() bool { // The thread takes a while to end.
		all, err := findKeepers()
		_, there := all[was.Inode]
		return err == nil && !there
	})
	return was, end
}

func isGone(ctx context.Context, was attachment.Namespace, all bool) bool {
	return ProvenGone(ctx, all, was)[was]
}

func find(t *testing.T, wanted ...uint64) map[uint64]NamespaceKeeper {
	t.Helper()
	found, blind, err := Search(t.Context(), wanted...)
	if err != nil || blind != "" {
		t.Fatal(blind, err)
	}
	return found
}

// A socket keeps a namespace, and so does the open file of a device. The kernel tells which namespace that is.
func TestSearchFindsWhatASocketKeeps(t *testing.T) {
	for what, open := range map[string]func() (int, error){
		"UDP":  func() (int, error) { return unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0) },
		"unix": func() (int, error) { return unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0) },
		"tun":  func() (int, error) { return unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0) },
		"tun that has a device": func() (int, error) {
			fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
			if err != nil {
				return -1, err
			}
			request, err := unix.NewIfreq("tun7")
			if err != nil {
				return -1, err
			}
			request.SetUint16(unix.IFF_TUN)
			return fd, unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
		},
	} {
		t.Run(what, func(t *testing.T) {
			was, end := kept(t, open)
			for _, wanted := range [][]uint64{{was.Inode}, nil} {
				want := NamespaceKeeper{Description: fmt.Sprintf("a socket of process %d", os.Getpid()), Device: was.Device, Cookie: was.Cookie}
				if got := find(t, wanted...)[was.Inode]; got != want {
					t.Errorf("of %v: kept by %+v, want %+v", wanted, got, want)
				}
			}
			if isGone(t.Context(), was, true) {
				t.Error("it is called gone")
			}
			another := was
			another.Cookie++
			if !isGone(t.Context(), another, true) {
				t.Error("one whose inode was given again is not called gone")
			}
			end()
			if by, there := find(t, was.Inode)[was.Inode]; there {
				t.Errorf("in the end: kept by %+v", by)
			}
			if !isGone(t.Context(), was, true) {
				t.Error("in the end it is not called gone")
			}
		})
	}
}

// Each process of a chain ends as soon as it has started the next one.
func TestSearchFindsWhatShortLivedProcessesHandOn(t *testing.T) {
	dir := t.TempDir()
	path, chain, stop := filepath.Join(dir, "ns"), filepath.Join(dir, "chain"), filepath.Join(dir, "stop")
	if err := os.WriteFile(chain, []byte("[ -e "+stop+" ] || sh $0 >/dev/null &\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	fresh.At(t, path)
	was, err := kernelid.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	// The processes get a PID namespace of their own, which ends all of them when it ends.
	fresh.Start(t, "unshare", "--pid", "--fork", "--kill-child", "sh", "-c", "nsenter --net="+path+" sh "+chain+"; echo; while :; do sleep 0.02 & wait; done")
	fresh.Remove(t, path)
	for i := range 8 {
		if _, there := find(t, was.Inode)[was.Inode]; !there {
			t.Errorf("search %d has not found it", i)
		}
		if isGone(t.Context(), was, true) {
			t.Errorf("it is called gone, time %d", i)
		}
	}
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	waitFor(t, func() bool { return isGone(t.Context(), was, true) })
}

// On a node where new processes start all the time, a namespace is gone if several looks have not found it.
func TestSearchEndsWhileProcessesCome(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ns")
	fresh.At(t, path)
	was, err := kernelid.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	fresh.Remove(t, path)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	busy := exec.CommandContext(ctx, "sh", "-c", "while :; do /bin/true; done")
	if err := busy.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); _ = busy.Wait() }()
	// Another namespace may have its inode for a moment, in a process that ends during the look.
	waitFor(t, func() bool { return isGone(ctx, was, true) })
}

// A namespace is not called gone if nobody can know it.
func TestGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ns")
	fresh.At(t, path)
	was, err := kernelid.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(what string, change func(*attachment.Namespace), all, want bool) {
		t.Helper()
		id := was
		change(&id)
		if want {
			waitFor(t, func() bool { return isGone(t.Context(), id, all) }) // Another namespace may have its inode for a moment.
		} else if isGone(t.Context(), id, all) {
			t.Errorf("%s: it is called gone", what)
		}
	}
	same := func(*attachment.Namespace) {}
	expect("it is at its path", same, true, false)
	expect("it is elsewhere", func(id *attachment.Namespace) { id.Path = "/nowhere" }, true, false)
	expect("its path is another's", func(id *attachment.Namespace) { id.Path = "/proc/self/ns/net" }, true, false)
	expect("its inode was given again", func(id *attachment.Namespace) { id.Cookie++ }, true, true)
	expect("its inode was given again, elsewhere", func(id *attachment.Namespace) { id.Path = "/nowhere"; id.Cookie++ }, true, true)
	expect("its inode was given again, perhaps", func(id *attachment.Namespace) { id.Path = "/nowhere"; id.Cookie = 0 }, true, false)
	expect("of an earlier boot", func(id *attachment.Namespace) { id.BootID = "the boot before" }, true, true)
	expect("of no known boot", func(id *attachment.Namespace) { id.BootID = "" }, true, false)
	expect("of no known inode", func(id *attachment.Namespace) { id.Path, id.Inode = "/nowhere", 0 }, true, false)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	fresh.Remove(t, path)
	expect("an open file keeps it", same, true, false)
	fresh.At(t, path)
	expect("an open file keeps it, and another is at its path", same, true, false)
	_ = f.Close()
	expect("another is at its path", same, true, true)
	fresh.Remove(t, path)
	expect("nothing keeps it", same, true, true)
	expect("not all processes are seen", same, false, false)
	expect("it can't be opened", func(id *attachment.Namespace) { id.Path = "/" + strings.Repeat("a", 300) }, true, false)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if isGone(ctx, was, true) {
		t.Error("interrupted: it is called gone")
	}
	if _, _, err := Search(ctx, was.Inode); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	fresh.AsNobody(t, func() {
		if isGone(t.Context(), was, true) {
			t.Error("nobody calls it gone")
		}
	})
}

// A program that may not ask about the sockets of others does not know what they keep.
func TestSearchWithoutCapNetAdmin(t *testing.T) {
	was, _ := kept(t, func() (int, error) { return unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0) })
	var blind string
	var err error
	withoutCapability(t, unix.CAP_NET_ADMIN, func() { _, blind, err = Search(t.Context(), was.Inode) })
	const want = "the sockets of processes cannot be asked for their network namespaces: file "
	if err != nil || !strings.HasPrefix(blind, want) || !strings.HasSuffix(blind, ": SIOCGSKNS: operation not permitted") {
		t.Errorf("%q, %v; want %s", blind, err, want)
	}
}

// withoutCapability calls f on a thread that lacks the capability. f starts no goroutines.
func withoutCapability(t *testing.T, capability int, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // The thread ends with its goroutine.
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		err := unix.Capget(&header, &data[0])
		if err == nil {
			data[capability/32].Effective &^= 1 << (capability % 32)
			err = unix.Capset(&header, &data[0])
		}
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// A thread can have its own open files, which its process does not show.
func TestSearchFindsWhatAThreadsOwnFilesKeep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ns")
	fresh.At(t, path)
	was, err := kernelid.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	opened, end := make(chan error), make(chan struct{})
	go func() {
		runtime.LockOSThread() // The thread ends with its goroutine.
		err := unix.Unshare(unix.CLONE_FILES)
		if err == nil {
			_, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		opened <- err
		<-end
	}()
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	fresh.Remove(t, path)
	if isGone(t.Context(), was, true) {
		t.Error("it is called gone")
	}
	close(end)
	waitFor(t, func() bool { return isGone(t.Context(), was, true) })
}

// A process with another root directory shows only the mounts below that directory.
func TestSearchFindsAMountThatAChangedRootHides(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "ns")
	fresh.At(t, path)
	was, err := kernelid.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	// Of the two processes, the one that is seen first has another root.
	cmd := exec.Command("perl", "-e", `if (!fork) { sleep 60; exit } chroot "/proc" and chdir "/"; $| = 1; print "ready\n"; sleep 60`)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Setpgid: true, Pdeathsig: unix.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL); _ = cmd.Wait() })
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	// Keep the file: without it, the kernel would remove the mounts on it everywhere.
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	if isGone(t.Context(), was, true) {
		t.Error("it is called gone")
	}
}

// The evidence says why a namespace counts as alive, gone or unknown.
func TestProveSaysWhy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ns")
	fresh.At(t, path)
	was, err := kernelid.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	expect := func(id attachment.Namespace, all bool, want Evidence) {
		t.Helper()
		if got := Prove(t.Context(), all, id)[id]; got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	earlier, none, another := was, was, was
	earlier.BootID, none.BootID, another.Cookie = "another", "", was.Cookie+1
	expect(was, true, Evidence{Verdict: VerdictAlive, Reason: "it is at " + path})
	expect(earlier, true, Evidence{Verdict: VerdictGone, Reason: "it is of an earlier boot"})
	expect(none, true, Evidence{Verdict: VerdictUnknown, Reason: "no boot was recorded"})
	expect(another, true, Evidence{Verdict: VerdictGone, Reason: "another namespace, at " + path + ", has its inode now"})
	fresh.Remove(t, path)
	expect(was, true, Evidence{Verdict: VerdictAlive, Reason: fmt.Sprintf("nothing leads to it at %s, but an open file of process %d keeps it", path, os.Getpid()),
		KeptBy: fmt.Sprintf("an open file of process %d", os.Getpid())})
	expect(was, false, Evidence{Verdict: VerdictUnknown, Reason: "it is not at " + path + ", and what keeps it elsewhere cannot be seen: " +
		"the processes of the node are not seen from here: run it outside of a container, or in the host's PID namespace"})
	_ = f.Close()
	waitFor(t, func() bool {
		return Prove(t.Context(), true, was)[was] == Evidence{Verdict: VerdictGone, Reason: "no mount, process or socket of the node keeps it"}
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if e := Prove(ctx, true, was)[was]; e.Verdict != VerdictUnknown || !strings.Contains(e.Reason, context.Canceled.Error()) {
		t.Errorf("interrupted: %+v", e)
	}
}

// A thread that is in the namespace for a moment does not keep it. One that stays does.
func TestProveLooksAgainAtWhatAThreadKeeps(t *testing.T) {
	inside := func(t *testing.T) (was attachment.Namespace, leave func()) {
		path := fresh.Sandbox(t)
		was, err := kernelid.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		was.Path = path
		entered, end, left := make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(left)
			if err := fresh.In(path, func() { close(entered); <-end }); err != nil {
				t.Error(err)
			}
		}()
		<-entered
		fresh.Remove(t, path)
		return was, sync.OnceFunc(func() { close(end); <-left })
	}
	t.Run("for a moment", func(t *testing.T) {
		was, leave := inside(t)
		defer leave()
		looks := 1
		then := func() { looks++; leave() }
		if e := Prove(fresh.Between{Context: t.Context(), Do: then}, true, was)[was]; e.Verdict != VerdictGone || looks != 2 {
			t.Errorf("after %d looks: %+v", looks, e)
		}
	})
	t.Run("for good", func(t *testing.T) {
		was, leave := inside(t)
		defer leave()
		if e := Prove(t.Context(), true, was)[was]; e.Verdict != VerdictAlive || !strings.HasPrefix(e.KeptBy, "a thread of process ") {
			t.Errorf("%+v", e)
		}
	})
}

// What kept a namespace can go, or lead to another one, before it is asked which namespace that is.
func TestKeeperHasLeft(t *testing.T) {
	path := fresh.Sandbox(t)
	was, err := kernelid.Read(path)
	if err != nil {
		t.Fatal(err)
	}
	mounted := NamespaceKeeper{}.with("a mount", path, byMount)
	if mounted.hasMoved(was.Inode) || !mounted.hasMoved(was.Inode+1) {
		t.Error("the mount is there, and leads to its namespace alone")
	}
	fresh.Remove(t, path)
	if !mounted.hasMoved(was.Inode) {
		t.Error("the mount is gone")
	}
	if (NamespaceKeeper{Description: "a socket", Cookie: was.Cookie}).hasMoved(was.Inode) {
		t.Error("a socket has no path that can be gone")
	}
}
