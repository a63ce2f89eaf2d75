package native

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/relink-cni/relink/test/vm"
)

// Env is the environment variable of processes that run on such a host.
const Env = "RELINK_NATIVE"

// startLimit is how long systemd may take to start. A busy machine takes seconds.
const startLimit = time.Minute

//go:embed init.sh
var initScript string

//go:embed cgroups.sh
var cgroupsScript string

// Inside reports whether this process runs on such a host.
func Inside() bool { return os.Getenv(Env) != "" }

// Run runs this test alone, by this test binary, on a host of its own. The host sees this machine's root file system, and writes to it in
// memory. It shares the directories that are named, and those of the test binary and of the working directory. It has the NICs eth0 and
// eth1, which are down, and a namespace wire, as the test machine has. The test gets the variables that begin with RELINK_.
func Run(t *testing.T, directories ...string) {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	host, err := start(t, append(directories, filepath.Dir(binary), dir))
	if err != nil {
		t.Fatal(err)
	}
	cmd := host.command(t.Context(), "env", "--chdir="+dir, binary, "-test.run="+vm.Exactly(t.Name()), "-test.v", "-test.timeout=10m")
	out, err := cmd.CombinedOutput()
	switch {
	case err != nil:
		t.Fatalf("%v on the host\n%s", err, out)
	case !strings.Contains(string(out), "--- PASS: "+t.Name()+" "):
		t.Fatalf("it did not run on the host\n%s", out)
	case testing.Verbose():
		t.Logf("\n%s", out)
	}
}

// host is a running host.
type host struct{ pid int }

// start starts a host, which ends with the test.
func start(t *testing.T, directories []string) (*host, error) {
	root := t.TempDir()
	log, err := os.Create(filepath.Join(root, "log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // The host has its own descriptor.
	group := fmt.Sprintf("relink-test-%d-%d", os.Getpid(), time.Now().UnixNano())
	cmd := exec.Command("bash", append([]string{"-c", cgroupsScript, "init", group, "bash", "-c", initScript, "init", filepath.Join(root, "root")}, directories...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Setsid:     true, Pdeathsig: syscall.SIGKILL, Unshareflags: syscall.CLONE_NEWNS,
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("new namespaces (needs root): %w", err)
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // Its log tells more than its status.
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // It may have ended by itself.
		<-ended
		removeCgroups(t, group)
	})
	h := &host{pid: cmd.Process.Pid}
	ctx, stop := context.WithTimeout(t.Context(), startLimit)
	defer stop()
	for {
		_, err := os.Stat(fmt.Sprintf("/proc/%d/root/run/systemd/private", h.pid))
		var out []byte
		if err == nil {
			if out, err = h.command(ctx, "systemctl", "is-active", "basic.target").CombinedOutput(); err == nil {
				return h, nil
			}
		}
		select {
		case <-ended:
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
			continue
		}
		text, _ := os.ReadFile(log.Name()) // What can be read is shown.
		return nil, fmt.Errorf("the host has not started: %s, %w\n%s", strings.TrimSpace(string(out)), errors.Join(err, ctx.Err()), text)
	}
}

// command returns a command that runs in all namespaces of the host.
func (h *host) command(ctx context.Context, arguments ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"-t", fmt.Sprint(h.pid), "-m", "-u", "-i", "-n", "-p", "-C", "--"}, arguments...)...)
	cmd.Env = []string{Env + "=1", "HOME=/root", "PATH=" + os.Getenv("PATH")}
	for _, pair := range os.Environ() {
		if strings.HasPrefix(pair, "RELINK_") {
			cmd.Env = append(cmd.Env, pair)
		}
	}
	cmd.WaitDelay = time.Second
	return cmd
}

// removeCgroups removes the groups that cgroups.sh has made, and those below. Processes that were killed leave them a moment later.
func removeCgroups(t *testing.T, group string) {
	t.Helper()
	tops, err := filepath.Glob("/sys/fs/cgroup/*/" + group)
	if err != nil {
		t.Error(err)
	}
	for _, top := range append(tops, "/sys/fs/cgroup/"+group) {
		if _, err := os.Stat(top); errors.Is(err, os.ErrNotExist) {
			continue
		}
		var out []byte
		err := errors.New("not tried")
		for try := 0; err != nil && try < 100; try++ {
			if out, err = exec.Command("find", top, "-depth", "-type", "d", "-exec", "rmdir", "{}", "+").CombinedOutput(); err != nil {
				time.Sleep(20 * time.Millisecond)
			}
		}
		if err != nil {
			t.Errorf("cgroup %s: %v\n%s", top, err, out)
		}
	}
}
