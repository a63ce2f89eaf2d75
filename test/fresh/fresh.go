package fresh

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// insideEnv says that the program runs in the new namespaces, and whether it has just entered them.
const (
	insideEnv = "RELINK_FRESH"
	entered   = "1"
)

// defaultDir has the agent's socket, where nothing names another one. Agents of other tests are not those of this one.
const defaultDir = "/run/relink"

// Keep the main thread for the main goroutine. A thread that In or Make has moved to another namespace must end with
// its goroutine, and the main thread cannot end.
func init() { runtime.LockOSThread() }

// Inside reports whether this process runs in the new namespaces.
func Inside() bool { return os.Getenv(insideEnv) != "" }

// Main is for a package's TestMain and does not return. It runs the tests in a new network namespace and a new mount
// namespace. The tests take the new network namespace for the host's. Nothing that they do outlives them.
func Main(m *testing.M) {
	Enter()
	os.Exit(m.Run())
}

// Enter returns if the program already runs in the new namespaces. Otherwise it runs the program again in new network
// and mount namespaces, and exits with its status.
func Enter() { enter(0) }

// EnterAlone is like Enter, and also gives the program a PID namespace of its own. There it sees no other process of
// this machine. Everything that it starts ends with it.
func EnterAlone() {
	enter(unix.CLONE_NEWPID)
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		fmt.Fprintf(os.Stderr, "mount /proc: %v\n", err)
		os.Exit(1)
	}
}

// enter is like Enter, with more namespaces.
func enter(more uintptr) {
	if Inside() {
		if os.Getenv(insideEnv) == entered { // Programs that this one starts have the same.
			if err := errors.Join(os.MkdirAll(defaultDir, 0o755), unix.Mount("tmpfs", defaultDir, "tmpfs", 0, ""), os.Setenv(insideEnv, "settled")); err != nil {
				fmt.Fprintf(os.Stderr, "a %s of its own: %v\n", defaultDir, err)
				os.Exit(1)
			}
		}
		return
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), insideEnv+"="+entered)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | more, Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL,
	}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &exit):
		os.Exit(exit.ExitCode())
	}
	fmt.Fprintf(os.Stderr, "new network namespace (needs root): %v\n", err)
	os.Exit(1)
}

// Sandbox makes a network namespace and returns its path. The end of the test removes the namespace.
func Sandbox(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ns")
	At(t, path)
	return path
}

// InMemory returns a directory in memory, for tests that are not about disks. The end of the test removes it.
func InMemory(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// At makes a network namespace at the path, which must not exist. The end of the test removes the namespace.
func At(t testing.TB, path string) {
	t.Helper()
	if err := Make(path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Remove(t, path) })
}

// Make makes a network namespace at the path, which must not exist.
func Make(path string) error {
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		return err
	}
	err := elsewhere(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return err
		}
		return unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
	})
	if err != nil {
		return fmt.Errorf("make sandbox: %w", err)
	}
	return nil
}

// elsewhere calls f on a thread that f may move to another network namespace. The thread comes back before elsewhere
// returns: it ends with its goroutine, but a moment later. Until then it would keep the namespace.
func elsewhere(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // The thread ends with the goroutine.
		done <- thereAndBack(f)
	}()
	return <-done
}

func thereAndBack(f func() error) error {
	own, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return err
	}
	defer func() { _ = own.Close() }() // It was only read.
	err = f()
	if back := unix.Setns(int(own.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, fmt.Errorf("leave the namespace: %w", back))
	}
	return err
}

// Remove removes the namespace at the path, if it exists.
func Remove(t testing.TB, path string) {
	t.Helper()
	if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		t.Errorf("remove sandbox: %v", err)
	}
	_ = os.Remove(path)
}

// Start starts a program, and returns when that has written something. The end of the test kills it.
func Start(t testing.TB, name string, args ...string) (pid int) {
	t.Helper()
	cmd := exec.Command(name, args...)
	out, err := cmd.StdoutPipe()
	if err = cmp.Or(err, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

// IP runs ip(8) with the words of args in the namespace at the path, and returns its output. An empty path means the
// host's namespace.
func IP(t testing.TB, path, args string) string {
	t.Helper()
	return Run(t, path, "ip "+args)
}

// Run runs a shell command line in the namespace at the path, and returns its output. An empty path means the host's
// namespace.
func Run(t testing.TB, path, line string) string {
	t.Helper()
	var out []byte
	var err error
	run := func() { out, err = exec.Command("sh", "-ec", line).CombinedOutput() }
	if path == "" {
		run()
	} else if enterErr := In(path, run); enterErr != nil {
		err = enterErr
	}
	if err != nil {
		t.Errorf("%s: %v\n%s", line, err, out)
	}
	return strings.TrimSpace(string(out))
}

// In calls f on a thread that is in the namespace at the path. A program that f starts is there too. That takes much
// less work than starting nsenter.
func In(path string, f func()) error {
	return elsewhere(func() error {
		if err := enterNamespace(path); err != nil {
			return err
		}
		f()
		return nil
	})
}

func enterNamespace(path string) error {
	namespace, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = namespace.Close() }() // It was only read.
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter %s: %w", path, err)
	}
	return nil
}

// AsNobody calls f on a thread without any privilege. f starts no goroutines.
func AsNobody(t testing.TB, f func()) {
	t.Helper()
	const nobody = 65534
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // The thread ends with the goroutine.
		// The package syscall would change all threads of the process.
		_, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody)
		if errno != 0 {
			done <- errno
			return
		}
		f()
		done <- nil
	}()
	if err := <-done; err != nil {
		t.Fatalf("become nobody: %v", err)
	}
}
