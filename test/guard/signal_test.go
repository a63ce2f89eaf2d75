package guard

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// After an interrupt at any step, the guard puts everything back. If it comes before the command, the command is not
// run.
func TestSignalsAtEachStep(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	h.runAgent(t)
	steps := stepsOf(t, h)
	ran := slices.Index(steps, "guard: run the command")
	for i, step := range steps {
		t.Run(step, func(t *testing.T) {
			pause := filepath.Join(h.dir, "pause")
			cmd := h.relink(h.guardArgs(reload)...)
			cmd.Env = append(slices.Clone(h.env), "RELINK_FAILPOINT_PAUSE="+step+"#1", "RELINK_FAILPOINT_PAUSE_FILE="+pause)
			var out bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &out
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it stops at the step", func() bool { _, err := os.Stat(pause); return err == nil })
			_ = cmd.Process.Signal(syscall.SIGINT)
			taken := 20 * time.Millisecond
			if i == ran {
				taken = time.Second // This is the last moment for an interrupt. A busy machine delivers a signal late.
			}
			time.Sleep(taken)
			if err := os.Remove(pause); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			want, says := 0, "everything is back"
			if i <= ran {
				want, says = 125, "the command was not run: "
			}
			if got := cmd.ProcessState.ExitCode(); got != want {
				t.Errorf("exit status %d, want %d\n%s", got, want, &out)
			}
			contains(t, out.String(), says)
			h.whole(t, "active")
		})
	}
}

// SIGHUP changes nothing, at whatever moment it comes.
func TestHangups(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	cmd := h.relink(h.guardArgs(reload)...)
	cmd.Env = append(slices.Clone(h.env), "RELINK_FAILPOINT_TRACE="+filepath.Join(h.dir, "trace"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the guard begins", func() bool { return strings.Contains(h.read("trace"), "guard: ") })
	ended := make(chan error)
	go func() { ended <- cmd.Wait() }()
	for hangups := 0; ; hangups++ {
		_ = cmd.Process.Signal(syscall.SIGHUP)
		select {
		case err := <-ended:
			if err != nil || hangups < 10 {
				t.Errorf("after %d hangups: %v\n%s", hangups, err, &out)
			}
			contains(t, out.String(), "everything is back")
			h.whole(t, "active")
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// The command gets the interrupt, and ends in its own way.
func TestAnInterruptIsForTheCommand(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	cmd := h.relink(h.guardArgs(`trap 'echo cleaned up; `+reload+`; exit 7' INT; `+began+`while :; do sleep 0.05; done`, "--kill-after", "20s")...)
	h.begin(t, cmd)
	_ = cmd.Process.Signal(syscall.SIGINT)
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 7 {
		t.Errorf("exit status %d, want 7", got)
	}
	contains(t, h.read("says"), "interrupt: guard ends the command, and then puts everything back", "the command gets SIGINT", "cleaned up", "everything is back")
	if strings.Contains(h.read("says"), "SIGTERM") {
		t.Error("it gets SIGTERM too")
	}
	h.whole(t, "active")

	_ = os.Remove(filepath.Join(h.dir, "units", "began"))
	cmd = h.relink(h.guardArgs(reload + `; trap "" INT TERM; ` + began + `while :; do sleep 0.05; done`)...)
	h.begin(t, cmd)
	_ = cmd.Process.Signal(syscall.SIGQUIT) // By default, Go would end the guard.
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 128+9 {
		t.Errorf("a command that ignores all: exit status %d, want 137", got)
	}
	contains(t, h.read("says"), "the command gets SIGINT", "the command gets SIGTERM", "the command gets SIGKILL", "the command has ended with exit status 137 after an interrupt")
	h.whole(t, "active")
}

func TestTwoGuards(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	first := h.relink(h.guardArgs(began + `while [ ! -e "$UNITS/go" ]; do sleep 0.02; done; ` + reload)...)
	h.begin(t, first)
	for _, args := range [][]string{{"guard", "--", "true"}, {"guard", "--resume"}} {
		out, status := h.status(t, h.relink(args...))
		if status != 125 || !strings.Contains(out, "another guard is under way: lock the guard (") || !strings.Contains(out, "relink guard --follow shows it") {
			t.Errorf("%v: %d, %s", args, status, out)
		}
	}
	out, _ := h.status(t, h.relink("status"))
	contains(t, out, `relink guard is at the step "run the command" for `)
	h.write(t, "units/go", "")
	if err := first.Wait(); err != nil {
		t.Errorf("the first: %v\n%s", err, h.read("says"))
	}
	h.whole(t, "active")
	if out, _ := h.status(t, h.relink("status")); strings.Contains(out, "relink guard") {
		t.Errorf("status afterwards: %s", out)
	}
}

// terminal starts the guard on a terminal of its own, as a login does.
func (h *host) terminal(t *testing.T, cmd *exec.Cmd) *os.File {
	t.Helper()
	here, there, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = there, there, there
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return here
}

// On a terminal, the command gets the interrupt that somebody types. It has no terminal itself, but the user's environment and
// directory.
func TestOnATerminal(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	cmd := h.relink(h.guardArgs(`test -t 0 || test -t 1 && exit 9; printf "%s\n" "at $PWD: $ODD"; `+reload+
		`; trap "echo stopped; exit 5" INT; echo "waiting $((1))"; while :; do sleep 0.05; done`, "--kill-after", "20s")...)
	cmd.Dir, cmd.Env = h.dir, append(slices.Clone(h.env), "ODD=a \"b\" $c `d` \\e\n'f'")
	terminal := h.terminal(t, cmd)
	defer terminal.Close()
	lines := bufio.NewReader(terminal)
	var said strings.Builder
	until := func(want string) {
		t.Helper()
		for {
			line, err := lines.ReadString('\n')
			said.WriteString(strings.ReplaceAll(line, "\r", ""))
			if strings.Contains(line, want) {
				return
			}
			if err != nil {
				t.Fatalf("it never says %s: %v\n%s", want, err, &said)
			}
		}
	}
	until("waiting 1")
	contains(t, said.String(), "at "+h.dir+": a \"b\" $c `d` \\e\n'f'\n")
	_, _ = io.WriteString(terminal, "\x03")
	until("stopped")
	until("exit status 5")
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 5 {
		t.Errorf("exit status %d, want 5", got)
	}
	h.whole(t, "active")
}

// The terminal dies while the command runs, like an SSH session over a NIC that goes. The guard still does everything.
func TestATerminalThatDies(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	cmd := h.relink(h.guardArgs(began + `while [ ! -e "$UNITS/go" ]; do echo still here; sleep 0.02; done; ` + reload + `; echo done with it; exit 4`)...)
	terminal := h.terminal(t, cmd)
	go func() { _, _ = io.Copy(io.Discard, terminal) }()
	eventually(t, "the command runs", func() bool { return h.read("units/began") != "" })
	_ = terminal.Close()
	time.Sleep(100 * time.Millisecond)
	h.write(t, "units/go", "")
	_ = cmd.Wait()
	if got := cmd.ProcessState.ExitCode(); got != 4 {
		t.Errorf("exit status %d, want 4: %v", got, cmd.ProcessState)
	}
	contains(t, h.read("guard/log"), "still here\n", "done with it\n", "the command has ended with exit status 4", "everything is back")
	h.whole(t, "active")
	follow, status := h.status(t, h.relink("guard", "--follow"))
	if status != 4 {
		t.Errorf("follow: %d\n%s", status, follow)
	}
}

// Nobody reads the guard's output: a pipe is full, or a terminal is stopped.
func TestAReaderThatHangs(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd := h.relink(h.guardArgs(reload + `; head -c 30000000 /dev/zero | tr "\0" x`)...)
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ends with %v", err)
	}
	h.whole(t, "active")
}

// Somebody types ^C again and again. It reaches no systemctl that guard waits for.
func TestAnImpatientUser(t *testing.T) {
	h := newHost(t, "active")
	if h == nil {
		return
	}
	cmd := h.relink(h.guardArgs(`trap "" INT TERM; `+began+reload+`; while :; do sleep 0.05; done`, "--kill-after", "2s")...)
	terminal := h.terminal(t, cmd)
	defer terminal.Close()
	go func() { _, _ = io.Copy(io.Discard, terminal) }()
	eventually(t, "the command runs", func() bool { return h.read("units/began") != "" })
	for range 4 {
		_, _ = io.WriteString(terminal, "\x03")
		time.Sleep(300 * time.Millisecond)
	}
	_ = cmd.Wait() // It has the status.
	if status := cmd.ProcessState.ExitCode(); status != 128+9 {
		t.Errorf("exit status %d\n%s", status, h.read("guard/log"))
	}
	h.whole(t, "active")
}
