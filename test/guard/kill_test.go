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
	h := newHost(t, "active")
	if h == nil {
		return
	}
	h.runAgent(t)
	steps := stepsOf(t, h)
	if len(steps) != 12 {
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
			if i > ran {
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
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the command runs", func() bool { return h.read("units/began") != "" })
}

const began = `echo yes >"$UNITS/began"; `

// A guard is killed while the command runs. The command goes on, and the resume waits for it.
func TestKilledWhileTheCommandRuns(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	h.runAgent(t)
	cmd := h.relink(h.guardArgs(began + `while [ ! -e "$UNITS/go" ]; do sleep 0.02; done; echo it goes on; ` + reload + `; exit 5`)...)
	h.begin(t, cmd)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	follow, status := h.status(t, h.relink("guard", "--follow"))
	if status != 125 || !strings.Contains(follow, `the guard was killed at the step "run the command": relink guard --resume finishes its work`) {
		t.Errorf("follow: %d\n%s", status, follow)
	}
	if got := state(t, "kubelet"); got != "inactive" {
		t.Errorf("the kubelet is %s", got)
	}
	resume := make(chan string)
	go func() {
		out, status := h.status(t, h.relink("guard", "--resume"))
		if status != 5 {
			t.Errorf("resume: %d, want that of the command\n%s", status, out)
		}
		resume <- out
	}()
	time.Sleep(200 * time.Millisecond) // Nothing depends on how long this is.
	h.write(t, "units/go", "")
	contains(t, <-resume, "the command has ended with exit status 5", "everything is back")
	h.whole(t, "active")
	contains(t, h.read("guard/log"), "it goes on\n")
}

// A guard is killed while the command hangs. The timer finishes its work, and ends the command at its limit.
func TestTheTimerFinishes(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	h.runAgent(t)
	cmd := h.relink(h.guardArgs(began+reload+`; exec sleep 1000`, "--limit", reloads)...)
	h.begin(t, cmd)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	runTimer(t, h.timer(t)+".service")
	contains(t, h.read("guard/log"), "it gets SIGTERM", "the command has passed its limit", "kubelet.service is started", "everything is back")
	h.whole(t, "active")
}

// A guard is killed while the command hangs, and nobody finishes its work yet. The command ends at its limit all the same.
func TestTheLimitNeedsNoGuard(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	cmd := h.relink(h.guardArgs(began+reload+`; exec sleep 1000`, "--limit", reloads)...)
	h.begin(t, cmd)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	unit := h.timer(t) + "-command.service"
	eventually(t, "systemd ends the command", func() bool { return state(t, unit) == "failed" })
	if out, status := h.status(t, h.relink("guard", "--resume")); status != 124 || !strings.Contains(out, "the command has passed its limit") {
		t.Errorf("resume: %d\n%s", status, out)
	}
	h.whole(t, "active")
	if units := fresh.Run(t, "", "systemctl list-units --all --no-legend 'relink-guard-*'"); units != "" {
		t.Errorf("left behind: %s", units)
	}
}

// runTimer does at once what the timer does at the deadline.
func runTimer(t *testing.T, unit string) {
	t.Helper()
	fresh.Run(t, "", "systemctl start "+unit+" || true")
	eventually(t, "the timer's process ends", func() bool { return strings.Contains(" inactive failed unknown ", " "+state(t, unit)+" ") })
}

// The kubelet comes back at the deadline even if the guard lives and hangs, and even if relink cannot be run.
func TestTheTimerStartsTheKubeletInAnyCase(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	const odd = `odd\x2dkubelet.service` // systemd escapes names in this way.
	if err := os.WriteFile("/run/systemd/system/"+odd, []byte("[Service]\nExecStart=sleep infinity\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	fresh.Run(t, "", "systemctl daemon-reload; systemctl start '"+odd+"'")
	relink := filepath.Join(bin, "relink")
	cwd, environment := filepath.Join(h.dir, "cwd"), filepath.Join(h.dir, "guard", "environment")
	for problem, cause := range map[string]string{"another guard is under way": "true", "status=203/EXEC": "rmdir " + cwd + "; rm " + environment + "; mount --bind /dev/null " + relink} {
		_ = os.Remove(filepath.Join(h.dir, "units", "began"))
		_ = os.Mkdir(cwd, 0o700)
		cmd := h.relink(h.guardArgs(began+"exec sleep 1000", "--stop", "kubelet", "--stop", odd)...)
		cmd.Dir = cwd
		h.begin(t, cmd)
		finisher := h.timer(t) + ".service"
		if got := state(t, "kubelet"); got != "inactive" {
			t.Errorf("the kubelet is %s", got)
		}
		fresh.Run(t, "", cause)
		runTimer(t, finisher)
		fresh.Run(t, "", "umount "+relink+" 2>/dev/null || true")
		if got := state(t, "kubelet"); got != "active" {
			t.Errorf("%s: the kubelet is %s", problem, got)
		}
		if got := state(t, "'"+odd+"'"); got != "active" {
			t.Errorf("%s: %s is %s", problem, odd, got)
		}
		contains(t, fresh.Run(t, "", "journalctl --sync; journalctl --no-pager -u "+finisher), problem)
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		h.whole(t, "active")
	}
}

// Without systemd, guard does nothing, and says what to do instead.
func TestWithoutSystemd(t *testing.T) {
	cmd := exec.Command(filepath.Join(bin, "relink"), "guard", "--", "/bin/true")
	cmd.Env = []string{"PATH=/nowhere", "RELINK_GUARD_DIR=" + filepath.Join(t.TempDir(), "guard")}
	out, _ := cmd.CombinedOutput()
	if status := cmd.ProcessState.ExitCode(); status != 125 {
		t.Errorf("exit status %d", status)
	}
	contains(t, string(out), "systemd does not run this machine, and guard needs it: stop the kubelet yourself, run the command, and type relink restore")
}
