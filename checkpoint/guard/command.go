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

// findProgram returns the file of the program.
func findProgram(program string) (string, error) {
	file, err := exec.LookPath(program)
	if err != nil {
		return "", fmt.Errorf("%w: %w: give a program, or sh -c '...' for a line of the shell", ErrCannotRun, err)
	}
	return filepath.Abs(file)
}

// exitStatusPath is a file with the command's exit status, as a shell tells it. It appears when the command has ended.
func (g *guard) exitStatusPath() string { return filepath.Join(g.dir, "exit-status-"+g.journal.ID) }

// exitStatus returns the command's exit status, false while it runs.
func (g *guard) exitStatus() (int, bool) {
	text, _ := os.ReadFile(g.exitStatusPath()) // It has not ended.
	status, err := strconv.Atoi(strings.TrimSpace(string(text)))
	return status, err == nil
}

// startCommand starts the command as a unit of its own, which lives on whatever becomes of the guard and of the terminal. The unit
// does not end with the command: processes that the command leaves behind go on. The shell that runs the command ignores the signals
// that end it, and writes its exit status. If the shell itself is killed, systemd writes the status of SIGKILL.
func (g *guard) startCommand(ctx context.Context) error {
	const script = `trap : INT TERM; "$@"; echo $? >"$0.new" && mv "$0.new" "$0"`
	plan, status := g.journal.Plan, g.exitStatusPath()
	return g.runUnit(ctx, []string{
		"--unit=" + g.commandUnit(), "--same-dir", "--property=RemainAfterExit=yes", "--property=IgnoreSIGPIPE=no", "--property=TimeoutStopSec=" + plan.KillAfter.String(),
		"--property=StandardOutput=append:" + logPath(g.dir), "--property=StandardError=inherit",
		fmt.Sprintf(`--property=ExecStopPost=/bin/sh -c 'test -e "%[1]s" || echo %[2]d >"%[1]s"'`, status, 128+syscall.SIGKILL),
	}, append([]string{"/bin/sh", "-c", script, status, plan.Path}, plan.Command[1:]...)...)
}

// runCommand runs the command until its end or its limit, and notes how it ended. If the command already runs, because a guard was
// killed, it waits for that one.
func (g *guard) runCommand(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx) // An interrupt is for the command.
	r := &g.journal.Run
	if !g.journal.Resumed {
		if err := g.startCommand(ctx); err != nil {
			_ = systemd.Control(ctx, "stop", g.commandUnit()) // A busy systemd may start it later.
			r.Status = StatusCannotRun
			return fmt.Errorf("the command could not be started: %w", err)
		}
	} else if loaded, err := isLoaded(ctx, g.commandUnit()); err == nil && !loaded {
		if _, ended := g.exitStatus(); !ended {
			g.journal.Abandoned = killedBefore
			return nil
		}
	}
	ended := g.awaitCommand(ctx)
	var written bool
	if r.Status, written = g.exitStatus(); !written {
		r.Status = 128 + int(syscall.SIGKILL)
	}
	r.Remaining = processesOf(g.commandUnit())
	switch {
	case ended && !written:
		g.notef("the command has ended, and its exit status could not be written to %s", g.exitStatusPath())
	case !ended && len(r.Remaining) > 0:
		// A process inside a driver does not end before it leaves the driver. The pods must not wait for that.
		g.troublef("the command does not end, not even by SIGKILL: %s", strings.Join(r.Remaining, ", "))
	case len(r.Remaining) == 0:
		_ = systemd.Control(ctx, "stop", g.commandUnit()) // It is gone, or empty.
	}
	g.limitLog()
	return nil
}

const (
	// pollInterval is how often awaitCommand looks whether the command has ended.
	pollInterval = 50 * time.Millisecond
	// askInterval is how often it asks systemd: on a full disk, nobody can write the exit status.
	askInterval = 2 * time.Second
)

// awaitCommand waits for the end of the command. At the limit, or when somebody interrupts, it ends the command and all processes
// that the command has started. It returns whether the command has ended by itself.
func (g *guard) awaitCommand(ctx context.Context) bool {
	var late <-chan time.Time
	asked := time.Now()
	for limit := time.After(g.journal.Plan.Limit - g.journal.sinceBegun(RunCommand)); ; {
		if _, ended := g.exitStatus(); ended || time.Since(asked) >= askInterval {
			asked = time.Now()
			// What still runs of the unit's shell would pass for a process that the command leaves behind.
			state, _ := property(ctx, g.commandUnit(), "SubState")
			if ended && state != "running" || slices.Contains([]string{"exited", "failed", "dead"}, state) {
				return true
			}
		}
		select {
		case <-time.After(pollInterval):
			g.limitLog()
			continue
		case <-late:
		case <-limit:
			g.journal.Run.LimitPassed = true
			g.logf("the command has run for %s: guard ends it", g.journal.Plan.Limit)
		case s := <-g.signals:
			g.logf("%s: guard ends the command, and then puts everything back", s)
			g.journal.Run.Interrupted = true
			if s != syscall.SIGTERM && late == nil {
				g.logf("the command gets SIGINT")
				late = time.After(g.journal.Plan.KillAfter)
				if err := systemd.Control(ctx, "kill", "--signal=INT", g.commandUnit()); err == nil {
					continue
				}
			}
		}
		g.logf("the command gets SIGTERM, and after %s SIGKILL", g.journal.Plan.KillAfter)
		ctx, cancel := context.WithTimeout(ctx, 2*g.journal.Plan.KillAfter+time.Second)
		defer cancel()
		_ = systemd.Control(ctx, "stop", g.commandUnit()) // What lives on is found later.
		return false
	}
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
	return fmt.Sprintf("has ended with exit status %d", r.Status) + textIf(r.Interrupted, " after an interrupt")
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
