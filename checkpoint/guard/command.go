package guard

import (
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

// lookUp returns the file of the program. Its error is an *ExitError with StatusNotFound or StatusCannotRun.
func lookUp(program string) (string, error) {
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
func (g *guard) runCommand() error {
	cmd := exec.Command(g.j.Plan.Path, g.j.Plan.Command[1:]...)
	cmd.Args[0] = g.j.Plan.Command[0]
	cmd.Env = append(os.Environ(), markEnv+"="+g.j.ID)
	flow, err := g.attach(cmd)
	if err == nil {
		err = cmd.Start()
		flow.started()
	}
	if err != nil {
		g.j.Run.NotStarted = err.Error()
		return fmt.Errorf("the command could not be started: %w", err)
	}
	g.j.Run.PID = cmd.Process.Pid
	if err := g.j.save(g.dir); err != nil {
		g.say("%v", err) // The command already runs: go on.
	}
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // ProcessState has how it ended.
		close(ended)
	}()
	if !g.attend(ended) {
		flow.end()
		// A process inside a driver does not end before it leaves the driver. The pods must not wait for that.
		g.j.Run.Endless = true
		g.trouble("the command does not end, not even by SIGKILL: %s", lookAt(g.j.Run.PID))
		return nil
	}
	flow.end()
	g.noteEnd(cmd.ProcessState)
	return nil
}

// attend waits for the end of the command. It ends the command at the limit, or when somebody interrupts. It returns
// false if the command lives on even after SIGKILL.
func (g *guard) attend(ended <-chan struct{}) bool {
	limit := time.NewTimer(g.j.Plan.Limit)
	defer limit.Stop()
	var later <-chan time.Time
	ladder := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL}
	// climb sends the next signal, and sets the timer for the one after it. After the last signal it only waits.
	climb := func() {
		if len(ladder) > 0 {
			g.signal(ladder[0])
			ladder, later = ladder[1:], time.After(g.j.Plan.KillAfter)
		}
	}
	for {
		select {
		case <-ended:
			return true
		case <-limit.C:
			g.j.Run.LimitPassed = true
			g.say("the command has run for %s: guard ends it", g.j.Plan.Limit)
			if len(ladder) == 3 {
				ladder = ladder[1:]
			}
			climb()
		case s := <-g.signals:
			g.j.Run.Interrupted = true
			g.say("%s: guard ends the command, and then puts everything back", s)
			if s == syscall.SIGTERM && len(ladder) == 3 {
				ladder = ladder[1:]
			}
			climb()
		case <-later:
			if len(ladder) == 0 {
				return false
			}
			climb()
		}
	}
}

// signal sends the signal to the command's process group.
func (g *guard) signal(s syscall.Signal) {
	g.say("the command gets %s", signalName(s))
	_ = syscall.Kill(-g.j.Run.PID, s)
}

func signalName(s syscall.Signal) string {
	switch s {
	case syscall.SIGINT:
		return "SIGINT"
	case syscall.SIGTERM:
		return "SIGTERM"
	case syscall.SIGKILL:
		return "SIGKILL"
	}
	return s.String()
}

// noteEnd notes how the command ended, and what it leaves behind.
func (g *guard) noteEnd(state *os.ProcessState) {
	r := &g.j.Run
	r.Known = true
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		r.Signal = int(status.Signal())
	} else {
		r.Status = state.ExitCode()
	}
	if r.LimitPassed { // Kill processes that ignore TERM, even if the first process has ended.
		for _, p := range ofCommand(g.j.ID, r.PID) {
			g.say("SIGKILL for %s", p)
			_ = syscall.Kill(p.pid, syscall.SIGKILL)
		}
		waitGone(g.j.ID, r.PID, time.Second)
	}
	g.noteLeft(r.PID)
	g.say("the command %s", r.text())
}

// noteLeft notes the processes of the command that still live.
func (g *guard) noteLeft(session int) {
	g.j.Run.Left = nil
	for _, p := range ofCommand(g.j.ID, session) {
		g.j.Run.Left = append(g.j.Run.Left, p.String())
	}
}

// waitGone waits until no process of the command lives, up to the limit.
func waitGone(id string, session int, limit time.Duration) {
	for deadline := time.Now().Add(limit); len(ofCommand(id, session)) > 0 && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
	}
}

// text says how the command ended.
func (r Ran) text() string {
	switch {
	case r.NotStarted != "":
		return "could not be started: " + r.NotStarted
	case r.LimitPassed && r.Endless:
		return "has passed its limit, and does not end"
	case r.Endless:
		return "does not end"
	case r.LimitPassed:
		return "was ended at its limit"
	case !r.Known:
		return "has ended, and its exit status is not known"
	case r.Signal > 0:
		return "was ended by signal " + fmt.Sprint(r.Signal) + when(r.Interrupted, " after an interrupt")
	}
	return fmt.Sprintf("has ended with exit status %d", r.Status)
}

// flow carries the command's input and output.
type flow struct {
	// started closes files that only the command needs. end waits for the last output.
	started, end func()
}

// attach gives the command a session of its own. If the guard has a terminal, the command gets a terminal of its own,
// too. Otherwise the command writes to a file, so that it can write whatever happens to the guard.
func (g *guard) attach(cmd *exec.Cmd) (flow, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if g.Stdin != nil && term.IsTerminal(int(g.Stdin.Fd())) && g.TerminalOut != nil {
		return g.attachTerminal(cmd)
	}
	path := filepath.Join(g.dir, "output")
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return flow{}, err
	}
	in, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		_ = out.Close()
		return flow{}, err
	}
	if g.Stdin != nil && !term.IsTerminal(int(g.Stdin.Fd())) {
		cmd.Stdin = g.Stdin
	}
	cmd.Stdout, cmd.Stderr = out, out
	stop, copied := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(copied)
		g.tail(in, stop)
		_ = in.Close()
	}()
	return flow{
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
func (g *guard) tail(in *os.File, stop <-chan struct{}) {
	buf := make([]byte, 32<<10)
	read, freed := int64(0), int64(0)
	for last := false; ; {
		n, _ := in.Read(buf) // More may come later at the end of the file.
		if n > 0 {
			g.show(buf[:n])
			if read += int64(n); read-freed >= freedAtOnce {
				free(in, read)
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

// freedAtOnce is how many bytes of the file tail reads before it frees them.
const freedAtOnce = 1 << 20

// free gives the file system the first bytes of the file back. The command writes at the file's end, and does not notice. A
// file system that cannot do this keeps them.
func free(f *os.File, bytes int64) {
	const keepSize, punchHole = 1, 2 // Of linux/falloc.h.
	_ = syscall.Fallocate(int(f.Fd()), keepSize|punchHole, 0, bytes)
}

// attachTerminal gives the command a terminal of its own, in raw mode. The guard's own terminal does the rest, while it
// lives.
func (g *guard) attachTerminal(cmd *exec.Cmd) (flow, error) {
	here, there, err := pty.Open()
	if err != nil {
		return flow{}, err
	}
	if _, err := term.MakeRaw(int(there.Fd())); err != nil {
		return flow{}, errors.Join(err, here.Close(), there.Close())
	}
	_ = pty.InheritSize(g.TerminalOut, there) // Without a size the command uses its default.
	cmd.Stdin, cmd.Stdout, cmd.Stderr = there, there, there
	cmd.SysProcAttr.Setctty = true
	go func() { _, _ = io.Copy(here, g.Stdin) }()
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		buf := make([]byte, 32<<10)
		for {
			n, err := here.Read(buf)
			g.show(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	return flow{
		started: func() { _ = there.Close() },
		end: func() {
			select { // A process that still lives keeps the terminal open.
			case <-copied:
			case <-time.After(readerPatience):
			}
			_ = here.SetReadDeadline(time.Now())
		},
	}, nil
}
