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
	// Out gets the log. The guard's work does not wait for it.
	Out io.Writer
}

// guard is a running guard.
type guard struct {
	Options
	dir     string
	agent   control.Client
	log     *os.File
	signals chan os.Signal
	journal Journal
	// notes are the lines that the report repeats.
	notes []string
	// troubles are what the current step did not bring back.
	troubles []trouble
}

// Run carries out the plan, and returns the journal at the end. It returns an error if it did nothing. While it
// runs, SIGHUP does nothing. SIGINT, SIGQUIT and SIGTERM end the command, and Run puts everything back.
func Run(ctx context.Context, plan Plan, opts Options) (Journal, error) {
	if !systemd.Running() {
		return Journal{}, fmt.Errorf("%w, and guard needs it: stop the kubelet yourself, run the command, and type relink restore", systemd.ErrNotRunning)
	}
	g := &guard{Options: opts, dir: Dir()}
	ctx, unlock, err := g.begin(ctx)
	if err != nil {
		return Journal{}, err
	}
	defer unlock()
	if last, err := load(g.dir); err == nil && last.Finished.IsZero() {
		return Journal{}, fmt.Errorf("a guard was killed at the step %q: run relink guard --resume first", last.current().Step)
	} else if err != nil && !errors.Is(err, errNoJournal) {
		return Journal{}, err
	}
	if undo := undoOf(plan.Command); undo != "" && !plan.Force {
		line := strings.Join(plan.Command, " ")
		return Journal{}, fmt.Errorf("the command only takes a device away: %s. A shell that reads && or ; ends guard's command there. "+
			"To bring the device back under guard: relink guard -- sh -c '%s && %s'; --force runs the command as it is", line, line, undo)
	}
	if err := findProgram(plan.Command[0]); err != nil {
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
	if err := errors.Join(os.MkdirAll(g.dir, 0o700), g.saveEnvironment(), g.journal.save(g.dir)); err != nil {
		return Journal{}, fmt.Errorf("guard's directory: %w", err)
	}
	return g.runSteps(ctx, unlock)
}

// Finish finishes the work of a killed guard. It returns an error if no guard has run, or if the guard is alive.
// For a guard that has already finished, it returns the journal.
func Finish(ctx context.Context, opts Options) (Journal, error) {
	g := &guard{Options: opts, dir: Dir()}
	var err error
	if g.journal, err = load(g.dir); err != nil {
		return Journal{}, err
	}
	g.Store = checkpoint.OpenStore(g.journal.Plan.CheckpointDir)
	ctx, unlock, err := g.begin(ctx)
	if err != nil {
		return Journal{}, err
	}
	defer unlock()
	if g.journal, err = load(g.dir); err != nil {
		return Journal{}, err
	}
	if !g.journal.Finished.IsZero() {
		_, _ = fmt.Fprintf(g.Out, "there is nothing to finish: the last guard has ended with exit status %d: relink guard --follow shows its log\n", g.journal.Status)
		return g.journal, nil
	}
	g.journal.Resumed = true
	if g.journal.Abandoned == "" && !g.journal.isBegun(RunCommand) {
		g.journal.Abandoned = killedBefore
	}
	return g.runSteps(ctx, unlock)
}

// begin excludes other guards until unlock is called, and takes the signals that would end this one. An interrupt is for the command, and
// ends the context, which is that of the steps before the command. Child processes do not inherit the lock.
func (g *guard) begin(ctx context.Context) (_ context.Context, unlock func(), err error) {
	unlock, err = g.Store.BeginGuard()
	if errors.Is(err, flock.ErrBusy) {
		return nil, nil, fmt.Errorf("another guard is under way: %w: relink guard --follow shows it", err)
	} else if err != nil {
		return nil, nil, err
	}
	// A terminal that dies or hangs must not end or stop the guard, and a reader that ends must not either.
	signal.Ignore(syscall.SIGHUP, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGTSTP, syscall.SIGPIPE)
	// SIGQUIT is for people who find that ^C takes too long. Without this it would end the guard in the middle of its
	// work.
	interrupts := []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}
	g.signals = make(chan os.Signal, 8)
	signal.Notify(g.signals, interrupts...)
	ctx, _ = signal.NotifyContext(ctx, interrupts...) // Until the end of the process.
	return ctx, unlock, nil
}

func logPath(dir string) string { return filepath.Join(dir, "log") }

func newJournal(plan Plan) (Journal, error) {
	bootID, err := boot.ID()
	return Journal{Version: journalVersion, ID: rand.Text(), BootID: bootID, Plan: plan, StartedAt: time.Now().UTC()}, err
}

// killedBefore is why the command is not run.
const killedBefore = "the guard was killed before the command was run"

// readerPatience is how long the guard waits at its end for whoever reads Out.
const readerPatience = time.Second

// runSteps does one step after the other, until none is left. It shows the log meanwhile.
func (g *guard) runSteps(ctx context.Context, unlock func()) (Journal, error) {
	if err := g.openLog(); err != nil {
		return Journal{}, err
	}
	defer func() { _ = g.log.Close() }() // What could be written was shown.
	// An interrupt must not stop the steps that put everything back.
	uncancelled := context.WithoutCancel(ctx)
	followed := make(chan struct{})
	go func() {
		_, _ = Follow(uncancelled, g.Out) // If the terminal is dead, the log still has the text.
		close(followed)
	}()
	defer func() {
		unlock() // This ends Follow.
		select {
		case <-followed:
		case <-time.After(readerPatience):
		}
	}()
	if g.journal.Resumed {
		g.logf("the guard was killed at the step %q: this finishes its work", g.journal.current().Step)
	} else {
		for _, line := range g.journal.Plan.lines(time.Now(), logPath(g.dir)) {
			g.write(line)
		}
	}
	for {
		rule, opening := next(g.journal)
		if rule.step == "" {
			return g.journal, nil
		}
		uptime, _ := boot.Uptime() // CLOCK_BOOTTIME is there since Linux 2.6.39.
		g.journal.begin(rule.step, time.Now().UTC(), uptime)
		err := g.journal.save(g.dir)
		failpoint.Here("guard:", string(rule.step))
		if opening && err == nil {
			err = context.Cause(ctx)
		}
		if opening && err != nil { // Without the journal, nobody could finish the work.
			g.journal.Steps, g.journal.Abandoned = g.journal.Steps[:len(g.journal.Steps)-1], err.Error()
			continue
		} else if err != nil {
			g.notef("%v", err)
		}
		stepCtx := uncancelled
		if opening {
			stepCtx = ctx
		}
		if err := rule.run(g, stepCtx); err != nil {
			switch {
			case rule.step == RunCommand:
				g.notef("%v", err)
			case opening:
				g.journal.Abandoned = printable.Joined(err)
			default:
				g.notBack("", printable.Joined(err))
			}
		}
		g.journal.Troubles, g.troubles = append(g.journal.Troubles, foldTroubles(g.troubles)...), nil
		g.journal.end(rule.step, time.Now().UTC())
		if rule.step == Report {
			if err := g.journal.save(g.dir); err != nil {
				g.logf("%v", err)
			}
		}
	}
}

// openLog opens the log, which begins anew unless the guard finishes another one's work.
func (g *guard) openLog() (err error) {
	flags := os.O_WRONLY | os.O_CREATE | os.O_APPEND
	if !g.journal.Resumed {
		flags |= os.O_TRUNC
	}
	if g.log, err = os.OpenFile(logPath(g.dir), flags, 0o600); err != nil {
		err = fmt.Errorf("guard's log: %w", err)
	}
	return err
}

// logf writes one line, with the time.
func (g *guard) logf(format string, args ...any) {
	g.write(time.Now().Format("15:04:05 ") + fmt.Sprintf(format, args...))
}

func (g *guard) write(line string) {
	_, _ = g.log.WriteString(printable.Line(line) + "\n") // A full disk must not keep the guard from its work.
}

// notef writes one line, and repeats it in the report, once.
func (g *guard) notef(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if g.logf("%s", text); !slices.Contains(g.notes, text) {
		g.notes = append(g.notes, text)
	}
}
