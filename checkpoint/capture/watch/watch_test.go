package watch

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/checkpoint/control"
	testnet "github.com/relink-cni/relink/test/fresh"
)

// content returns the part of a checkpoint that is about an interface.
func content(t testing.TB, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A change in a pod soon appears in its checkpoint, and there is no finding.
func TestAChangeInAPodIsInItsCheckpoint(t *testing.T) {
	n := newNode(t, 1)
	p := n.pods[0]
	r := n.startRefresher(t)
	for _, line := range []string{
		"ip route add 10.8.0.0/24 via 10.9.0.1",
		"ip route del 10.8.0.0/24",
		"ip route add 10.7.0.0/24 via 10.9.0.1 src 10.9.0.2; ip -6 route add fd00:7::/64 via fd00:9:0::1",
		"ip route del 10.7.0.0/24; ip -6 route del fd00:7::/64",
		"ip addr add 10.6.0.2/24 dev eth0",
		"ip addr del 10.6.0.2/24 dev eth0",
		"ip -6 addr add fd00:6::2/64 dev eth0 nodad",
		"ip rule add from 10.9.0.2 table 100 priority 1000; ip route add default via 10.9.0.1 table 100",
		"ip neigh add 10.9.0.9 lladdr 02:00:00:00:00:09 dev eth0",
		"ip neigh del 10.9.0.9 dev eth0",
		"ip link set eth0 mtu 1400",
		"echo 2 >/proc/sys/net/ipv4/conf/eth0/rp_filter",
		"ip route del default; ip -6 route del default",
	} {
		testnet.Run(t, p.path, line)
		want := content(t, n.capture(t, p))
		began, got := time.Now(), ""
		for got != want && time.Since(began) < patience {
			time.Sleep(time.Millisecond)
			got = content(t, n.record(t, p).Interface)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-pod +checkpoint):\n%s", line, diff)
		}
		time.Sleep(10 * firstPause)
	}
	if found := r.Refusals(); len(found) > 0 {
		t.Errorf("found: %+v", found)
	}
	if is := n.record(t, p); is.Writer != "relink-macvlan" || is.Pod.Name != "c0" || string(is.CNI.Config) != "{}" {
		t.Errorf("the checkpoint has lost what the runtime gave: %+v", is)
	}
}

// A checkpoint is not written if nothing but the time differs.
func TestNothingIsWrittenWithoutAChange(t *testing.T) {
	n := newNode(t, 1)
	p := n.pods[0]
	before := n.record(t, p)
	r := n.startRefresher(t)
	testnet.Run(t, p.path, "ip link set lo up; ip route add blackhole 10.5.0.0/24; ip link set eth0 alias there; ip link set eth0 alias ''")
	waitUntil(t, "the pod is left alone when it has settled", func() bool {
		readings := r.Counters().Readings
		time.Sleep(settleDelay + 100*time.Millisecond)
		return r.Counters().Readings == readings
	})
	count, after := r.Counters(), n.record(t, p)
	if count.Readings < 2 || count.Refusals+count.Failures+count.Overruns > 0 {
		t.Errorf("%+v", count)
	}
	if content(t, after.Interface) != content(t, before.Interface) {
		t.Error("the checkpoint has changed")
	} else if count.Refreshes == 0 && after.CapturedAt != before.CapturedAt {
		t.Error("the checkpoint was written without a change")
	}
}

// A state that is worse than the recorded one is a finding, and is not written. The finding ends when the interface is
// whole again.
func TestAWorseStateIsAFinding(t *testing.T) {
	n := newNode(t, 1)
	p := n.pods[0]
	r := n.startRefresher(t)
	before := content(t, n.record(t, p).Interface)
	for _, test := range []struct{ name, line, reason, back string }{
		{"down", "ip link set eth0 down", "eth0 is down", "ip link set eth0 up; ip -6 addr add fd00:9:0::2/64 dev eth0 nodad; " + routes},
		{"lost with a down", "ip link set eth0 down; ip link set eth0 up; ip -6 addr add fd00:9:0::2/64 dev eth0 nodad", "route 0.0.0.0/0 via 10.9.0.1 is missing", routes},
		{"gone", "ip link del eth0", "eth0 is gone from the sandbox", ""},
	} {
		testnet.Run(t, p.path, test.line)
		waitUntil(t, test.name+" is found", func() bool {
			found := r.Refusals()
			return len(found) == 1 && strings.Contains(found[0].Reason, test.reason) && found[0].Pod.Name == "c0" && found[0].Attachment.ContainerID == "c0"
		})
		if now := content(t, n.record(t, p).Interface); now != before {
			t.Errorf("%s: the checkpoint has changed:\n%s", test.name, cmp.Diff(before, now))
		}
		if test.back == "" {
			n.deleteParent(t)
			n.build(t)
		} else {
			testnet.Run(t, p.path, test.back)
		}
		waitUntil(t, test.name+": whole again", func() bool { return len(r.Refusals()) == 0 })
		before = content(t, n.record(t, p).Interface)
	}
	if err := n.store.Forget("c0", "eth0"); err != nil {
		t.Fatal(err)
	}
	testnet.IP(t, p.path, "link set eth0 down")
	waitUntil(t, "the last finding", func() bool { r.CheckpointsChanged("c0", nil); return len(r.Refusals()) == 0 })
}

// routes makes the routes that every pod has.
const routes = "ip route add default via 10.9.0.1; ip -6 route add default via fd00:9:0::1 dev eth0"

// The Refresher does not read a held sandbox. After the Release it reads the sandbox once.
func TestAHeldSandboxIsLeftAlone(t *testing.T) {
	n := newNode(t, 2)
	r := n.startRefresher(t)
	r.Hold(t.Context(), "c0")
	r.Hold(t.Context(), "c0")
	for _, p := range n.pods {
		testnet.IP(t, p.path, "link set eth0 mtu 1400")
	}
	waitUntil(t, "the other one is read", func() bool { return n.record(t, n.pods[1]).Interface.Link.MTU == 1400 })
	r.Release("c0")
	time.Sleep(100 * time.Millisecond)
	if mtu := n.record(t, n.pods[0]).Interface.Link.MTU; mtu != 1500 {
		t.Errorf("the held one has an MTU of %d in its checkpoint", mtu)
	}
	r.Release("c0")
	waitUntil(t, "it is read", func() bool { return n.record(t, n.pods[0]).Interface.Link.MTU == 1400 })
}

// While most sandboxes are held, nothing is heard of the others. They are read afterwards, and that is no overrun.
func TestWhatChangesDuringAHoldOfMostIsRead(t *testing.T) {
	n := newNode(t, 3)
	r := n.startRefresher(t)
	n.awaitIdle(t, r)
	r.Hold(t.Context(), "c0", "c1")
	readings := r.Counters().Readings
	for _, p := range n.pods {
		testnet.IP(t, p.path, "link set eth0 mtu 1400")
	}
	time.Sleep(100 * time.Millisecond)
	if during := r.Counters().Readings - readings; during > 0 {
		t.Errorf("%d readings during the hold", during)
	}
	r.Release("c0")
	r.Release("c1")
	for i, p := range n.pods {
		waitUntil(t, fmt.Sprintf("c%d is read", i), func() bool { return n.record(t, p).Interface.Link.MTU == 1400 })
	}
	testnet.IP(t, n.pods[2].path, "link set eth0 mtu 1300")
	waitUntil(t, "c2 is read again", func() bool { return n.record(t, n.pods[2]).Interface.Link.MTU == 1300 })
	if overruns := r.Counters().Overruns; overruns > 0 {
		t.Errorf("%d overruns", overruns)
	}
}

// A reading can take seconds: a pod can have any number of routes. Here another process holds the lock that a reading
// takes. A restore of other pods does not wait for that.
func TestALongReadingHoldsNobodyUp(t *testing.T) {
	n := newNode(t, 2)
	r := n.startRefresher(t)
	n.awaitIdle(t, r)
	parents, err := n.store.LockParents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for !parents.TryExclusive() { // While a reading is under way, this process is not alone: share again.
		parents.Release()
		if parents, err = n.store.LockParents(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	testnet.IP(t, n.pods[0].path, "link set eth0 mtu 1400")
	hold := func(id string) time.Duration {
		began := time.Now()
		r.Hold(t.Context(), id)
		return time.Since(began)
	}
	waitUntil(t, "it is read", func() bool { return hold("another one") >= holdTimeout })
	if took := hold("c1"); took < holdTimeout || took > 10*holdTimeout {
		t.Errorf("it is held after %s", took)
	}
	testnet.IP(t, n.pods[1].path, "link set eth0 mtu 1400")
	parents.Release()
	waitUntil(t, "the other one is read", func() bool { return n.record(t, n.pods[0]).Interface.Link.MTU == 1400 })
	time.Sleep(100 * time.Millisecond)
	if mtu := n.record(t, n.pods[1]).Interface.Link.MTU; mtu != 1500 {
		t.Errorf("the held one has an MTU of %d in its checkpoint", mtu)
	}
}

// A pod changes a route 1,000 times per second. The Refresher reads it only a few times, and records its last state.
func TestAPodThatFlapsIsReadRarely(t *testing.T) {
	n := newNode(t, 1)
	p := n.pods[0]
	r := n.startRefresher(t)
	before, began := r.Counters().Readings, time.Now()
	var batch strings.Builder
	for range 1000 {
		batch.WriteString("route add 10.8.0.0/24 via 10.9.0.1\nroute del 10.8.0.0/24\n")
	}
	fmt.Fprintln(&batch, "route add 10.8.0.0/24 via 10.9.0.1")
	testnet.Run(t, p.path, "ip -batch - <<'X'\n"+batch.String()+"X")
	want := content(t, n.capture(t, p))
	waitUntil(t, "its last state is recorded", func() bool { return content(t, n.record(t, p).Interface) == want })
	took := time.Since(began)
	if readings := r.Counters().Readings - before; readings > 10+uint64(took/longestPause) {
		t.Errorf("it was read %d times in %s", readings, took)
	}
}

// A sandbox to which nothing leads for a while is read again when it is found.
func TestASandboxThatIsNotFoundIsTriedAgain(t *testing.T) {
	n := newNode(t, 1)
	hidden := n.pods[0]
	r := n.startRefresher(t)
	n.awaitIdle(t, r)
	kept, err := os.Open(hidden.path)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	if err := unix.Unmount(hidden.path, unix.MNT_DETACH); err != nil {
		t.Fatal(err)
	}
	before := r.Counters()
	r.Release(hidden.id)
	waitUntil(t, "it is read in vain", func() bool { return r.Counters().Readings > before.Readings })
	if found := r.Refusals(); len(found) > 0 || r.Counters().Failures > before.Failures {
		t.Errorf("%+v", found)
	}
	if err := unix.Mount(fmt.Sprintf("/proc/self/fd/%d", kept.Fd()), hidden.path, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	testnet.IP(t, hidden.path, "link set eth0 mtu 1400")
	waitUntil(t, "it is read again", func() bool { return n.record(t, hidden).Interface.Link.MTU == 1400 })
}

// A DHCP client in the pod renews its lease. That writes the checkpoint only if a restore would give too little or too much of
// the lifetime. When the lease ends, the address is not missing.
func TestALeaseIsKeptFresh(t *testing.T) {
	n := newNode(t, 1)
	p := n.pods[0]
	r := n.startRefresher(t)
	lease := func(valid int) {
		testnet.Run(t, p.path, fmt.Sprintf("ip addr replace 10.6.0.2/24 dev eth0 valid_lft %d preferred_lft %d", valid, valid))
	}
	until := func() int64 {
		for _, a := range n.record(t, p).Interface.Addresses {
			if a.Prefix.String() == "10.6.0.2/24" {
				return a.ValidUntil
			}
		}
		return 0
	}
	lease(6000)
	waitUntil(t, "the lease is recorded", func() bool { return until() > 0 })
	n.awaitIdle(t, r)
	first, writes := until(), r.Counters().Refreshes
	for range 3 {
		time.Sleep(time.Second)
		lease(6000)
	}
	n.awaitIdle(t, r)
	if is := until(); is != first || r.Counters().Refreshes != writes {
		t.Errorf("the renewals have written %d checkpoints, and the end is %d, not %d", r.Counters().Refreshes-writes, is, first)
	}
	lease(12000)
	waitUntil(t, "a longer lease is recorded", func() bool { return until() > first+5000 })
	lease(3000)
	waitUntil(t, "a shorter lease is recorded", func() bool { is := until(); return is > 0 && is < first })
	lease(3)
	waitUntil(t, "the end of the lease is recorded", func() bool { return until() == 0 })
	n.awaitIdle(t, r)
	if found := r.Refusals(); len(found) > 0 || r.Counters().Refusals > 0 {
		t.Errorf("found: %+v, %+v", found, r.Counters())
	}
}

// Another process works on the sandbox while the pod adds an address and a route, and then the parent goes. What the kernel
// has reported before that is not forgotten.
func TestAChangeWhileTheSandboxIsBusyIsKept(t *testing.T) {
	n := newNode(t, 1)
	p := n.pods[0]
	r := n.startRefresher(t)
	n.awaitIdle(t, r)
	unlock, err := n.store.Lock(t.Context(), "c0")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	before := r.Counters().Readings
	testnet.Run(t, p.path, "ip addr add 10.6.0.2/24 dev eth0; ip route add 10.8.0.0/24 via 10.9.0.1")
	waitUntil(t, "it tries to read it", func() bool { return r.Counters().Readings > before })
	n.deleteParent(t)
	time.Sleep(2 * longestPause) // Meanwhile it tries again.
	unlock()
	waitUntil(t, "the checkpoint has both", func() bool {
		has := content(t, n.record(t, p).Interface)
		return strings.Contains(has, "10.6.0.2/24") && strings.Contains(has, "10.8.0.0/24")
	})
	n.build(t) // The end of the test removes it.
}

// What was found before a restore does not count after it, however long it takes until the pod is read.
func TestARestoreEndsFindings(t *testing.T) {
	n := newNode(t, 1)
	r, s := n.newWithSandbox(t)
	key := n.record(t, n.pods[0]).Attachment
	r.setRefusal(Refusal{Drift: control.Drift{Attachment: key, Reason: "eth0 is gone"}})
	if found := r.TakeRefusals(); found[key] == nil || found[key].Reason != "eth0 is gone" {
		t.Fatalf("found %+v", found)
	}
	r.Release("c0")
	r.loadRequested()
	if found, changed := r.TakeRefusals()[key]; !changed || found != nil || !s.pace.dirty {
		t.Errorf("found %+v, changed %v, dirty %v", found, changed, s.pace.dirty)
	}
}
