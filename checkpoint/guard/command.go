package guard

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/systemd"
)

// undoOf is a pure function: it returns what brings back the device that the command takes away, empty for other commands. The usual
// cause is a shell that reads `relink guard -- modprobe -r i40e && modprobe i40e` as two commands. It looks into no sh -c.
func undoOf(command []string) string {
	for i, word := range command {
		operands := command[i+1:]
		isRemoval := func(flag string) bool {
			return flag == "--remove" || strings.HasPrefix(flag, "-") && !strings.HasPrefix(flag, "--") && strings.Contains(flag, "r")
		}
		switch program := path.Base(word); {
		case strings.HasSuffix(program, "sh"):
			return ""
		case len(operands) > 0 && (program == "rmmod" || program == "modprobe" && slices.ContainsFunc(operands, isRemoval)):
			return "modprobe " + operands[len(operands)-1]
		}
	}
	return ""
}

// ErrCannotRun says that the command cannot be run, or was not found.
var ErrCannotRun = errors.New("the command cannot be run")

// findProgram returns an error if there is no such program.
func findProgram(program string) error {
	if _, err := exec.LookPath(program); err != nil {
		return fmt.Errorf("%w: %w: give a program, or sh -c '...' for a line of the shell", ErrCannotRun, err)
	}
	return nil
}

// startCommand starts the command as a unit of its own, which lives on whatever becomes of the guard and of the terminal. systemd ends it
// at its limit. The unit stays when the command has ended, however it ended: it has the exit status, and processes that the command leaves
// behind go on in it. The shell is for scripts without an interpreter line, which the kernel does not run.
func (g *guard) startCommand(ctx context.Context) error {
	plan := g.journal.Plan
	return g.runUnit(ctx, []string{
		"--unit=" + g.commandUnit(), "--same-dir", "--property=IgnoreSIGPIPE=no", "--property=RemainAfterExit=yes", "--property=SuccessExitStatus=" + anyExitStatus(),
		"--property=RuntimeMaxSec=" + plan.Limit.String(), "--property=TimeoutStopSec=" + plan.KillAfter.String(),
		"--property=StandardOutput=append:" + logPath(g.dir), "--property=StandardError=inherit",
	}, append([]string{"/bin/sh", "-c", `exec "$0" "$@"`}, plan.Command...)...)
}

// anyExitStatus lists everything that a program can end with. systemd ends what a program leaves behind that has failed.
func anyExitStatus() string {
	statuses := []string{"SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 SIGSEGV SIGUSR2 SIGALRM SIGXCPU SIGXFSZ SIGVTALRM SIGPROF SIGIO SIGPWR SIGSYS"}
	for status := range 256 {
		statuses = append(statuses, strconv.Itoa(status))
	}
	return strings.Join(statuses, " ")
}

// runCommand runs the command until its end, and notes how it ended. If the command already runs, because a guard was killed, it waits
// for that one.
func (g *guard) runCommand(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // An interrupt is for the command.
	r := &g.journal.Run
	if !g.journal.Resumed {
		if err := g.startCommand(ctx); err != nil {
			_ = systemd.Control(ctx, "stop", g.commandUnit()) // A busy systemd may start it later.
			r.Status = StatusCannotRun
			return fmt.Errorf("the command could not be started: %w", err)
		}
	} else if unit, err := showUnit(ctx, g.commandUnit()); err == nil && !unit.isLoaded() {
		g.journal.Abandoned = killedBefore
		return nil
	}
	unit, killed := g.awaitCommand(ctx)
	r.Status = unit.exitStatus()
	if r.Remaining = processesOf(g.commandUnit()); killed && len(r.Remaining) > 0 {
		// A process inside a driver does not end before it leaves the driver. The pods must not wait for that.
		g.notBack("", "the command does not end, not even by SIGKILL: "+strings.Join(r.Remaining, ", "))
	}
	g.limitLog()
	return nil
}

const (
	// pollInterval is how often awaitCommand looks whether the command has ended.
	pollInterval = 50 * time.Millisecond
	// askInterval is how often it asks systemd at least.
	askInterval = time.Second
)

// awaitCommand waits until the command has ended. When somebody interrupts, it ends the command: with SIGINT, and then everything that the
// command has started, with SIGTERM and SIGKILL. systemd does so at the limit, without SIGINT. awaitCommand returns what systemd says
// of the command, and whether everything was to end.
func (g *guard) awaitCommand(ctx context.Context) (unit unitState, killed bool) {
	plan, r := g.journal.Plan, &g.journal.Run
	var main *os.Process
	var escalate <-chan time.Time
	signals, interrupts := []string{"SIGINT", "SIGTERM", "SIGKILL"}, g.signals
	// systemd waits for a process that cannot be killed longer than the pods can.
	giveUp := time.After(plan.Limit + 2*plan.KillAfter + askInterval - g.journal.sinceBegun(RunCommand))
	for asked := (time.Time{}); ; {
		if hasEnded(main) || time.Since(asked) >= askInterval {
			asked = time.Now()
			unit, _ = showUnit(ctx, g.commandUnit())
			if unit["Result"] == "timeout" && !r.Interrupted && !r.LimitPassed {
				r.LimitPassed = true
				g.logf("the command has run for %s: it gets SIGTERM, and after %s SIGKILL", plan.Limit, plan.KillAfter)
			}
			killed = r.LimitPassed || len(signals) < 2
			if unit.hasEnded() && (!killed || len(processesOf(g.commandUnit())) == 0) {
				return unit, killed
			}
			if pid, _ := strconv.Atoi(unit["MainPID"]); pid != 0 && main == nil {
				main, _ = os.FindProcess(pid) // It never fails on Linux.
			}
		}
		select {
		case <-time.After(pollInterval):
			g.limitLog()
			continue
		case <-giveUp:
			r.LimitPassed = !r.Interrupted
			return unit, true
		case <-escalate:
		case s := <-interrupts:
			g.logf("%s: guard ends the command, and then puts everything back", s)
			if s == syscall.SIGTERM && !r.Interrupted {
				signals = signals[1:]
			}
			r.Interrupted = true
		}
		if len(signals) == 0 {
			return unit, true
		}
		g.logf("the command gets %s", signals[0])
		_ = systemd.Control(ctx, "kill", "--signal="+signals[0], g.commandUnit()) // It may just have ended.
		if signals, escalate = signals[1:], time.After(plan.KillAfter); len(signals) < 2 {
			interrupts = nil // After SIGTERM, nobody's impatience makes SIGKILL come sooner.
		}
	}
}

// hasEnded says whether the process is known and has ended.
func hasEnded(process *os.Process) bool {
	return process != nil && process.Signal(syscall.Signal(0)) != nil
}

// maxLog is how many bytes the log has at most. The checkpoints are on the same file system, mostly a tmpfs.
const maxLog = 16 << 20

// limitLog empties the log if the command has written too much. Whoever follows the log misses the line if the command writes on faster
// than they read, so the report has it, too.
func (g *guard) limitLog() {
	if info, err := g.log.Stat(); err == nil && info.Size() > maxLog && g.log.Truncate(0) == nil {
		g.notef("the command has written more than %d MiB: the log begins anew", maxLog>>20)
	}
}

// text says how the command ended.
func (r CommandResult) text() string {
	if r.LimitPassed {
		return "has passed its limit"
	}
	text := fmt.Sprintf("has ended with exit status %d", r.Status)
	if r.Interrupted {
		text += " after an interrupt"
	}
	return text
}

// failed says that the command did not succeed.
func (r CommandResult) failed() bool { return r.LimitPassed || r.Interrupted || r.Status != 0 }

// processesOf returns the living processes of the unit.
func processesOf(unit string) (found []string) {
	paths, _ := filepath.Glob("/proc/[0-9]*/cgroup") // Only a bad pattern is an error.
	for _, file := range paths {
		groups, _ := os.ReadFile(file) // A process that has ended has none.
		if dir := filepath.Dir(file); strings.Contains(string(groups), "/"+unit+"\n") {
			name, _ := os.ReadFile(filepath.Join(dir, "comm"))
			found = append(found, fmt.Sprintf("%s (process %s)", printable.Line(strings.TrimSpace(string(name))), filepath.Base(dir)))
		}
	}
	return found
}
