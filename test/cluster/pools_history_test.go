package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/relink-cni/relink/pkg/ipam/lease"
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

// busy is a node of the history. restarts excludes a restart of the agent while an ADD asks it.
type busy struct {
	*member
	number   int
	restarts sync.RWMutex
}

// work starts and ends pods without an owner until it is over. faults happen to the node meanwhile.
func (b *busy) work(t *testing.T, h *history, over func() bool, faults func()) {
	var pods []given
	for !over() {
		switch n := rand.IntN(20); {
		case n == 0:
			faults()
		case n < 9 && len(pods) > 0:
			i := rand.IntN(len(pods))
			b.ends(t, h, pods[i])
			pods = slices.Delete(pods, i, i+1)
		case n < 18 && len(pods) < 12:
			b.restarts.RLock()
			ctx, cancel := context.WithTimeout(t.Context(), patienceOfStep)
			called := time.Now()
			p, err := b.add(ctx, b.request(lease.Policy{}, ""))
			cancel()
			b.restarts.RUnlock()
			if err == nil {
				h.record(b.number, handover{p.address, p.key.ContainerID, true}, called)
				pods = append(pods, p)
			}
		default:
			time.Sleep(rand.N(5 * time.Millisecond))
		}
	}
}

func (b *busy) ends(t *testing.T, h *history, p given) {
	called := time.Now()
	if err := b.store.Release(t.Context(), p.key, lease.Policy{}); err != nil {
		t.Errorf("%s: DEL: %v", b.name, err)
	}
	h.record(b.number, handover{p.address, p.key.ContainerID, false}, called)
}

// fault draws what happens to the node: its agent is killed and started again, or it is cut off from the API.
func (b *busy) fault(t *testing.T) {
	if rand.IntN(2) == 0 {
		b.api.set(15, true)
		time.Sleep(rand.N(200 * time.Millisecond))
		b.api.set(15, false)
		return
	}
	b.api.dieAfter(rand.IntN(6))
	time.Sleep(rand.N(100 * time.Millisecond))
	b.restarts.Lock()
	defer b.restarts.Unlock()
	b.end()
	b.api.mu.Lock()
	b.api.dies = false
	b.api.mu.Unlock()
	b.start(t, b.watch)
}

// moves starts the owner's pod on one node after the other until it is over, and counts how often it has moved.
func moves(t *testing.T, h *history, all []*busy, owner string, over func() bool, moved *atomic.Int64) {
	last := ""
	for !over() {
		b := all[rand.IntN(len(all))]
		b.restarts.RLock()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		called := time.Now()
		p, err := b.tryOwned(ctx, owner)
		cancel()
		b.restarts.RUnlock()
		if p.address.IsValid() { // Also if the claim has failed.
			h.record(b.number, handover{p.address, p.key.ContainerID, true}, called)
			time.Sleep(rand.N(20 * time.Millisecond))
			b.ends(t, h, p)
		}
		if err == nil && b.name != last {
			if last != "" {
				moved.Add(1)
			}
			last = b.name
		}
	}
}

// What a history must have, so that it shows something.
const fewestGets, fewestMoves = 50, 2

// histories records what pods have which address when, on nodes to which everything happens at once, and checks that it is as if there
// were one node.
func (a *api) histories(t *testing.T, users map[string]user) {
	length := 3 * time.Second
	if os.Getenv("RELINK_LONG") != "" {
		length = time.Minute
	}
	h, moved := a.recorded(t, users, length)
	gets := h.gets()
	t.Logf("%d addresses were given, and owners have moved %d times", gets, moved)
	if h.illegal(t) {
		t.Error("two pods have had an address at one time")
	}
	if gets < fewestGets || moved < fewestMoves {
		t.Errorf("%d addresses were given, and owners have moved %d times: this shows nothing", gets, moved)
	}
	t.Run("a double is found", func(t *testing.T) { h.findsDouble(t) })
}

// recorded is the history of some time, and how often owners have moved in it.
func (a *api) recorded(t *testing.T, users map[string]user, length time.Duration) (*history, int64) {
	t.Helper()
	h := &history{began: time.Now()}
	var all []*busy
	a.newPool(t, users, "10.46.0.0/27")
	for i, name := range []string{"node1", "node2", "node3"} {
		m := a.quiet(t, users, name)
		all = append(all, &busy{member: m, number: i})
	}
	for _, b := range all {
		b.api.set(15, false)
		b.start(t, b.watch)
	}
	begun := time.Now()
	var moved atomic.Int64
	over := func() bool { // On a busy machine, and with faults that come at a bad time, owners move seldom.
		lasts := time.Since(begun)
		return lasts > length+30*time.Second || lasts > length && moved.Load() >= fewestMoves && h.gets() >= fewestGets
	}
	var working sync.WaitGroup
	for _, b := range all {
		working.Go(func() { b.work(t, h, over, func() { b.fault(t) }) })
	}
	for _, owner := range owners {
		working.Go(func() { moves(t, h, all, owner, over, &moved) })
	}
	working.Wait()
	for _, b := range all {
		b.end()
	}
	return h, moved.Load()
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
