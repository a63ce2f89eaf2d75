package vm_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/relink-cni/relink/test/vm"
)

// timedOutput notes when a text first appeared in what was written.
type timedOutput struct {
	mu   sync.Mutex
	text bytes.Buffer
	seen map[string]time.Time
	on   func(text string) // called after each Write, may be nil
}

func (o *timedOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	for _, word := range strings.Fields(o.text.String()) {
		if _, ok := o.seen[word]; !ok {
			o.seen[word] = time.Now()
		}
	}
	if o.on != nil {
		o.on(o.text.String())
	}
	return len(p), nil
}

func newTimedOutput() *timedOutput {
	return &timedOutput{seen: map[string]time.Time{}}
}

func TestExitStatusOutputAndShare(t *testing.T) {
	t.Parallel()
	share, writable := t.TempDir(), t.TempDir()
	out := newTimedOutput()
	out.on = func(text string) { // The second line comes only when the first one is here.
		if text == "first\n" {
			if err := os.WriteFile(filepath.Join(share, "heard"), nil, 0o600); err != nil {
				t.Error(err)
			}
		}
	}
	script := `echo first; until ls "$RELINK_VM_SHARE" | grep -q heard; do sleep 0.1; done; echo second >/dev/stderr
		echo kept >"$RELINK_VM_SHARE/file"; echo kept >"$1/file"; echo lost >"$2/file"
		printf '%s %s %s' "$GREETING" "$PWD" "$RELINK_VM"; exit 7`
	lost := t.TempDir()
	code, err := vm.Run(t.Context(), vm.Config{
		Command:    []string{"sh", "-c", script, "sh", writable, lost},
		Env:        []string{"GREETING=it's \"me\" $HOME"},
		Dir:        "/usr/share",
		Share:      share,
		Writable:   []string{writable},
		Output:     out,
		Processors: 1,
	})
	if err != nil || code != 7 {
		t.Fatalf("Run = %d, %v; want 7", code, err)
	}
	want := "first\nsecond\nit's \"me\" $HOME /usr/share 1"
	if got := out.text.String(); got != want {
		t.Errorf("the output is %q, want %q", got, want)
	}
	for _, dir := range []string{share, writable} {
		if text, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(text) != "kept\n" {
			t.Errorf("the guest's file in %s reads %q, %v", dir, text, err)
		}
	}
	if _, err := os.Stat(filepath.Join(lost, "file")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the guest wrote to a directory that is not shared: %v", err)
	}
}

func TestMachineFailures(t *testing.T) {
	tests := []struct {
		name    string
		script  string
		limit   time.Duration
		want    error
		console string
	}{
		{"panic that does not reboot", "sysctl -qw kernel.panic=0; echo c >/proc/sysrq-trigger; sleep 100",
			10 * time.Minute, vm.ErrPanic, "sysrq triggered crash"},
		{"hang", "sleep 1000", 10 * time.Second, vm.ErrTimeLimit, ""},
		{"power off", "echo o >/proc/sysrq-trigger; sleep 100", 10 * time.Minute, vm.ErrNoResult, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			share, out := t.TempDir(), newTimedOutput()
			start := time.Now()
			_, err := vm.Run(t.Context(), vm.Config{
				Command:   []string{"sh", "-c", "echo up; " + test.script},
				Share:     share,
				Output:    out,
				TimeLimit: test.limit,
				// Two that are emulated were seen to hang while the kernel powers off.
				Processors: 1,
			})
			if !errors.Is(err, test.want) {
				t.Fatalf("Run's error is %v, want %v", err, test.want)
			}
			if !strings.Contains(err.Error(), test.console) {
				t.Errorf("the error does not show %q on the console: %v", test.console, err)
			}
			if up, booted := out.seen["up"]; booted {
				start = up // On a busy machine, the boot alone takes a minute.
			}
			if took := time.Since(start); took > time.Minute {
				t.Errorf("it took %v to notice", took)
			}
			if left := emulators(t, share); len(left) > 0 {
				t.Errorf("processes left: %v", left)
			}
		})
	}
}

func TestCancelEndsMachine(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	out := newTimedOutput()
	out.on = func(string) { cancel() }
	share := t.TempDir()
	_, err := vm.Run(ctx, vm.Config{
		Command: []string{"sh", "-c", "echo up; sleep 1000"}, Share: share, Output: out, Processors: 1,
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Run's error is %v, want %v", err, context.Canceled)
	}
	if left := emulators(t, share); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
}

func TestMachineEndsWithKilledParent(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "vm")
	if out, err := exec.Command("go", "build", "-o", binary, "./cmd/vm").CombinedOutput(); err != nil {
		t.Fatalf("building the command: %v\n%s", err, out)
	}
	share := t.TempDir()
	cmd := exec.Command(binary, "-share", share, "--", "sleep", "1000")
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir()) // what a killed process cannot clean up
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the machine to start", func() bool { return len(emulators(t, share)) == 1 })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // says that it was killed
	await(t, "the machine to end", func() bool { return len(emulators(t, share)) == 0 })
}

func TestMissingToolNamesSetup(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := vm.Run(t.Context(), vm.Config{Command: []string{"true"}})
	if err == nil || !strings.Contains(err.Error(), "make setup") {
		t.Errorf("Run's error is %v, want one that names make setup", err)
	}
}

func TestBadConfig(t *testing.T) {
	command := []string{"true"}
	tests := map[string]vm.Config{
		"no command":           {},
		"environment":          {Command: command, Env: []string{"no value"}},
		"share not there":      {Command: command, Share: "/nonexistent"},
		"writable is relative": {Command: command, Writable: []string{"."}},
	}
	for name, cfg := range tests {
		if _, err := vm.Run(t.Context(), cfg); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// emulators returns the process IDs of the machines that share this directory.
func emulators(t *testing.T, share string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, file := range files {
		line, _ := os.ReadFile(file) // the process may have ended
		if bytes.HasPrefix(line, []byte("/")) && bytes.Contains(line, []byte("qemu-system")) &&
			bytes.Contains(line, []byte(share)) {
			found = append(found, filepath.Base(filepath.Dir(file)))
		}
	}
	return found
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
