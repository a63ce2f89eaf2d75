package cluster

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// handover is what happens to an address: a pod gets it, or gives it up.
type handover struct {
	address netip.Addr
	pod     string
	gets    bool
}

// onePod is the model of all addresses: an address has at most one pod, and only that pod gives it up. The state is the pod, empty
// for none.
var onePod = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		by := map[netip.Addr][]porcupine.Operation{}
		for _, o := range history {
			a := o.Input.(handover).address
			by[a] = append(by[a], o)
		}
		var all [][]porcupine.Operation
		for _, of := range by {
			all = append(all, of)
		}
		return all
	},
	Init: func() any { return "" },
	Step: func(state, input, _ any) (bool, any) {
		c, has := input.(handover), state.(string)
		if c.gets {
			return has == "", c.pod
		}
		return has == c.pod, ""
	},
	DescribeOperation: func(input, _ any) string {
		c := input.(handover)
		return fmt.Sprintf("%s %s: gets %t", c.pod, c.address, c.gets)
	},
}

// history is what happened to addresses, with the time of each call and of its return.
type history struct {
	mu    sync.Mutex
	began time.Time
	all   []porcupine.Operation
}

// record notes a call that has succeeded.
func (h *history) record(node int, c handover, called time.Time) {
	returned := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, porcupine.Operation{ClientId: node, Input: c, Call: called.Sub(h.began).Nanoseconds(), Return: returned.Sub(h.began).Nanoseconds()})
}

// gets is how many addresses pods have got so far.
func (h *history) gets() (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.all {
		if o.Input.(handover).gets {
			n++
		}
	}
	return n
}

// illegal says whether two pods have had an address at one time.
func (h *history) illegal(t *testing.T) bool {
	t.Helper()
	result := porcupine.CheckOperationsTimeout(onePod, h.all, time.Minute)
	if result == porcupine.Unknown {
		t.Error("the history was not checked in time")
	}
	return result == porcupine.Illegal
}

// doubles tells what happened to the addresses that two pods have had at one time.
func (h *history) doubles() string {
	var text strings.Builder
	for _, of := range onePod.Partition(h.all) {
		if porcupine.CheckOperations(onePod, of) {
			continue
		}
		slices.SortFunc(of, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		for _, o := range of {
			fmt.Fprintf(&text, "%10s to %10s, node%d: %s\n", time.Duration(o.Call), time.Duration(o.Return), o.ClientId+1, onePod.DescribeOperation(o.Input, nil))
		}
	}
	return text.String()
}

// What a history must have, so that it shows something.
const fewestGets, fewestMoves = 50, 2

// course is what a history is like.
type course struct {
	length time.Duration
	// settling is as that of a Controller: as long as in production if the API is restored from backups.
	settling time.Duration
	// lost is how many of 100 messages get lost, and steps how many steps a node makes between two faults.
	lost, steps int
	// pace bounds the pause after a step, and stay how long an owner's pod runs.
	pace, stay time.Duration
	// interval is the time between two events of the cluster, and restores says that backups are restored, too.
	interval time.Duration
	restores bool
}

// lengthEnv is how long the history is, such as 5m.
const lengthEnv = "RELINK_HISTORY"

// courseOf returns what the histories are like: in make test, a few seconds.
func courseOf(t *testing.T) course {
	t.Helper()
	short := course{length: 3 * time.Second, settling: time.Millisecond, lost: 15, steps: 20, pace: 5 * time.Millisecond, stay: 20 * time.Millisecond, interval: time.Second}
	long := course{length: 5 * time.Minute, settling: 5 * time.Second, steps: 400, pace: 40 * time.Millisecond, stay: 2 * time.Second, interval: 4 * time.Second, restores: true}
	text := os.Getenv(lengthEnv)
	if text == "" {
		if os.Getenv("RELINK_LONG") != "" {
			return long
		}
		return short
	}
	var err error
	if long.length, err = time.ParseDuration(text); err != nil {
		t.Fatal(err)
	}
	return long
}

// histories records what pods have which address when, on nodes to which everything happens at once, and checks that it is as if there
// were one node. At its end nothing is left of all that, and each address can be given.
func (a *api) histories(t *testing.T, users map[string]user) {
	w := a.newStorm(t, users, courseOf(t))
	w.run()
	gets := w.h.gets()
	t.Logf("%d addresses were given, owners have moved %d times, and %s", gets, w.moved.Load(), w.told())
	if w.h.illegal(t) {
		t.Errorf("two pods have had an address at one time:\n%s", w.h.doubles())
	}
	if gets < fewestGets || w.moved.Load() < fewestMoves {
		t.Errorf("%d addresses were given, and owners have moved %d times: this shows nothing", gets, w.moved.Load())
	}
	t.Run("a double is found", func(t *testing.T) { w.h.findsDouble(t) })
	w.leavesNothing()
}

// findsDouble expects that the check finds one pod too many.
func (h *history) findsDouble(t *testing.T) {
	at := slices.IndexFunc(h.all, func(o porcupine.Operation) bool { return !o.Input.(handover).gets })
	if at < 0 {
		t.Fatal("no pod has ended")
	}
	ends := h.all[at]
	double := history{began: h.began, all: slices.Clone(h.all)}
	c := handover{ends.Input.(handover).address, "one too many", true}
	double.all = append(double.all, porcupine.Operation{ClientId: 9, Input: c, Call: ends.Call - 2, Return: ends.Call - 1})
	if !double.illegal(t) {
		t.Error("the check does not find a double")
	}
}
