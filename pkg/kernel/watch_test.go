package kernel

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/test/fresh"
)

// within waits until f is true.
func within(t *testing.T, limit time.Duration, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// linkState is what a watcher in these tests remembers of a device.
type linkState struct {
	Name string
	MTU  int
	Up   bool
}

// stateOf returns all devices of the namespace.
func stateOf(t *testing.T, n *Namespace) map[int]linkState {
	t.Helper()
	all := map[int]linkState{}
	for _, d := range must(n.Devices())(t) {
		all[d.Index] = linkState{d.Name, d.MTU, d.Up}
	}
	return all
}

// follow brings the state up to date as a user of the watch does. It reports whether an overrun made it read all anew.
func follow(t *testing.T, n *Namespace, changes Changes, state map[int]linkState) (anew bool) {
	t.Helper()
	if changes.Overrun {
		clear(state)
		for index, is := range stateOf(t, n) {
			state[index] = is
		}
		return true
	}
	for _, c := range changes.List {
		d, err := n.Device(c.Index)
		switch {
		case errors.Is(err, ErrNoDevice):
			delete(state, c.Index)
		case err != nil:
			t.Fatal(err)
		default:
			state[c.Index] = linkState{d.Name, d.MTU, d.Up}
		}
	}
	return false
}

// manyChanges are more than 1,000 changes of devices as a batch for ip(8). Half of the devices that it makes are gone
// afterwards.
func manyChanges() string {
	var batch strings.Builder
	for i := range 10 {
		fmt.Fprintf(&batch, "link add b%d type bridge\nlink set b%d up\nlink set b%d mtu %d\n", i, i, i, 1000+i)
		for j := range 100 {
			fmt.Fprintf(&batch, "link set lan1 mtu %d\n", 1000+100*i+j)
		}
		if i%2 == 0 {
			fmt.Fprintf(&batch, "link del b%d\n", i)
		}
	}
	return batch.String()
}

// Marks and dumps together give the state that a dump gives, whether the receive buffer overflows or not.
func TestAWatchKeepsUpWithTheKernel(t *testing.T) {
	for name, test := range map[string]struct {
		buffer  int
		overrun bool
	}{"a small buffer": {4 << 10, true}, "the usual buffer": {receiveBuffer, false}} {
		t.Run(name, func(t *testing.T) {
			w := newFixture(t)
			watch := must(w.host.watchOwn(test.buffer, unix.RTNLGRP_LINK))(t)
			defer watch.Close()
			state, anew := stateOf(t, w.host), 0
			made := make(chan struct{})
			go func() {
				fresh.Run(t, "", "ip -batch - <<'X'\n"+manyChanges()+"X")
				close(made)
			}()
			step := func() {
				if follow(t, w.host, watch.Take(), state) {
					anew++
				}
			}
			for running := true; running; {
				select {
				case <-watch.Changed():
					step()
				case <-made:
					running = false
				}
			}
			step()
			t.Cleanup(func() { fresh.Run(t, "", "for b in 1 3 5 7 9; do ip link del b$b; done") })
			if diff := cmp.Diff(stateOf(t, w.host), state); diff != "" {
				t.Errorf("(-dump +followed):\n%s", diff)
			}
			if (anew > 0) != test.overrun {
				t.Errorf("the buffer overflowed %d times", anew)
			}
			if rest := watch.Take(); rest.Overrun || len(rest.List) > 0 {
				t.Errorf("told again: %+v", rest)
			}
		})
	}
}

// byIndex returns the changes by the index, and fails the test if they are of another namespace.
func byIndex(t *testing.T, of attachment.Namespace, changes Changes) map[int]Change {
	t.Helper()
	if changes.Overrun {
		t.Error("overrun")
	}
	all := map[int]Change{}
	for _, c := range changes.List {
		if c.Namespace != of {
			t.Errorf("a change of %+v", c.Namespace)
		}
		all[c.Index] = c
	}
	return all
}

// A watch of sandboxes tells each change of what a checkpoint can have, and of nothing else.
func TestASandboxWatchTellsWhatChanged(t *testing.T) {
	w := newFixture(t)
	other := fresh.Sandbox(t)
	// Without link-local addresses: the kernel tells of the end of their DAD later.
	fresh.Run(t, w.path, "ip link add eth0 type veth peer name far; ip link set eth0 addrgenmode none; ip link set far addrgenmode none; "+
		"ip link set far up; ip link set eth0 up; ip addr add 10.9.0.2/24 dev eth0 nodad")
	fresh.Run(t, other, "ip link add eth0 type bridge")
	watch := must(w.host.WatchSandboxes())(t)
	defer watch.Close()
	of := w.sandbox.Identity()
	if err := errors.Join(watch.Add(of), watch.Add(of)); err != nil {
		t.Fatal(err)
	}
	eth0 := must(w.sandbox.Index("eth0"))(t)
	time.Sleep(50 * time.Millisecond) // Until the kernel has told of the carrier.
	watch.Take()
	for _, test := range []struct {
		name, line string
		index      int
		told, down bool
	}{
		{"MTU", "ip link set eth0 mtu 1400", eth0, true, false},
		{"IPv4 route", "ip route add 10.8.0.0/24 via 10.9.0.1", eth0, true, false},
		{"IPv6 route", "ip route add fd00:8::/64 dev eth0", eth0, true, false},
		{"route without a device", "ip route add blackhole 10.7.0.0/24", 0, true, false},
		{"IPv4 address", "ip addr add 10.6.0.1/32 dev eth0", eth0, true, false},
		{"IPv4 rule", "ip rule add from 10.9.0.2 table 100", 0, true, false},
		{"IPv6 rule", "ip -6 rule add from fd00::1 table 100", 0, true, false},
		{"permanent neighbour", "ip neigh add 10.9.0.1 lladdr 02:00:00:00:00:09 dev eth0", eth0, true, false},
		{"permanent neighbour goes", "ip neigh del 10.9.0.1 dev eth0", eth0, true, false},
		{"learnt neighbour", "ip neigh add 10.9.0.3 lladdr 02:00:00:00:00:09 nud reachable dev eth0; ip neigh change 10.9.0.3 nud stale dev eth0 lladdr 02:00:00:00:00:08", 0, false, false},
		{"forwarding setting", "echo 2 >/proc/sys/net/ipv4/conf/eth0/rp_filter", eth0, true, false},
		{"qdisc", "tc qdisc add dev eth0 root tbf rate 1mbit burst 32k latency 400ms", eth0, true, false},
		{"down", "ip link set eth0 down", eth0, true, true},
		{"bridge's entry", "ip link add br0 type bridge; ip link set far master br0", -1, false, false},
	} {
		fresh.Run(t, w.path, test.line)
		fresh.Run(t, other, "ip link set eth0 mtu 1300; ip link set eth0 mtu 1400")
		got := byIndex(t, of, watch.Take())
		if test.index < 0 {
			continue // It only prepares the next one.
		}
		if change, told := got[test.index]; told != test.told || !told && len(got) > 0 || change.Down != test.down {
			t.Errorf("%s: told %v, want %t, down %t of device %d", test.name, got, test.told, test.down, test.index)
		}
	}
	fresh.Run(t, w.path, "bridge fdb add 02:00:00:00:00:07 dev far master static")
	if got := watch.Take(); len(got.List) > 0 {
		t.Errorf("an entry of a bridge is told: %+v", got.List)
	}
	if err := watch.Mute(); err != nil {
		t.Fatal(err)
	}
	fresh.Run(t, w.path, "ip link set eth0 mtu 1300")
	if err := watch.Unmute(); err != nil {
		t.Fatal(err)
	}
	if got := watch.Take(); !got.Muted || got.Overrun || len(got.List) > 0 {
		t.Errorf("told of a change while it was muted: %+v", got)
	}
	fresh.Run(t, w.path, "ip link set eth0 mtu 1200")
	if got := watch.Take(); got.Muted || got.Overrun || len(got.List) != 1 || got.List[0].Index != eth0 {
		t.Errorf("told of a change after it was muted: %+v", got)
	}
	watch.Remove(of)
	fresh.Run(t, w.path, "ip link set eth0 up")
	if got := watch.Take(); len(got.List) > 0 {
		t.Errorf("told after Remove: %+v", got.List)
	}
}

// A namespace ends while it is heard, and its number goes to the next one.
func TestASandboxWatchKeepsNoNamespaceAlive(t *testing.T) {
	w := newFixture(t)
	watch := must(w.host.WatchSandboxes())(t)
	defer watch.Close()
	for round := range 5 {
		path := t.TempDir() + "/ns"
		fresh.At(t, path)
		n := must(Open(path))(t)
		id := n.Identity()
		n.Close()
		if err := watch.Add(id); err != nil {
			t.Fatal(err)
		}
		fresh.Run(t, path, "ip link add eth0 type bridge")
		if got := byIndex(t, id, watch.Take()); len(got) != 1 {
			t.Errorf("round %d: %v", round, got)
		}
		if round == 0 { // Its end is heard all the same.
			if err := watch.Mute(); err != nil {
				t.Fatal(err)
			}
		}
		fresh.Remove(t, path)
		gone := false
		// The kernel ends namespaces one batch after the other. Those of other tests may come first.
		within(t, 2*time.Minute, "the namespace ends", func() bool {
			for _, c := range watch.Take().List {
				gone = gone || c.Namespace == id && c.NamespaceGone
			}
			return gone
		})
		if err := watch.Unmute(); err != nil {
			t.Fatal(err)
		}
		if err := watch.Add(id); !errors.Is(err, ErrNoNamespace) {
			t.Errorf("added after its end: %v", err)
		}
		fresh.At(t, path)
		if err := watch.Add(id); !errors.Is(err, attachment.ErrOtherNamespace) {
			t.Errorf("another one at its path: %v", err)
		}
	}
}

// The kernel gives the number of an ended namespace to the next one at once, and the watch may not have read of the end.
func TestASandboxWatchTellsTheEndOfWhatHadTheNumber(t *testing.T) {
	w := newFixture(t)
	watch := must(w.host.WatchSandboxes())(t)
	defer watch.Close()
	n := must(Open(fresh.Sandbox(t)))(t)
	defer n.Close()
	ended := attachment.Namespace{Path: "/run/netns/ended", Device: 1, Inode: 1}
	watch.mu.Lock()
	watch.sources[must(w.host.ensureNSID(n))(t)] = &watchedNamespace{namespace: ended}
	watch.mu.Unlock()
	if err := watch.Add(n.Identity()); err != nil {
		t.Fatal(err)
	}
	<-watch.Changed()
	if got := watch.Take().List; len(got) != 1 || got[0].Namespace != ended || !got[0].NamespaceGone {
		t.Errorf("told: %+v", got)
	}
}

// A pod makes more devices than a watch tells apart. None is lost: index 0 stands for the rest.
func TestAWatchHasBoundedMemory(t *testing.T) {
	w := newFixture(t)
	watch := must(w.sandbox.Watch())(t)
	defer watch.Close()
	var batch strings.Builder
	for i := range maxMarks + 50 {
		fmt.Fprintf(&batch, "link add v%d type bridge\n", i)
	}
	fresh.Run(t, w.path, "ip -batch - <<'X'\n"+batch.String()+"X")
	got := byIndex(t, w.sandbox.Identity(), watch.Take())
	if len(got) != maxMarks+1 || !got[0].Down {
		t.Errorf("%d devices, and %+v for the rest", len(got), got[0])
	}
}

// Nothing is left of a watch that was closed.
func TestAClosedWatchLeavesNothing(t *testing.T) {
	w := newFixture(t)
	files := func() int {
		all, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	once := func() {
		host, all := must(w.host.Watch())(t), must(w.host.WatchSandboxes())(t)
		if err := all.Add(w.sandbox.Identity()); err != nil {
			t.Fatal(err)
		}
		for _, close := range []func(){host.Close, all.Close, host.Close} {
			close()
		}
		heard := host.Take() // Devices of an earlier test may have gone just before.
		if changes := host.Take(); len(changes.List) > 0 || changes.Overrun || heard.Overrun {
			t.Errorf("a closed watch tells %+v and %+v", heard, changes)
		}
	}
	once() // The first one starts Go's poller, and the goroutine that sends all changes.
	goroutines, open := runtime.NumGoroutine(), files()
	for range 20 {
		once()
	}
	// A goroutine that has said that it ends is counted until it has ended.
	within(t, 10*time.Second, fmt.Sprintf("no more than %d goroutines", goroutines), func() bool { return runtime.NumGoroutine() <= goroutines })
	if opened := files(); opened > open {
		t.Errorf("%d files, before that %d", opened, open)
	}
}

func TestAWatchSaysWhichCapabilityIsMissing(t *testing.T) {
	if output, outside := onlyWithout(t, unix.CAP_NET_BROADCAST); outside {
		if want := "CAP_NET_BROADCAST"; !strings.Contains(output, want) {
			t.Errorf("says %q, without %s", output, want)
		}
		return
	}
	host, err := OpenHost()
	if err == nil {
		_, err = host.WatchSandboxes()
	}
	fmt.Println(err)
}
