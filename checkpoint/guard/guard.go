package guard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/systemd"
)

// Options of a guard.
type Options struct {
	Store *checkpoint.Store
	// Stdin is for the command. It may be nil. The command's output goes to Out. The guard's own lines go to Err.
	Stdin    *os.File
	Out, Err io.Writer
	// TerminalOut is the terminal that Out writes to. It is nil if Out is not a terminal.
	TerminalOut *os.File
	// Quiet writes only problems to Err. The log has everything.
	Quiet bool
}

// ExitError is an error with its own exit status. Any other error means StatusNotRun.
type ExitError struct {
	Status int
	err    error
}

func (e *ExitError) Error() string { return e.err.Error() }
func (e *ExitError) Unwrap() error { return e.err }

// guard is a running guard.
type guard struct {
	Options
	dir     string
	agent   control.Client
	console *console
	log     *os.File
	// loggedBytes is how many bytes of the command's output are in the log. cut says that the log does not have the rest.
	loggedBytes int
	truncated   bool
	signals     chan os.Signal
	journal     Journal
	// notes are the lines that the report repeats.
	notes []string
}

// Run carries out the plan, and returns the journal at the end. It returns an error if it did nothing. While it
// runs, SIGHUP does nothing. SIGINT, SIGQUIT and SIGTERM end the command, and Run puts everything back.
func Run(ctx context.Context, plan Plan, opts Options) (Journal, error) {
	g, unlock, err := openGuard(opts)
	if err != nil {
		return Journal{}, err
	}
	defer unlock()
	if last, err := load(g.dir); err == nil && last.Finished.IsZero() {
		return Journal{}, fmt.Errorf("a guard was killed at the step %q: run relink guard --resume first", last.current().Step)
	} else if err != nil && !errors.Is(err, errNoJournal) {
		return Journal{}, err
	}
	if r, ok := removalOf(plan.Command); ok && !plan.Force {
		return Journal{}, fmt.Errorf("the command only takes a device away: %s. A shell that reads && or ; ends guard's command there. "+
			"To bring the device back under guard: %s; --force runs the command as it is", r.line, r.suggestion())
	}
	if plan.Path, err = findProgram(plan.Command[0]); err != nil {
		return Journal{}, err
	}
	if plan.Via, err = g.chooseVia(plan.Via); err != nil {
		return Journal{}, err
	}
	if plan.Stop, err = chooseUnits(ctx, plan); err != nil {
		return Journal{}, err
	}
	if g.journal, err = newJournal(plan); err != nil {
		return Journal{}, err
	}
	if err := g.openLog(os.O_TRUNC); err != nil {
		return Journal{}, err
	}
	defer g.close()
	for _, line := range plan.lines(time.Now(), logPath(g.dir)) {
		g.print(line, !g.Quiet)
	}
	return g.runSteps(ctx)
}

// Finish finishes the work of a killed guard. It returns an error if no guard has run, or if the guard is alive.
// For a guard that has already finished, it returns the journal. With an ID, it finishes only that guard.
func Finish(ctx context.Context, id string, opts Options) (Journal, error) {
	g, unlock, err := openGuard(opts)
	if err != nil {
		return Journal{}, err
	}
	defer unlock()
	if g.journal, err = load(g.dir); err != nil {
		return Journal{}, err
	}
	if id != "" && g.journal.ID != id {
		return g.journal, nil
	}
	if !g.journal.Finished.IsZero() {
		if id == "" { // A timer usually finds a finished guard.
			_, _ = fmt.Fprintf(g.Err, "there is nothing to finish: the last guard has ended with exit status %d: relink guard --follow shows its log\n", g.journal.Status)
		}
		return g.journal, nil
	}
	g.Store = checkpoint.OpenStore(g.journal.Plan.CheckpointDir)
	if err := g.openLog(os.O_APPEND); err != nil {
		return Journal{}, err
	}
	defer g.close()
	g.journal.Resumed = true
	if g.journal.Abandoned == "" && !g.journal.isBegun(RunCommand) {
		g.journal.Abandoned = "the guard was killed before the command was run"
	}
	g.logf("the guard was killed at the step %q: this finishes its work", g.journal.current().Step)
	return g.runSteps(ctx)
}

// openGuard takes the lock that all guards share. Child processes do not inherit it.
func openGuard(opts Options) (g *guard, unlock func(), err error) {
	g = &guard{Options: opts, dir: Dir(), signals: make(chan os.Signal, 8)}
	if err := os.MkdirAll(g.dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("guard's directory: %w", err)
	}
	lock, err := os.OpenFile(lockPath(g.dir), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, fmt.Errorf("guard's lock: %w", err)
	}
	// LoadView holds the lock for a moment.
	short, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := flock.Lock(short, lock, flock.Exclusive); err != nil {
		return nil, nil, fmt.Errorf("another guard is under way: %w: relink guard --follow shows it", err)
	}
	signal.Ignore(syscall.SIGHUP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGTSTP)
	// SIGQUIT is for people who find that ^C takes too long. Without this it would end the guard in the middle of its
	// work.
	signal.Notify(g.signals, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM)
	// Without this, a write to a pipe without a reader would end this process. The command gets the default behaviour.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return g, func() {
		signal.Stop(g.signals)
		_ = lock.Close()
	}, nil
}

func lockPath(dir string) string { return filepath.Join(dir, "lock") }
func logPath(dir string) string  { return filepath.Join(dir, "log") }

func newJournal(plan Plan) (Journal, error) {
	bootID, err := boot.ID()
	if err != nil {
		return Journal{}, err
	}
	return Journal{Version: journalVersion, ID: rand.Text(), BootID: bootID, Plan: plan, StartedAt: time.Now().UTC()}, nil
}

// chooseUnits returns the full names of the units to stop: those that the operator named, or the kubelet's if there is
// one. RKE2 installs the units of both of its roles, of which one runs. If all pods are on another uplink during the command, no unit has to stop: the kubelet sees no pod without its
// network. Then an upgrade can also take longer than Kubernetes waits for a kubelet.
func chooseUnits(ctx context.Context, plan Plan) (units []string, err error) {
	if len(plan.Via) > 0 && !plan.Force && len(plan.Stop) == 0 {
		return nil, nil
	}
	if len(plan.Stop) == 0 {
		return kubeletUnits(ctx)
	}
	for _, unit := range plan.Stop {
		full, err := fullName(unit)
		if err != nil {
			return nil, err
		}
		if !systemd.Running() {
			return nil, fmt.Errorf("invalid --stop %q: %w: stop it yourself, and leave --stop out", unit, systemd.ErrNotRunning)
		}
		ok, err := isLoaded(ctx, full)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, fmt.Errorf("invalid --stop %q: systemd knows no such unit: systemctl list-units shows those that run", unit)
		}
		units = append(units, full)
	}
	return units, nil
}

// kubeletUnits returns the units of the kubelet that run, or else one that systemd knows.
func kubeletUnits(ctx context.Context) (running []string, err error) {
	var loaded []string
	for _, unit := range Kubelets {
		ok, err := isLoaded(ctx, unit)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		loaded = append(loaded, unit)
		if ok, err = isActive(ctx, unit); err != nil {
			return nil, err
		} else if ok {
			running = append(running, unit)
		}
	}
	if len(running) == 0 {
		return loaded[:min(len(loaded), 1)], nil
	}
	return running, nil
}

// interruptReason says why the command is not run.
const interruptReason = "it was interrupted"

// runSteps does one step after the other, until none is left.
func (g *guard) runSteps(ctx context.Context) (Journal, error) {
	end, err := g.Store.BeginGuard()
	if err != nil {
		g.notef("%v: the plugins may report the missing master meanwhile", err)
	} else {
		defer end()
	}
	// An interrupt must not stop the steps that put everything back.
	uncancelled := context.WithoutCancel(ctx)
	for {
		if g.interrupted(ctx) && g.journal.Abandoned == "" && !g.journal.isBegun(RunCommand) {
			g.journal.Abandoned = interruptReason
		}
		step, _ := Next(g.journal)
		if step == "" {
			return g.journal, nil
		}
		uptime, _ := boot.Uptime() // CLOCK_BOOTTIME is there since Linux 2.6.39.
		g.journal.begin(step, time.Now().UTC(), uptime)
		if err := g.journal.save(g.dir); err != nil && slices.Contains(openingSteps, step) {
			// Without the journal, nobody could finish the work.
			g.journal.Steps, g.journal.Abandoned = g.journal.Steps[:len(g.journal.Steps)-1], err.Error()
			continue
		} else if err != nil {
			g.notef("%v", err)
		}
		failpoint.Here("guard:", string(step))
		if step == RunCommand && g.interrupted(ctx) {
			g.journal.Steps, g.journal.Abandoned = g.journal.Steps[:len(g.journal.Steps)-1], interruptReason
			continue
		}
		isOpening, stepCtx := slices.Contains(openingSteps, step), uncancelled
		if isOpening {
			stepCtx = ctx
		}
		if err := g.runStep(stepCtx, step); err != nil {
			switch {
			case step == RunCommand:
				g.notef("%v", err)
			case isOpening && !g.journal.isBegun(RunCommand):
				g.journal.Abandoned = printable.Joined(err)
			default:
				g.troublef("%s", printable.Joined(err))
			}
		}
		g.journal.end(step, time.Now().UTC())
		if step == Report {
			if err := g.journal.save(g.dir); err != nil {
				g.logf("%v", err)
			}
		}
	}
}

// interrupted says whether somebody interrupts the guard before the command runs.
func (g *guard) interrupted(ctx context.Context) bool {
	select {
	case <-g.signals:
		return true
	default:
		return ctx.Err() != nil
	}
}

// runStep carries out one step. Each step can be done twice.
func (g *guard) runStep(ctx context.Context, step Step) error {
	carryOut := map[Step]func(context.Context) error{
		Check: g.check, Capture: g.capture, PauseAgent: g.pauseAgent, CheckMove: g.checkMove, NoteUnits: g.noteUnits, ArmRestart: g.armRestart,
		MovePods: g.movePods, StopUnits: g.stopUnits, RunCommand: g.runCommand,
		AwaitCommand: g.awaitCommand, Restore: g.restore, MoveBack: g.moveBack, AskGateways: g.verify, StartUnits: g.startUnits,
		ResumeAgent: g.resumeAgent, DisarmRestart: g.disarmRestart, Report: g.report,
	}
	return carryOut[step](ctx)
}

// activeUnits returns the names of the units that the guard found running.
func (j Journal) activeUnits() (units []string) {
	for _, u := range j.Units {
		if u.Active {
			units = append(units, u.Name)
		}
	}
	return units
}

func joinUnits(units []string) string { return strings.Join(units, " ") }
