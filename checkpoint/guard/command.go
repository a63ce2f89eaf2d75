package guard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/term"
)

// findProgram returns the file of the program. Its error is an *ExitError with StatusNotFound or StatusCannotRun.
func findProgram(program string) (string, error) {
	path, err := exec.LookPath(program)
	switch {
	case err == nil:
		path, err = filepath.Abs(path)
		return path, err
	case errors.Is(err, os.ErrPermission):
		return "", &ExitError{StatusCannotRun, fmt.Errorf("the command %s cannot be run: %w", program, err)}
	}
	return "", &ExitError{StatusNotFound, fmt.Errorf("the command %s was not found: give a program, or sh -c '...' for a line of the shell", program)}
}

// runCommand runs the command until its end or its limit, and notes how it ended.
func (g *guard) runCommand(context.Context) error {
	cmd := exec.Command(g.journal.Plan.Path, g.journal.Plan.Command[1:]...)
	cmd.Args[0] = g.journal.Plan.Command[0]
	cmd.Env = append(os.Environ(), markEnv+"="+g.journal.ID)
	flow, err := g.attachStreams(cmd)
	if err == nil {
		err = cmd.Start()
		flow.started()
	}
	if err != nil {
		g.journal.Run.NotStarted = err.Error()
		return fmt.Errorf("the command could not be started: %w", err)
	}
	g.journal.Run.PID = cmd.Process.Pid
	if err := g.journal.save(g.dir); err != nil {
		g.logf("%v", err) // The command already runs: go on.
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // ProcessState has how it ended.
		close(ended)
	}()
	if !g.superviseCommand(ended) {
		flow.end()
		// A process inside a driver does not end before it leaves the driver. The pods must not wait for that.
		g.journal.Run.Endless = true
		g.troublef("the command does not end, not even by SIGKILL: %s", readProcess(g.journal.Run.PID))
		return nil
	}
	flow.end()
	g.recordExit(cmd.ProcessState)
	return nil
}

// pollInterval is how often superviseCommand looks for the processes of a command that another guard has started.
const pollInterval = 50 * time.Millisecond

// superviseCommand waits for the end of the command. It ends the command at the limit, or when somebody interrupts. It returns
// false if the command lives on even after SIGKILL. ended is nil for a command that another guard has started: nobody tells
// its end.
func (g *guard) superviseCommand(ended <-chan struct{}) bool {
	run := &g.journal.Run
	ladder := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL}
	var poll, later <-chan time.Time
	if ended == nil {
		ladder = ladder[1:]
		poll = time.Tick(pollInterval)
	}
	// climb sends the next signal, and sets the timer for the one after it. After the last signal it only waits.
	climb := func(withoutInterrupt bool) {
		if withoutInterrupt && len(ladder) == 3 {
			ladder = ladder[1:]
		}
		if len(ladder) > 0 {
			g.signalCommand(ladder[0], ended == nil)
			ladder, later = ladder[1:], time.After(g.journal.Plan.KillAfter)
		}
	}
	for limit := time.After(g.journal.Plan.Limit - g.journal.sinceBegun(RunCommand)); ; {
		if ended == nil && len(g.livingProcesses()) == 0 {
			return true
		}
		select {
		case <-ended:
			return true
		case <-poll:
		case <-limit:
			run.LimitPassed = true
			g.logf("the command has run for %s: guard ends it", g.journal.Plan.Limit)
			climb(true)
		case s := <-g.signals:
			run.Interrupted = true
			g.logf("%s: guard ends the command, and then puts everything back", s)
			climb(s == syscall.SIGTERM)
		case <-later:
			if len(ladder) == 0 {
				return false
			}
			climb(false)
		}
	}
}

// signalCommand sends the signal to the command's process group, or to the processes of a command that another guard has
// started.
func (g *guard) signalCommand(s syscall.Signal, foreign bool) {
	g.logf("the command gets %s", signalNames[s])
	if !foreign {
		_ = syscall.Kill(-g.journal.Run.PID, s)
		return
	}
	for _, p := range g.livingProcesses() {
		_ = syscall.Kill(p.pid, s)
	}
}

// signalNames are those of the signals that end a command.
var signalNames = map[syscall.Signal]string{syscall.SIGINT: "SIGINT", syscall.SIGTERM: "SIGTERM", syscall.SIGKILL: "SIGKILL"}

// recordExit notes how the command ended, and what it leaves behind.
func (g *guard) recordExit(state *os.ProcessState) {
	r := &g.journal.Run
	r.ExitKnown = true
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		r.Signal = int(status.Signal())
	} else {
		r.Status = state.ExitCode()
	}
	if r.LimitPassed { // Kill processes that ignore TERM, even if the first process has ended.
		for _, p := range processesOfCommand(g.journal.ID, r.PID) {
			g.logf("SIGKILL for %s", p)
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
		awaitProcesses(g.journal.ID, r.PID, time.Second)
	}
	g.recordRemaining(r.PID)
	g.logf("the command %s", r.text())
}

// recordRemaining notes the processes of the command that still live.
func (g *guard) recordRemaining(session int) {
	g.journal.Run.Remaining = nil
	for _, p := range processesOfCommand(g.journal.ID, session) {
		g.journal.Run.Remaining = append(g.journal.Run.Remaining, p.String())
	}
}

// awaitProcesses waits until no process of the command lives, up to the limit.
func awaitProcesses(id string, session int, limit time.Duration) {
	for deadline := time.Now().Add(limit); len(processesOfCommand(id, session)) > 0 && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
}

// text says how the command ended.
func (r CommandResult) text() string {
	switch {
	case r.NotStarted != "":
		return "could not be started: " + r.NotStarted
	case r.LimitPassed && r.Endless:
		return "has passed its limit, and does not end"
	case r.Endless:
		return "does not end"
	case r.LimitPassed:
		return "was ended at its limit"
	case !r.ExitKnown:
		return "has ended, and its exit status is not known"
	case r.Signal > 0:
		return "was ended by signal " + fmt.Sprint(r.Signal) + textIf(r.Interrupted, " after an interrupt")
	}
	return fmt.Sprintf("has ended with exit status %d", r.Status)
}

// streams carries the command's input and output.
type streams struct {
	// started closes files that only the command needs. end waits for the last output.
	started, end func()
}

// attachStreams gives the command a session of its own. If the guard has a terminal, the command gets a terminal of its own,
// too. Otherwise the command writes to a file, so that it can write whatever happens to the guard.
func (g *guard) attachStreams(cmd *exec.Cmd) (streams, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if g.Stdin != nil && term.IsTerminal(int(g.Stdin.Fd())) && g.TerminalOut != nil {
		return g.attachTerminal(cmd)
	}
	path := filepath.Join(g.dir, "output")
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return streams{}, err
	}
	reader, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		_ = out.Close()
		return streams{}, err
	}
	if g.Stdin != nil && !term.IsTerminal(int(g.Stdin.Fd())) {
		cmd.Stdin = g.Stdin
	}
	cmd.Stdout, cmd.Stderr = out, out
	stop, copied := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(copied)
		g.tail(reader, stop)
		_ = reader.Close()
	}()
	return streams{
		started: func() { _ = out.Close() },
		end: func() {
			close(stop)
			<-copied
		},
	}, nil
}

// tailInterval is how often tail looks at the file with the command's output.
const tailInterval = 50 * time.Millisecond

// tail shows what the command writes to the file, until stop is closed and everything is read.
func (g *guard) tail(output *os.File, stop <-chan struct{}) {
	buf := make([]byte, 32<<10)
	read, freed := int64(0), int64(0)
	for last := false; ; {
		n, _ := output.Read(buf) // More may come later at the end of the file.
		if n > 0 {
			g.writeOutput(buf[:n])
			if read += int64(n); read-freed >= releaseChunk {
				releaseBytes(output, read)
				freed = read
			}
			continue
		}
		if last {
			return
		}
		select {
		case <-stop:
			last = true
		case <-time.After(tailInterval):
		}
	}
}

// releaseChunk is how many bytes of the file tail reads before it frees them.
const releaseChunk = 1 << 20

// releaseBytes gives the file system the first bytes of the file back. The command writes at the file's end, and does not notice. A
// file system that cannot do this keeps them.
func releaseBytes(f *os.File, bytes int64) {
	const keepSize, punchHole = 1, 2 // Of linux/falloc.h.
	_ = syscall.Fallocate(int(f.Fd()), keepSize|punchHole, 0, bytes)
}

// attachTerminal gives the command a terminal of its own, in raw mode. The guard's own terminal does the rest, while it
// lives.
func (g *guard) attachTerminal(cmd *exec.Cmd) (streams, error) {
	ptmx, tty, err := pty.Open()
	if err != nil {
		return streams{}, err
	}
	if _, err := term.MakeRaw(int(tty.Fd())); err != nil {
		return streams{}, errors.Join(err, ptmx.Close(), tty.Close())
	}
	_ = pty.InheritSize(g.TerminalOut, tty) // Without a size the command uses its default.
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr.Setctty = true
	go func() { _, _ = io.Copy(ptmx, g.Stdin) }()
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		buf := make([]byte, 32<<10)
		for {
			n, err := ptmx.Read(buf)
			g.writeOutput(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	return streams{
		started: func() { _ = tty.Close() },
		end: func() {
			select { // A process that still lives keeps the terminal open.
			case <-copied:
			case <-time.After(readerPatience):
			}
			_ = ptmx.SetReadDeadline(time.Now())
		},
	}, nil
}
