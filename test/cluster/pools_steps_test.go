package cluster

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
	"syscall"
	"testing"
	"time"
)

// nodeProcess is a node that is a process of its own. It can be killed at each of its steps.
type nodeProcess struct {
	*member
	program, kubeconfig string
}

// buildPoolNode builds the program with its failpoints.
func buildPoolNode(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "poolnode")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags", "failpoint", "-o", program, "./poolnode")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// do does the operations, and is killed at a step if there is one. It returns the steps that it passed, each with the number of times
// so far.
func (d *nodeProcess) do(t *testing.T, kill string, all ...string) (passed []string, killed bool) {
	t.Helper()
	trace := filepath.Join(t.TempDir(), "trace")
	cmd := exec.CommandContext(t.Context(), d.program, append([]string{d.kubeconfig, d.name, d.dir}, all...)...)
	cmd.Env = append(os.Environ(), "RELINK_FAILPOINT_TRACE="+trace, "RELINK_FAILPOINT="+kill)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	killed = errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
	if err != nil && !killed {
		t.Fatalf("%v: %v\n%s", all, err, &out)
	}
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]int{}
	for step := range strings.Lines(string(text)) {
		step = strings.TrimSpace(step)
		times[step]++
		passed = append(passed, fmt.Sprintf("%s#%d", step, times[step]))
	}
	return passed, killed
}

// The operations of a node that begins, has too much when many of its pods have ended, and deletes a block; and of one that hands over,
// moves an owner away and another one here, returns, and takes again.
var (
	firstOperations = []string{
		"start=d1", "start=d2", "start=d3", "start=d4", "start=d5", "start=d6", "start=d7", "start=d8", "start=d9",
		"end=d1", "end=d2", "end=d3", "end=d4", "end=d5", "end=d6", "end=d7", "end=d8", "end=d9", "look", "look",
		"start=c1", "start=c2", "start=c3", "own=web-0", "end=of-web-0",
	}
	moreOperations = []string{
		"look", "own=web-1", "start=c4", "start=c5", "end=c1", "end=c2", "end=c3", "end=c4", "end=c5", "look", "look", "own=web-1", "start=c6", "start=c7", "start=c8", "start=c9", "look",
	}
)

// killedAtSteps kills a node at each failpoint of a take, a hand-over, a move and a return. The next process goes on, and no address
// gets a second pod.
func (a *api) killedAtSteps(t *testing.T, users map[string]user) {
	program := buildPoolNode(t)
	first, more := a.doAll(t, users, program, "", "")
	seen := append(slices.Clone(first), more...)
	musts := []string{
		"before confirming pools", "before noting pools", "store renamed", "before a block is made", "block made", "before a block is written", "block written", "before a grant is stored", "grant stored",
		"before a block is deleted", "block deleted", "before an address is asked for", "grants put", "before expecting address", "committed",
	}
	missing := func() []string {
		return slices.DeleteFunc(slices.Clone(musts), func(must string) bool { return slices.Contains(seen, must+"#1") })
	}
	for range 12 { // A node takes any block, and a busy API answers late, so the steps differ a little.
		if len(missing()) == 0 {
			break
		}
		first, more := a.doAll(t, users, program, "", "")
		seen = slices.Concat(seen, first, more)
	}
	if left := missing(); len(left) > 0 {
		t.Errorf("the operations do not pass the steps %q", left)
	}
	killedAtAny(t, first, func(step string) []string {
		passed, _ := a.doAll(t, users, program, step, "")
		return passed
	})
	killedAtAny(t, more, func(step string) []string {
		_, passed := a.doAll(t, users, program, "", step)
		return passed
	})
}

// killedAtAny kills the node at one of the steps, and in make test-long at two of each failpoint. do returns the steps that the node has
// passed: it does not pass just the same ones each time.
func killedAtAny(t *testing.T, steps []string, do func(kill string) (passed []string)) {
	t.Helper()
	long := os.Getenv("RELINK_LONG") != ""
	times := map[string]int{}
	kills, tries := 0, 0
	for _, i := range rand.Perm(len(steps)) {
		name, _, _ := strings.Cut(steps[i], "#")
		if times[name]++; times[name] > 2 {
			continue
		}
		tries++
		if passed := do(steps[i]); passed[len(passed)-1] != steps[i] {
			continue
		}
		if kills++; !long {
			break
		}
	}
	if t.Logf("%d steps, %d kills of %d", len(steps), kills, tries); kills == 0 || long && 2*kills < tries {
		t.Errorf("%d of %d kills: this shows nothing", kills, tries)
	}
}

// doAll does all operations, and kills the node at a step of the first or of the further operations. It returns the steps of both.
func (a *api) doAll(t *testing.T, users map[string]user, program, killFirst, killMore string) (first, more []string) {
	t.Helper()
	w := a.newSimulation(t, users, "10.48.0.0/27", 1)
	when := fmt.Sprintf("killed at %q of the first operations, at %q of the further ones", killFirst, killMore)
	w.note("%s", when)
	one, two := w.nodes[0], w.nodes[1]
	w.nodes = w.nodes[:2]
	d := &nodeProcess{one, program, a.config(t, "https://"+apiAddress, "poolnode.conf", fmt.Sprintf("{token: %q}", users["node1"].token))}
	first = a.killedIn(t, w, d, killFirst, when, firstOperations)
	await(t, 30*time.Second, "the owner's pod on the other node", func() bool {
		if w.startOwned(two, "web-1") {
			return true
		}
		d.do(t, "", "look")
		return false
	})
	w.endWhere(func(p running) bool { return p.owner == "web-1" })
	for w.start(two) {
		w.noDouble()
	}
	w.startOwned(two, "web-0") // This asks for the address.
	more = a.killedIn(t, w, d, killMore, when, moreOperations)
	await(t, time.Minute, "all addresses to be given", func() bool {
		w.look(two)
		w.look(one)
		for _, m := range w.nodes {
			for w.start(m) {
				w.noDouble()
			}
		}
		return len(one.granted(t))+len(two.granted(t)) == 29 && one.freeNow(t)+two.freeNow(t) == 0
	})
	w.settled(when)
	return first, more
}

// killedIn does the operations, kills the node at the step if it is not empty, and does them again then.
func (a *api) killedIn(t *testing.T, w *simulation, d *nodeProcess, kill, when string, all []string) (passed []string) {
	t.Helper()
	passed, killed := d.do(t, kill, all...)
	if killed && (len(passed) == 0 || passed[len(passed)-1] != kill) {
		t.Errorf("%s: killed after %v", when, passed)
	}
	w.noDouble()
	for _, m := range w.nodes {
		a.within(t, w.users, m, when)
	}
	if killed {
		w.look(w.nodes[1])
		w.startOwned(w.nodes[1], "web-0")
		w.noDouble()
		d.do(t, "", all...)
		w.noDouble()
	}
	return passed
}
