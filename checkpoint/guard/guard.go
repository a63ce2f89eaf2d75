package guard

import (
	"context"
	"crypto/rand"
	"encoding/hex"
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
)

// Options of a guard.
type Options struct {
	Store *checkpoint.Store
	// CacheDir is where the CNI caches are (cnicache.DefaultDir). Empty means none.
	CacheDir string
	// Stdin is for the command. It may be nil. The command's output goes to Out. The guard's own lines go to Err.
	Stdin    *os.File
	Out, Err io.Writer
	// TerminalOut is the terminal that Out writes to. It is nil if Out is not a terminal.
	TerminalOut *os.File
	// Quiet writes only problems to Err. The log has everything.
	Quiet bool
}

// ExitError is an error with its own exit status.
type ExitError struct {
	Status int
	err    error
}

func (e *ExitError) Error() string { return e.err.Error() }
func (e *ExitError) Unwrap() error { return e.err }

// refused returns an error that says why the command is not run.
func refused(format string, args ...any) error {
	return &ExitError{StatusNotRun, fmt.Errorf(format, args...)}
}

// guard is a running guard.
type guard struct {
	Options
	dir     string
	units   manager
	agent   control.Client
	console *console
	log     *os.File
	// kept is how many bytes of the command's output are in the log. cut says that the log does not have the rest.
	kept    int
	cut     bool
	signals chan os.Signal
	j       Journal
	// notes are the lines that the report repeats.
	notes []string
}

// Run carries out the plan, and returns the journal at the end. It returns an *ExitError if it did nothing. While it
// runs, SIGHUP does nothing. SIGINT, SIGQUIT and SIGTERM end the command, and Run puts everything back.
func Run(ctx context.Context, plan Plan, opts Options) (Journal, error) {
	g, unlock, err := begin(opts)
	if err != nil {
		return Journal{}, err
	}
	defer unlock()
	if last, err := load(g.dir); err == nil && last.Finished.IsZero() {
		return Journal{}, refused("a guard was killed at the step %q: run relink guard --resume first", last.at().Step)
	} else if err != nil && !errors.Is(err, errNoJournal) {
		return Journal{}, &ExitError{StatusNotRun, err}
	}
	if r, ok := removalOf(plan.Command); ok && !plan.Force {
		return Journal{}, refused("the command only takes a device away: %s. A shell that reads && or ; ends guard's command there. "+
			"To bring the device back under guard: %s; --force runs the command as it is", r.line, r.spelling())
	}
	if plan.Path, err = lookUp(plan.Command[0]); err != nil {
		return Journal{}, err
	}
	if plan.Via, err = g.chooseVia(plan.Via); err != nil {
		return Journal{}, &ExitError{StatusNotRun, err}
	}
	if plan.Stop, err = g.chooseUnits(ctx, plan); err != nil {
		return Journal{}, &ExitError{StatusNotRun, err}
	}
	if g.j, err = newJournal(plan); err != nil {
		return Journal{}, &ExitError{StatusNotRun, err}
	}
	if err := g.openLog(os.O_TRUNC); err != nil {
		return Journal{}, &ExitError{StatusNotRun, err}
	}
	defer g.close()
	for _, line := range plan.lines(time.Now(), logPath(g.dir)) {
		g.print(line, !g.Quiet)
	}
	return g.work(ctx)
}

// Finish finishes the work of a killed guard. It returns an *ExitError if no guard has run, or if the guard is alive.
// For a guard that has already finished, it returns the journal. With an ID, it finishes only that guard.
func Finish(ctx context.Context, id string, opts Options) (Journal, error) {
	g, unlock, err := begin(opts)
	if err != nil {
		return Journal{}, err
	}
	defer unlock()
	if g.j, err = load(g.dir); err != nil {
		return Journal{}, &ExitError{StatusNotRun, err}
	}
	if id != "" && g.j.ID != id {
		return g.j, nil
	}
	if !g.j.Finished.IsZero() {
		if id == "" { // A timer usually finds a finished guard.
			_, _ = fmt.Fprintf(g.Err, "there is nothing to finish: the last guard has ended with exit status %d: relink guard --follow shows its log\n", g.j.Status)
		}
		return g.j, nil
	}
	g.Store = checkpoint.OpenStore(g.j.Plan.CheckpointDir)
	if err := g.openLog(os.O_APPEND); err != nil {
		return Journal{}, &ExitError{StatusNotRun, err}
	}
	defer g.close()
	g.j.Resumed, g.j.PID = true, os.Getpid()
	if g.j.Abandoned == "" && !g.j.begun(Command) {
		g.j.Abandoned = "the guard was killed before the command was run"
	}
	g.say("the guard was killed at the step %q: this finishes its work", g.j.at().Step)
	return g.work(ctx)
}

// begin takes the lock that all guards share. Child processes do not inherit it.
func begin(opts Options) (g *guard, unlock func(), err error) {
	g = &guard{Options: opts, dir: Dir(), units: managerHere(), signals: make(chan os.Signal, 8)}
	if err := os.MkdirAll(g.dir, 0o700); err != nil {
		return nil, nil, &ExitError{StatusNotRun, fmt.Errorf("guard's directory: %w", err)}
	}
	lock, err := os.OpenFile(lockPath(g.dir), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, &ExitError{StatusNotRun, fmt.Errorf("guard's lock: %w", err)}
	}
	// Look holds the lock for a moment.
	short, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := flock.Lock(short, lock, flock.Exclusive); err != nil {
		return nil, nil, refused("another guard is under way: %w: relink guard --follow shows it", err)
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
	id := make([]byte, 4)
	_, _ = rand.Read(id) // rand.Read never fails.
	return Journal{Version: journalVersion, ID: hex.EncodeToString(id), BootID: bootID, PID: os.Getpid(), Plan: plan, StartedAt: time.Now().UTC()}, nil
}

// chooseUnits returns the full names of the units to stop: those that the operator named, or the kubelet's if there is
// one. RKE2 installs the units of both of its roles, of which one runs. If all pods are on another uplink during the command, no unit has to stop: the kubelet sees no pod without its
// network. Then an upgrade can also take longer than Kubernetes waits for a kubelet.
func (g *guard) chooseUnits(ctx context.Context, plan Plan) (units []string, err error) {
	if len(plan.Via) > 0 && !plan.Force && len(plan.Stop) == 0 {
		return nil, nil
	}
	if len(plan.Stop) == 0 {
		return g.kubelets(ctx)
	}
	for _, unit := range plan.Stop {
		full, err := fullName(unit)
		if err != nil {
			return nil, err
		}
		if _, isNone := g.units.(none); isNone {
			return nil, fmt.Errorf("invalid --stop %q: %w: stop it yourself, and leave --stop out", unit, errNoSystemd)
		}
		ok, err := g.units.knows(ctx, full)
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

// kubelets returns the units of the kubelet that run, or else one that systemd knows.
func (g *guard) kubelets(ctx context.Context) (running []string, err error) {
	var known []string
	for _, unit := range Kubelets {
		ok, err := g.units.knows(ctx, unit)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		known = append(known, unit)
		if ok, err = g.units.runs(ctx, unit); err != nil {
			return nil, err
		} else if ok {
			running = append(running, unit)
		}
	}
	if len(running) == 0 {
		return known[:min(len(known), 1)], nil
	}
	return running, nil
}

// interruptedBefore says why the command is not run.
const interruptedBefore = "it was interrupted"

// work does one step after the other, until none is left.
func (g *guard) work(ctx context.Context) (Journal, error) {
	end, err := g.Store.BeginGuard()
	if err != nil {
		g.note("%v: the plugins may report the missing master meanwhile", err)
	} else {
		defer end()
	}
	// An interrupt must not stop the steps that put everything back.
	whole := context.WithoutCancel(ctx)
	for {
		if g.interrupted(ctx) && g.j.Abandoned == "" && !g.j.begun(Command) {
			g.j.Abandoned = interruptedBefore
		}
		step, _ := Next(g.j)
		if step == "" {
			return g.j, nil
		}
		uptime, _ := boot.Uptime() // CLOCK_BOOTTIME is there since Linux 2.6.39.
		g.j.begin(step, time.Now().UTC(), uptime)
		if err := g.j.save(g.dir); err != nil && slices.Contains(opening, step) {
			// Without the journal, nobody could finish the work.
			g.j.Steps, g.j.Abandoned = g.j.Steps[:len(g.j.Steps)-1], err.Error()
			continue
		} else if err != nil {
			g.note("%v", err)
		}
		failpoint.Here("guard:", string(step))
		if step == Command && g.interrupted(ctx) {
			g.j.Steps, g.j.Abandoned = g.j.Steps[:len(g.j.Steps)-1], interruptedBefore
			continue
		}
		opens, during := slices.Contains(opening, step), whole
		if opens {
			during = ctx
		}
		if err := g.do(during, step); err != nil {
			switch {
			case step == Command:
				g.note("%v", err)
			case opens && !g.j.begun(Command):
				g.j.Abandoned = printable.Joined(err)
			default:
				g.trouble("%s", printable.Joined(err))
			}
		}
		g.j.end(step, time.Now().UTC())
		if step == Report {
			if err := g.j.save(g.dir); err != nil {
				g.say("%v", err)
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

// do carries out one step. Each step can be done twice.
func (g *guard) do(ctx context.Context, step Step) error {
	switch step {
	case Check:
		return g.check(ctx)
	case Capture:
		return g.capture(ctx)
	case Pause:
		return g.pause(ctx)
	case Try:
		return g.tryMove(ctx)
	case Note:
		return g.noteUnits(ctx)
	case Arm:
		return g.arm(ctx)
	case Move:
		return g.move(ctx)
	case Stop:
		return g.stop(ctx)
	case Command:
		return g.runCommand()
	case Await:
		return g.await()
	case Restore:
		return g.restore(ctx)
	case Return:
		return g.moveBack(ctx)
	case Verify:
		return g.verify(ctx)
	case Start:
		return g.start(ctx)
	case Resume:
		return g.resume(ctx)
	case Disarm:
		return g.disarm(ctx)
	case Report:
		g.report()
		return nil
	}
	return fmt.Errorf("no such step: %s", step)
}

// ran returns the names of the units that the guard found running.
func (j Journal) ran() (units []string) {
	for _, u := range j.Units {
		if u.Ran {
			units = append(units, u.Name)
		}
	}
	return units
}

func unitsOf(units []string) string { return strings.Join(units, " ") }
