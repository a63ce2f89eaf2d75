package cluster

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/test/fresh"
	"github.com/relink-cni/relink/test/node"
)

// Pods of stock plugins are recorded, restored and forgotten, and no configuration names relink.
func TestForeignPods(t *testing.T) {
	n := newForeignNode(t)
	before := n.add(t, "before") // It runs before the agent does.
	n.startAgent(t)
	n.awaitRecorded(t, 10*time.Second, "before net1 lan", "before net2 flat")
	web, db := n.add(t, "web"), n.add(t, "db")
	all := []string{"before net1 lan", "before net2 flat", "db net1 lan", "db net2 flat", "web net1 lan", "web net2 flat"}
	n.awaitRecorded(t, 10*time.Second, all...)
	n.Says(t, 0, "check", "6 attachments as recorded, 0 not\n")

	n.reload(t)
	n.awaitWhole(t, before, web, db)
	n.awaitRecorded(t, time.Second, all...)

	// A DEL of a foreign plugin takes its record with it.
	n.remove(t, db)
	n.awaitRecorded(t, 10*time.Second, "before net1 lan", "before net2 flat", "web net1 lan", "web net2 flat")

	// What was unplugged is no loss, and does not come back.
	n.unplug(t, web, "lan", "net1")
	n.reload(t)
	n.awaitRecorded(t, 10*time.Second, "before net1 lan", "before net2 flat", "web net2 flat")
	n.awaitWhole(t, before)
	if text := fresh.Run(t, web.netns, "ip -o link"); strings.Contains(text, " net1") || !strings.Contains(text, " net2") {
		t.Errorf("web has\n%s", text)
	}

	// An interface that takes the place of another one, under its name, is recorded anew.
	n.plug(t, web, "other", "lan0", "net1")
	n.awaitRecorded(t, 20*time.Second, "before net1 lan", "before net2 flat", "web net1 other", "web net2 flat")
	n.unplug(t, web, "other", "net1")
	n.plug(t, web, "third", "flat0", "net1")
	n.awaitRecorded(t, 20*time.Second, "before net1 lan", "before net2 flat", "web net1 third", "web net2 flat")
	n.unplug(t, web, "third", "net1")
	n.plug(t, web, "third", "flat0", "net1") // The same again, but for the address.
	web.want = web.state(t)
	await(t, 20*time.Second, "the new address", func() bool {
		r, err := n.Store.Load(web.id, "net1")
		return err == nil && len(r.Interface.Addresses) == 1 && strings.Contains(web.want, r.Interface.Addresses[0].Prefix.String())
	})
	n.reload(t)
	n.awaitWhole(t, web)

	// It moves to another NIC because its own is away.
	fresh.IP(t, "", "link del flat0")
	n.unplug(t, web, "third", "net1")
	n.plug(t, web, "fourth", "lan0", "net1")
	n.awaitRecorded(t, 20*time.Second, "before net1 lan", "before net2 flat", "web net1 fourth", "web net2 flat")
	n.makeFlat(t)
	n.awaitWhole(t, before)
	await(t, 20*time.Second, "all as recorded", func() bool { _, err := n.Relink("check"); return err == nil })

	// A checkpoint that somebody has removed is written anew.
	n.Says(t, 0, "forget "+web.id+" --force --yes")
	n.awaitRecorded(t, 20*time.Second, "before net1 lan", "before net2 flat", "web net1 fourth", "web net2 flat")
	n.unplug(t, web, "fourth", "net1")
	n.awaitRecorded(t, 20*time.Second, "before net1 lan", "before net2 flat", "web net2 flat")

	// What was unplugged while its NIC was away does not come back.
	late := n.add(t, "late")
	n.awaitRecorded(t, 20*time.Second, "before net1 lan", "before net2 flat", "late net1 lan", "late net2 flat", "web net2 flat")
	fresh.IP(t, "", "link del lan0")
	n.unplug(t, late, "lan", "net1")
	fresh.Run(t, "", "ip link add lan0 type veth peer name lan1; ip link set lan0 up; ip link set lan1 up")
	n.awaitWhole(t, before)
	n.awaitRecorded(t, 20*time.Second, "before net1 lan", "before net2 flat", "late net2 flat", "web net2 flat")
	if text := fresh.Run(t, late.netns, "ip -o link"); strings.Contains(text, " net1") {
		t.Errorf("late has\n%s", text)
	}
	n.remove(t, late)
	n.awaitRecorded(t, 20*time.Second, "before net1 lan", "before net2 flat", "web net2 flat")

	// What was unplugged while no agent ran does not come back either, although its parent is gone now.
	n.stop(t)
	n.unplug(t, before, "flat", "net2")
	n.reload(t)
	n.startAgent(t)
	n.awaitRecorded(t, 10*time.Second, "before net1 lan", "web net2 flat")
	await(t, 20*time.Second, "net1 of before", func() bool { return strings.Contains(fresh.Run(t, before.netns, "ip -o link"), " net1") })
	time.Sleep(500 * time.Millisecond)
	if text := fresh.Run(t, before.netns, "ip -o link"); strings.Contains(text, " net2") {
		t.Errorf("before has\n%s", text)
	}
	n.remove(t, before)
	n.remove(t, web)
	n.awaitRecorded(t, 10*time.Second)
}

// While an ADD is under way, nothing of its sandbox is recorded.
func TestNoHalfRecord(t *testing.T) {
	n := newForeignNode(t)
	releaseFirst, releaseSecond := n.hold(t, "podnet"), n.hold(t, "lan")
	n.startAgent(t)
	added := make(chan *foreignPod)
	go func() { added <- n.add(t, "slow") }()
	netns := "/run/netns/cni-slow"
	isAdded := func(network string) func() bool {
		return func() bool {
			results, _ := filepath.Glob("/var/lib/cni/multus/results/" + network + "-*")
			return len(results) > 0
		}
	}
	await(t, 30*time.Second, "eth0, which is on no NIC", isAdded("podnet"))
	releaseFirst()
	await(t, 30*time.Second, "net1", isAdded("lan"))
	fresh.Run(t, netns, "ip -o link show net1")
	for range 40 {
		if recorded := n.recorded(t); len(recorded) > 0 {
			t.Fatalf("recorded during the ADD: %q", recorded)
		}
		time.Sleep(100 * time.Millisecond)
	}
	n.awaitUnrecorded(t, capture.ObstacleUnderWay, 1)
	releaseSecond()
	slow := <-added
	n.awaitRecorded(t, 10*time.Second, "slow net1 lan", "slow net2 flat")
	n.awaitUnrecorded(t, "", 0)
	n.remove(t, slow)
	n.awaitRecorded(t, 10*time.Second)
}

// settleLimit is how long it may take until a pod is recorded. On a machine that is so busy that an ADD, of two seconds, takes longer than
// its third, it may take as long as three ADDs.
const settleLimit = 8 * time.Second

// churn is a node whose pods come and go.
type churn struct {
	*foreignNode
	pods int
	// lock is held alone by who takes the NICs away: nobody does while a pod is added.
	lock sync.RWMutex

	mu sync.Mutex
	// living are the pods, each with the time of its ADD. made and lost count: a NIC can go before a pod is recorded.
	living     map[*foreignPod]time.Time
	made, lost int
	agentSince time.Time
	// slowest is how long the slowest ADD took.
	slowest time.Duration
}

// step makes a pod, and ends one if there are enough.
func (c *churn) step(t *testing.T, name string) {
	t.Helper()
	c.lock.RLock()
	began := time.Now()
	p := c.add(t, name)
	c.mu.Lock()
	c.slowest = max(c.slowest, time.Since(began))
	c.lock.RUnlock()
	c.living[p] = time.Now()
	c.made++
	var victim *foreignPod
	for other := range c.living {
		if victim = other; len(c.living) <= c.pods {
			victim = nil
		}
		break
	}
	delete(c.living, victim)
	c.mu.Unlock()
	if victim != nil {
		c.remove(t, victim)
	}
}

// lose takes the NICs away. It ends the pods that nobody can have recorded by then.
func (c *churn) lose(t *testing.T) {
	t.Helper()
	c.lock.Lock() // An ADD without a parent fails, and the runtime tries again: that is not what this is about.
	defer c.lock.Unlock()
	recorded := c.recorded(t)
	c.mu.Lock()
	var late []*foreignPod
	for p, since := range c.living {
		if slices.Contains(recorded, p.name+" net1 lan") && slices.Contains(recorded, p.name+" net2 flat") {
			continue
		}
		limit := max(settleLimit, 3*c.slowest)
		settled := time.Since(since) > limit && time.Since(c.agentSince) > limit
		if settled && fresh.Run(t, p.netns, "ip -o addr show tentative") == "" { // A busy kernel takes its time for duplicate address detection.
			t.Errorf("%s is not recorded", p.name)
		}
		late, c.lost = append(late, p), c.lost+1
		delete(c.living, p)
	}
	c.mu.Unlock()
	c.reload(t)
	for _, p := range late {
		c.remove(t, p)
	}
}

// Pods come and go, and so do the NICs and the agent: each living pod is whole in the end and has its records, and nothing else is recorded.
func TestForeignChurn(t *testing.T) {
	c := &churn{foreignNode: newForeignNode(t), pods: 40, living: map[*foreignPod]time.Time{}, agentSince: time.Now()}
	losses, interval := 2, 6*time.Second
	if os.Getenv("RELINK_LONG") != "" {
		c.pods, losses, interval = 250, 5, 24*time.Second
	}
	c.startAgent(t)
	end := time.Now().Add(time.Duration(losses) * interval)
	var work sync.WaitGroup
	const workers = 24
	for w := range workers { // Ten a second, if the machine can. Each takes more than two seconds, for duplicate address detection.
		work.Go(func() {
			for i := 0; time.Now().Before(end) && !t.Failed(); i++ {
				began := time.Now()
				c.step(t, fmt.Sprintf("p%d-%d", w, i))
				time.Sleep(workers*time.Second/10 - time.Since(began))
			}
		})
	}
	for k := range losses {
		time.Sleep(interval * 9 / 10)
		c.lose(t)
		time.Sleep(time.Duration(rand.Int64N(int64(interval / 10))))
		if k%2 == 0 {
			_ = c.end(syscall.SIGKILL) // It says so.
			c.startAgent(t)
			c.mu.Lock()
			c.agentSince = time.Now()
			c.mu.Unlock()
		}
	}
	work.Wait()
	var want []string
	living := slices.Collect(maps.Keys(c.living))
	for _, p := range living {
		want = append(want, p.name+" net1 lan", p.name+" net2 flat")
	}
	c.awaitSameRecorded(t, 30*time.Second, want)
	c.awaitWhole(t, living...)
	c.Says(t, 0, "check", fmt.Sprintf("%d attachments as recorded, 0 not\n", len(want)))
	t.Logf("%d pods made, %d live, %d lost their NICs before they were recorded", c.made, len(living), c.lost)
	for _, p := range living {
		c.remove(t, p)
	}
	c.awaitSameRecorded(t, 30*time.Second, nil)
}

// What a pod does with its interfaces, and what a node lacks.
func TestForeignOddPods(t *testing.T) {
	n := newForeignNode(t)
	n.startAgent(t)
	log, end := run(t, []string{control.SocketEnv + "=" + filepath.Join(n.Dir, "second.sock")}, filepath.Join(node.Bin, "relink-agent"),
		append([]string{"--checkpoint-dir", n.Store.Dir(), "--host-grace", "0s"}, n.args...)...) // Two agents, of a DaemonSet and of systemd.
	t.Cleanup(func() {
		if err := end(syscall.SIGTERM); err != nil {
			t.Errorf("the second agent ends with %v\n%s", err, log)
		}
	})
	machine, renames, stacks := n.add(t, "machine"), n.add(t, "renames"), n.add(t, "stacks")
	want := func(more ...string) []string {
		return append([]string{"machine net1 lan", "machine net2 flat", "renames net1 lan", "renames net2 flat", "stacks net1 lan", "stacks net2 flat"}, more...)
	}
	n.awaitSameRecorded(t, 20*time.Second, want())

	// KubeVirt's second phase, with a veth where this kernel has no dummy.
	fresh.Run(t, machine.netns, `ip addr flush dev net1 scope global; ip link set net1 down; ip link set net1 name net1-nic
		ip link set net1-nic address 02:00:00:00:0b:01; ip link add k6t-net1 type bridge; ip link set k6t-net1 address 02:00:00:00:0b:01 up
		ip link add net1 type veth peer name net1-far; ip link set net1-nic master k6t-net1 up; ip link set net1-nic type bridge_slave learning off`)
	fresh.Run(t, renames.netns, "ip link set net2 down; ip link set net2 name storage; ip link set storage up")
	fresh.Run(t, stacks.netns, "ip link add own link net1 type macvlan mode bridge; ip link set own up; ip addr add 10.77.0.1/24 dev own")
	await(t, 20*time.Second, "the machine's new interface", func() bool {
		r, err := n.Store.Load(machine.id, "net1")
		return err == nil && r.Interface.Link.Name == "net1-nic" && r.Interface.Link.MAC == "02:00:00:00:0b:01" && r.Interface.Master != nil
	})
	await(t, 20*time.Second, "the new name", func() bool {
		r, err := n.Store.Load(renames.id, "net2")
		return err == nil && r.Interface.Link.Name == "storage"
	})

	// The runtime does not answer: libcni's results tell that the ADD is over. A torn file does not matter.
	n.runtime.setDown(true)
	if err := os.WriteFile("/var/lib/cni/results/torn", []byte(`{"kind":"cniCac`), 0o600); err != nil {
		t.Fatal(err)
	}
	silent := n.add(t, "silent")
	n.awaitSameRecorded(t, 20*time.Second, want("silent net1 lan", "silent net2 flat"))
	n.runtime.setDown(false)

	// A user namespace owns the pod's network, and no cache knows its interface.
	user := n.userPod(t, "user")
	n.awaitSameRecorded(t, 30*time.Second, want("silent net1 lan", "silent net2 flat", "user net1 unknown"))
	n.awaitUnrecorded(t, "", 0)

	n.reload(t)
	n.awaitWhole(t, silent, user)
	await(t, 20*time.Second, "all interfaces", func() bool {
		in := func(p *foreignPod) string { return fresh.Run(t, p.netns, "ip -o link") }
		return strings.Contains(in(machine), "net1-nic") && strings.Contains(in(machine), "master k6t-net1") && strings.Contains(in(renames), "storage") &&
			strings.Contains(in(stacks), "net1@")
	})
	if text := fresh.Run(t, stacks.netns, "ip -o link"); strings.Contains(text, " own") {
		t.Errorf("the pod's own interface was rebuilt:\n%s", text)
	}
}
