package crash

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/test/fresh"
)

// call is an ADD or a DEL, with its begin and its end.
type call struct {
	add, ok  bool
	from, to time.Time
}

func (c call) String() string {
	kind, outcome := "DEL", "refused"
	if c.add {
		kind = "ADD"
	}
	if c.ok {
		outcome = "ok"
	}
	const clock = "05.000"
	return fmt.Sprintf("%s %s-%s %s", kind, c.from.Format(clock), c.to.Format(clock), outcome)
}

// busyPod is a pod that several callers attach and detach at once.
type busyPod struct {
	*pod
	mu    sync.Mutex
	calls []call
}

func (b *busyPod) do(add bool) error {
	c := call{add: add, from: time.Now()}
	err := b.del
	if add {
		err = b.add
	}
	failed := err()
	c.to, c.ok = time.Now(), failed == nil
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, c)
	return failed
}

// certain reports whether a successful call of this kind began after all successful calls of the other kind had ended.
func (b *busyPod) certain(add bool) bool {
	return slices.ContainsFunc(b.calls, func(c call) bool {
		return c.ok && c.add == add && !slices.ContainsFunc(b.calls, func(other call) bool {
			return other.ok && other.add != add && other.to.After(c.from)
		})
	})
}

// crowd is a node on which everything happens at once.
type crowd struct {
	*node
	pods []*busyPod
	// ghost is a pod that the runtime has forgotten, and whose sandbox is gone.
	ghost *pod

	mu     sync.Mutex
	counts map[string]int
}

func (c *crowd) count(what string, err error) {
	if err != nil {
		what += " refused"
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[what]++
}

// TestEverythingAtOnce runs several runtimes, restores, captures and GCs at the same time, on the same sandboxes and on
// different ones. Meanwhile the parent goes and comes.
func TestEverythingAtOnce(t *testing.T) { eachWay(t, everythingAtOnce) }

func everythingAtOnce(t *testing.T, n *node) {
	c := &crowd{node: n, counts: map[string]int{}}
	for i := range 6 {
		c.pods = append(c.pods, &busyPod{pod: c.newPod(t, fmt.Sprintf("c%d", i), i%3 == 2)})
	}
	rounds := times(4)
	for round := range rounds {
		c.ghost = c.newPod(t, fmt.Sprintf("ghost%d", round), round%2 == 1)
		must(t, c.ghost.add())
		c.ghost.loseSandbox(t)
		c.round(t)
		if t.Failed() {
			t.Fatalf("in round %d", round+1)
		}
	}
	var lines []string
	for _, what := range slices.Sorted(maps.Keys(c.counts)) {
		lines = append(lines, fmt.Sprintf("%s %d", what, c.counts[what]))
		total.operations += c.counts[what]
	}
	total.rounds += rounds
	t.Logf("%d rounds: %s", rounds, strings.Join(lines, ", "))
}

// round lets everything happen for a while, waits for its end, and checks the result.
func (c *crowd) round(t *testing.T) {
	var all sync.WaitGroup
	for _, b := range c.pods {
		all.Go(func() { c.runtime(t, b) })
		if !b.chained {
			// One runtime calls the plugins of a list, one after the other. The reference plugins have no lock.
			all.Go(func() { c.runtime(t, b) })
		}
	}
	for _, args := range []string{"restore --wait 2s", "restore --wait 2s", "capture", "capture --refresh"} {
		all.Go(func() {
			for range 2 {
				pause()
				c.count(strings.Fields(args)[0], c.run(t, args))
			}
		})
	}
	all.Go(func() {
		pause()
		_, err := output(c.gc())
		must2(t, "GC", err)
		c.count("GC", err)
	})
	all.Go(func() {
		pause()
		if rand.IntN(3) > 0 {
			fresh.IP(t, "", "link del lan0")
			pause()
			makeParent(t)
			c.count("parent lost", nil)
		}
	})
	all.Wait()
	c.look(t)
}

// pause lasts for a random time, so that the others can meet in between.
func pause() { time.Sleep(rand.N(150 * time.Millisecond)) }

// must2 is must for a goroutine other than the test's.
func must2(t *testing.T, what string, err error) {
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// run runs relink. It returns an error if relink could not do something because others worked on the same. Any other
// failure fails the test.
func (c *crowd) run(t *testing.T, args string) error {
	cmd := c.command(args)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := finish(cmd)
	const differs = 1
	if exit := new(exec.ExitError); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != differs) {
		t.Errorf("relink %s: %v\n%s", args, err, &out)
	}
	return err
}

// runtime attaches and detaches the pod. After a failed ADD it also detaches the pod.
func (c *crowd) runtime(t *testing.T, b *busyPod) {
	for range 2 {
		pause()
		if rand.IntN(2) == 0 {
			err := b.do(true)
			c.count("ADD", err)
			if err == nil || !b.chained && rand.IntN(2) == 0 {
				continue
			}
		}
		err := b.do(false)
		must2(t, "DEL", err)
		c.count("DEL", err)
	}
}

// gc prepares a GC whose list has all pods but the ghost.
func (c *crowd) gc() *exec.Cmd {
	var valid []string
	for _, b := range c.pods {
		valid = append(valid, fmt.Sprintf(`{"containerID": %q, "ifname": "eth0"}`, b.id))
	}
	return c.ghost.plugin("relink-macvlan", "GC", `, "cni.dev/valid-attachments": [`+strings.Join(valid, ",")+`]`)
}

// look checks that nothing was lost, and that nothing exists that should not.
func (c *crowd) look(t *testing.T) {
	t.Helper()
	_, err := output(c.gc())
	must(t, err)
	if _, err := c.store.Load(c.ghost.id, "eth0"); !errors.Is(err, checkpoint.ErrNoCheckpoint) {
		t.Errorf("%s was not forgotten: %v", c.ghost.id, err)
	}
	must(t, c.ghost.del())
	c.ghost.gone(t)
	c.restored(t)
	for _, b := range c.pods {
		_, err := c.store.Load(b.id, "eth0")
		recorded := err == nil
		attached := slices.Contains(links(t, b.netns), "eth0")
		held := slices.Contains(c.held(t), b.id)
		if recorded != attached || recorded != held {
			t.Errorf("%s: checkpoint %v, interface %v, address %v; after %v", b.id, recorded, attached, held, b.calls)
		}
		if b.certain(true) && !recorded || b.certain(false) && recorded {
			t.Errorf("%s: checkpoint %v after %v", b.id, recorded, b.calls)
		}
		if !recorded {
			b.gone(t)
		}
		now := time.Now()
		b.calls = []call{{add: recorded, ok: true, from: now, to: now}}
	}
	if held := c.held(t); len(slices.Compact(slices.Clone(held))) != len(held) {
		t.Errorf("two addresses of one attachment: %v", held)
	}
	c.nothingTemporary(t)
	c.says(t, 0, "check")
}
