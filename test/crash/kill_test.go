package crash

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// These environment variables control programs that are built with the tag "failpoint" (pkg/failpoint).
const (
	killEnv  = "RELINK_FAILPOINT"
	traceEnv = "RELINK_FAILPOINT_TRACE"
	olderEnv = "RELINK_FAILPOINT_OLDER"
	// allEnv tells the programs that these tests' PID namespace is the node's.
	allEnv = "RELINK_FAILPOINT_ALL_PROCESSES"
)

// step is a place for a kill: the n-th time that the program passes this failpoint.
type step struct {
	name string
	n    int
}

func (s step) String() string { return fmt.Sprintf("%s#%d", s.name, s.n) }

// operation is killed at each of its steps in turn.
type operation struct {
	// prepare returns the program that is to be killed. First it restores the state before the operation, from the
	// state that after leaves.
	prepare func(t *testing.T) *exec.Cmd
	// after checks what must hold after a kill, and also after a complete run.
	after func(t *testing.T)
	// delegate says that a program that it calls is killed instead.
	delegate bool
	// most is at how many steps make test kills, 0 for all that some returns.
	most int
}

// killAtEveryStep runs the operation once to see its steps, and then once for each of them that some returns. It fails
// the test if a step comes without its kill.
func (o operation) killAtEveryStep(t *testing.T) {
	t.Helper()
	passed, err := traced(t, o.prepare(t))
	if err != nil {
		t.Fatalf("undisturbed: %v", err)
	}
	o.after(t)
	if len(passed) == 0 {
		t.Fatal("it passes no step")
	}
	kills := map[string]int{}
	// The kernel keeps the number of a namespace, so nothing passes this step twice.
	passed = slices.DeleteFunc(passed, func(s step) bool { return strings.HasSuffix(s.name, " assign") && o.most > 0 })
	chosen := some(t.Name(), passed)
	if o.most > 0 && os.Getenv("RELINK_LONG") == "" {
		rand.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
		chosen = chosen[:min(o.most, len(chosen))]
	}
	for _, at := range chosen {
		t.Run(at.String(), func(t *testing.T) {
			if o.killed(t, at) {
				kills[at.name]++
			}
			o.after(t)
		})
	}
	logKills(t, kills, len(chosen))
}

// some returns the steps at which a program is killed. make test-long kills at all. make test kills once at each failpoint. If
// the program passes it many times, once for each interface or sandbox, it is killed when it passes last, or one time before.
// Most failpoints stand in many ways of a test: the ways that come later are killed at a third of those.
func some(test string, passed []step) []step {
	if os.Getenv("RELINK_LONG") != "" {
		return passed
	}
	times := map[string]int{}
	for _, s := range passed {
		times[s.name] = s.n
	}
	top, _, _ := strings.Cut(test, "/")
	for name, n := range times {
		way, known := killedFirst.LoadOrStore(top+" "+name, test)
		switch {
		case known && way != test && rand.IntN(3) > 0:
			delete(times, name)
		case rand.IntN(2) == 0:
			times[name] = 1 + rand.IntN(n)
		}
	}
	return slices.DeleteFunc(slices.Clone(passed), func(s step) bool { return s.n != times[s.name] })
}

// killedFirst has the failpoints of each test, with the way that was killed there first.
var killedFirst sync.Map

// logKills logs the number of kills at each step.
func logKills(t *testing.T, kills map[string]int, want int) {
	t.Helper()
	all := 0
	var lines []string
	for name, count := range kills {
		all += count
		lines = append(lines, fmt.Sprintf("%s %d", name, count))
	}
	slices.Sort(lines)
	total.kills.Add(int64(all))
	t.Logf("%d kills: %s", all, strings.Join(lines, ", "))
	if all != want {
		t.Errorf("killed at %d of %d steps", all, want)
	}
}

// lastPass returns how often the program passed the failpoint.
func lastPass(passed []step, name string) int {
	n := 0
	for _, s := range passed {
		if s.name == name {
			n = max(n, s.n)
		}
	}
	return n
}

// killed runs the program and reports whether it was killed at that step.
func (o operation) killed(t *testing.T, at step) bool {
	t.Helper()
	cmd := o.prepare(t)
	cmd.Env = append(cmd.Environ(), killEnv+"="+at.String())
	passed, err := traced(t, cmd)
	// An agent that runs beside it takes the same locks, so the program does not pass each step equally often in every run.
	if n := lastPass(passed, at.name); err == nil && 0 < n && n < at.n {
		o.after(t)
		return o.killed(t, step{name: at.name, n: n})
	}
	exit := new(exec.ExitError)
	if o.delegate {
		// The program reports the kill. It may have called the delegate again to undo things.
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signaled() || !slices.Contains(passed, at) {
			t.Errorf("its delegate is not killed: %v", err)
			return false
		}
		return true
	}
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("not killed: %v", err)
		return false
	}
	// The kill is the last step that is passed.
	if len(passed) == 0 || passed[len(passed)-1] != at {
		t.Errorf("killed elsewhere: %v", passed)
		return false
	}
	return true
}

// traced runs the program and returns the steps that it passed.
func traced(t *testing.T, cmd *exec.Cmd) ([]step, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "trace")
	cmd.Env = append(cmd.Environ(), traceEnv+"="+path)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := finish(cmd)
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, &out)
	}
	b, readErr := os.ReadFile(path)
	if readErr != nil {
		t.Errorf("no trace: %v", errors.Join(readErr, err))
	}
	count := map[string]int{}
	var steps []step
	for name := range strings.Lines(string(b)) {
		name = strings.TrimSuffix(name, "\n")
		count[name]++
		steps = append(steps, step{name, count[name]})
	}
	return steps, err
}
