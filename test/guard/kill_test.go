package guard

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/relink-cni/relink/test/fresh"
)

// stepsOf runs the guard undisturbed and returns its steps.
func stepsOf(t *testing.T, h *host) (steps []string) {
	t.Helper()
	trace := filepath.Join(h.dir, "trace")
	cmd := h.relink(h.guardArgs(reload)...)
	cmd.Env = append(slices.Clone(h.env), "RELINK_FAILPOINT_TRACE="+trace)
	if out, status := h.status(t, cmd); status != 0 {
		t.Fatalf("undisturbed: %d\n%s", status, out)
	}
	for line := range strings.Lines(h.read("trace")) {
		if strings.HasPrefix(line, "guard: ") {
			steps = append(steps, strings.TrimSpace(line))
		}
	}
	return steps
}

// A guard is killed at each step. A resume finishes its work. Until then, a second guard is refused.
func TestKilledAtEachStep(t *testing.T) {
	t.Parallel()
	h := newHost(t, "active")
	h.runAgent(t)
	steps := stepsOf(t, h)
	if len(steps) != 13 {
		t.Fatalf("the steps: %q", steps)
	}
	ran := slices.Index(steps, "guard: run the command")
	for i, step := range steps {
		t.Run(step, func(t *testing.T) {
			cmd := h.relink(h.guardArgs(reload + `; touch "$UNITS/ran"`)...)
			cmd.Env = append(slices.Clone(h.env), "RELINK_FAILPOINT="+step+"#1")
			_ = os.Remove(filepath.Join(h.dir, "units", "ran"))
			if out, _ := h.status(t, cmd); !cmd.ProcessState.Sys().(syscall.WaitStatus).Signaled() {
				t.Fatalf("it is not killed\n%s", out)
			}
			if out, status := h.status(t, h.relink("guard", "--", "true")); status != 125 || !strings.Contains(out, "a guard was killed at the step \""+strings.TrimPrefix(step, "guard: ")+"\": run relink guard --resume first") {
				t.Errorf("another guard: %d, %s", status, out)
			}
			if out, _ := h.status(t, h.relink("status")); !strings.Contains(out, "relink guard was killed at the step \""+strings.TrimPrefix(step, "guard: ")) {
				t.Errorf("status: %s", out)
			}
			want := 125
			if i >= ran {
				want = 0
			}
			out, status := h.status(t, h.relink("guard", "--resume"))
			if status != want || !strings.Contains(out, "the guard was killed at the step") {
				t.Errorf("resume: %d, want %d\n%s", status, want, out)
			}
			h.whole(t, "active")
			if _, err := os.Stat(filepath.Join(h.dir, "units", "ran")); (err == nil) != (i > ran) {
				t.Errorf("the command was run: %v", err == nil)
			}
			if out, status := h.status(t, h.relink("guard", "--resume")); status != want {
				t.Errorf("a second resume: %d, want %d\n%s", status, want, out)
			}
		})
	}
}

// begin starts a guard and waits until its command has begun. The command writes the file "began" in UNITS.
func (h *host) begin(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := os.Create(filepath.Join(h.dir, "says"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if cmd.Stdout == nil {
		cmd.Stdout, cmd.Stderr = out, out
	}
	if err := h.in(cmd.Start); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command runs", func() bool { return h.read("units/began") != "" })
}

const began = `echo yes >"$UNITS/began"; `

// A guard is killed while the command runs. The command goes on, and the resume waits for it.
func TestKilledWhileTheCommandRuns(t *testing.T) {
	t.Parallel()
	h := newHost(t, "active")
	h.runAgent(t)
	cmd := h.relink(h.guardArgs(began + `while [ ! -e "$UNITS/go" ]; do sleep 0.02; done; echo it goes on; ` + reload + `; touch "$UNITS/ran"`)...)
	h.begin(t, cmd)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	follow, status := h.status(t, h.relink("guard", "--follow"))
	if status != 125 || !strings.Contains(follow, `the guard was killed at the step "run the command": relink guard --resume finishes its work`) {
		t.Errorf("follow: %d\n%s", status, follow)
	}
	if got := strings.TrimSpace(h.read("units/kubelet.service")); got != "inactive" {
		t.Errorf("the kubelet is %s", got)
	}
	resume := make(chan string)
	go func() {
		out, status := h.status(t, h.relink("guard", "--resume"))
		if status != 0 {
			t.Errorf("resume: %d\n%s", status, out)
		}
		resume <- out
	}()
	time.Sleep(200 * time.Millisecond) // Nothing depends on how long this is.
	h.write(t, "units/go", "")
	contains(t, <-resume, "the command has ended, and its exit status is not known", "everything is back")
	h.whole(t, "active")
	if h.read("guard/output") != "it goes on\n" {
		t.Errorf("the command could not write: %q", h.read("guard/output"))
	}
}

// A guard is killed while the command hangs. The timer finishes its work, and ends the command at its limit.
func TestTheTimerFinishes(t *testing.T) {
	t.Parallel()
	h := newHost(t, "active")
	h.runAgent(t)
	cmd := h.relink(h.guardArgs(began+reload+`; exec sleep 1000`, "--limit", reloads)...)
	h.begin(t, cmd)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	// The test runs what systemd's timer would run. As there, nothing is left of the test's environment.
	words := strings.Split(strings.TrimSuffix(h.read("units/fire"), "\x00"), "\x00")
	timer := exec.Command(words[0], words[1:]...)
	timer.Env = h.env
	out, status := h.status(t, timer)
	if status != 0 {
		t.Errorf("the timer: %d", status)
	}
	contains(t, out, "the command gets SIGTERM", "the command was ended at its limit", "kubelet.service is started", "everything is back")
	h.whole(t, "active")
	// Later it changes nothing.
	h.write(t, "units/kubelet.service", "active\n")
	if out, status := h.status(t, timer2(h, words)); status != 0 || strings.Contains(out, "restored") {
		t.Errorf("a second time: %d\n%s", status, out)
	}
}

func timer2(h *host, words []string) *exec.Cmd {
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = h.env
	return cmd
}

// The kubelet comes back at the deadline even if the guard lives and hangs, and even if relink cannot be run.
func TestTheTimerStartsTheKubeletInAnyCase(t *testing.T) {
	t.Parallel()
	h := newHost(t, "active")
	cmd := h.relink(h.guardArgs(began + "exec sleep 1000")...)
	h.begin(t, cmd)
	words := strings.Split(strings.TrimSuffix(h.read("units/fire"), "\x00"), "\x00")
	out, status := h.status(t, timer2(h, words))
	if status != 0 || !strings.Contains(out, "another guard is under way") || strings.TrimSpace(h.read("units/kubelet.service")) != "active" {
		t.Errorf("beside a guard that lives: %d\n%s", status, out)
	}
	h.write(t, "units/kubelet.service", "inactive\n")
	broken := slices.Clone(words)
	broken[slices.Index(broken, filepath.Join(bin, "relink"))] = "/nowhere/relink"
	if out, status := h.status(t, timer2(h, broken)); status != 0 || strings.TrimSpace(h.read("units/kubelet.service")) != "active" {
		t.Errorf("without relink: %d\n%s", status, out)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_ = cmd.Wait()
	h.whole(t, "active")
}

// Without systemd, a process waits instead of a timer. It outlives the guard, and ends with the guard's work.
func TestWithoutSystemd(t *testing.T) {
	t.Parallel()
	h := newHost(t, "active")
	h.write(t, "units/refuse-timer", "")
	h.guard(t, 0, reload, "--limit", reloads)
	// On a busy machine, what is killed takes a moment to be gone.
	eventually(t, "no process waits any more", func() bool {
		return fresh.Run(t, "", "grep -l RELINK_GUARD_ARMED /proc/[0-9]*/environ 2>/dev/null | xargs -r -n1 grep -l "+h.dir+" || true") == ""
	})
	h.whole(t, "active")
	cmd := h.relink(h.guardArgs(began+`while [ ! -e "$UNITS/go" ]; do sleep 0.02; done; `+reload, "--limit", reloads, "--wait", "0s", "--kill-after", "1ms")...)
	h.begin(t, cmd)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	h.write(t, "units/go", "")
	eventually(t, "the process finishes the work", func() bool { return strings.Contains(h.read("guard/log"), "and ends with exit status 0\n") })
	eventually(t, "it is gone", func() bool {
		out, _ := h.status(t, h.relink("status", "-q"))
		return !strings.Contains(out, "guard")
	})
	h.whole(t, "active")
}
