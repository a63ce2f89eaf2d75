package watch

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	testnet "github.com/relink-cni/relink/test/fresh"
)

// isWhole reports whether the record has everything that the pod had when it was built.
func isWhole(want netstate.Interface, is checkpoint.Record) bool {
	i := is.Interface
	for _, a := range want.Addresses {
		if !slices.ContainsFunc(i.Addresses, func(b netstate.Address) bool { return b.Prefix == a.Prefix }) {
			return false
		}
	}
	for _, a := range want.Routes {
		if !slices.ContainsFunc(i.Routes, func(b netstate.Route) bool { return b.Destination == a.Destination }) {
			return false
		}
	}
	return i.Link.Up && len(i.Parents) == 1
}

// addMarker tries to add a route to the pod.
func (p *pod) addMarker() {
	if index, err := p.namespace.Index("eth0"); err == nil {
		marker := netstate.Route{
			Destination: netip.MustParsePrefix("10.250.0.0/16"), Table: 1000 + rand.Uint32N(1000), Type: unix.RTN_UNICAST, Scope: unix.RT_SCOPE_LINK,
		}
		_ = p.namespace.AddRoutes(index, []netstate.Route{marker}, netstate.Interface{})
	}
}

// Parents are deleted at random moments while the Refresher reads their pods all the time. It never writes a reading
// that has seen half of a loss.
func TestAHalfDeadStateIsNeverWritten(t *testing.T) {
	const pods = 20
	deletions := 1000
	if os.Getenv("RELINK_LONG") != "" {
		deletions = 20000
	}
	n := newNode(t, pods)
	r := n.refresher(t)
	defer r.hostWatch.Close()
	defer r.watch.Close()
	for _, p := range n.pods {
		r.setRecords(p.id, []checkpoint.Record{n.record(t, p)})
	}
	var alive atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range deletions / pods {
			alive.Store(true)
			time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
			alive.Store(false)
			n.deleteParent(t)
			n.build(t)
		}
	}()
	readings, broken := 0, 0
	for running := true; running; {
		select {
		case <-ended:
			running = false
		default:
		}
		for _, p := range n.pods {
			s := r.sandboxes[withoutPath(p.namespace.Identity())]
			if alive.Load() { // This gives the Refresher something to write.
				p.addMarker()
			}
			r.read(context.Background(), s)
			if readings++; !isWhole(p.want, n.record(t, p)) {
				if broken++; broken < 4 {
					t.Errorf("half a state was written: %s", content(t, n.record(t, p).Interface))
				}
				n.save(t, p)
			}
		}
	}
	t.Logf("%d readings, %d half states: %+v", readings, broken, r.Counters())
	if c := r.Counters(); min(c.Refreshes, c.Refusals) < uint64(deletions/10) {
		t.Errorf("hardly anything was written or lost: %+v", c)
	}
}

// An interface goes down and up all the time while the pod is read, and loses its routes each time. The Refresher never
// takes that for a removal on purpose.
func TestAFlapOfAnInterfaceIsNoRemoval(t *testing.T) {
	n := newNode(t, 1)
	p := n.pods[0]
	r, s := n.newWithSandbox(t)
	var enough atomic.Bool
	defer enough.Store(true)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		flap := "link set eth0 down\nlink set eth0 up\naddr add fd00:9::2/64 dev eth0 nodad\nroute add default via 10.9.0.1\nroute add ::/0 via fd00:9::1\n"
		for batch := 0; batch < 100 && !enough.Load(); batch++ {
			testnet.Run(t, p.path, "ip -batch - <<'X'\n"+strings.Repeat(flap, 150)+"X")
		}
	}()
	readings := 0
	for running := true; running; readings++ {
		enough.Store(readings >= 50 && r.Counters().Refusals > 0)
		select {
		case <-ended:
			running = false
		default:
		}
		r.read(context.Background(), s)
		if is := n.record(t, p); !isWhole(p.want, is) {
			t.Fatalf("after %d readings the checkpoint has lost something: %s", readings, content(t, is.Interface))
		}
	}
	if c := r.Counters(); c.Refusals == 0 || readings < 50 {
		t.Errorf("%d readings: %+v", readings, c)
	}
	if found := r.Refusals(); len(found) > 0 {
		t.Errorf("found at the end: %+v", found)
	}
}

// Somebody changes a pod, and right after that the parent is deleted. The checkpoint has the change, however late the
// pod is read. The test adds no IPv6 address: the kernel reports a new one only later, from a work queue.
func TestAChangeRightBeforeALossIsKept(t *testing.T) {
	n := newNode(t, 1)
	p := n.pods[0]
	r := n.startRefresher(t)
	for round := range 5 {
		before := n.record(t, p).Interface
		line := fmt.Sprintf("route add 10.8.%d.0/24 via 10.9.0.1\naddr add 10.7.%d.1/24 dev eth0\nroute add fd00:7:%x::/64 via fd00:9::1\n",
			round, round, round+1)
		added := []string{fmt.Sprintf("10.8.%d.0/24", round), fmt.Sprintf("10.7.%d.1/24", round), fmt.Sprintf("fd00:7:%x::/64", round+1)}
		if round > 0 {
			line += fmt.Sprintf("route del 10.8.%d.0/24\n", round-1)
		}
		testnet.Run(t, "", "nsenter --net="+p.path+" ip -batch - <<'X'\n"+line+"X\nip link del lan0")
		var is netstate.Interface
		waitUntil(t, "the last change is recorded", func() bool {
			is = n.record(t, p).Interface
			return strings.Contains(content(t, is), added[2]) && !strings.Contains(content(t, is), fmt.Sprintf("10.8.%d.0/24", round-1))
		})
		for _, what := range added {
			if !strings.Contains(content(t, is), what) {
				t.Errorf("round %d: the checkpoint has no %s", round, what)
			}
		}
		if gone := fmt.Sprintf("10.8.%d.0/24", round-1); strings.Contains(content(t, is), gone) {
			t.Errorf("round %d: the checkpoint still has %s", round, gone)
		}
		if len(is.Addresses) != len(before.Addresses)+1 {
			t.Errorf("round %d: %d addresses, %d before", round, len(is.Addresses), len(before.Addresses))
		}
		n.build(t)
		waitUntil(t, "the pod is whole", func() bool {
			return len(r.Refusals()) == 0 && n.record(t, p).Interface.Parents[0].IfIndex != is.Parents[0].IfIndex
		})
		want := content(t, n.capture(t, p))
		waitUntil(t, "what was told is as it is read", func() bool { return content(t, n.record(t, p).Interface) == want })
	}
}

// The last reading of a pod took long, as on a busy machine. A Hold does not read it, and still writes the route that the pod got
// right before the loss: the restore builds what is recorded.
func TestAHoldOfASlowSandboxKeepsWhatWasTold(t *testing.T) {
	n := newNode(t, 1)
	p := n.pods[0]
	r, s := n.newWithSandbox(t)
	r.read(context.Background(), s)
	s.pace.slow = true
	testnet.Run(t, p.path, "ip route add 10.8.0.0/24 via 10.9.0.1")
	n.deleteParent(t)
	waitUntil(t, "the kernel has told of it", func() bool { r.readEvents(); return len(s.events) > 0 })
	readings := r.Counters().Readings
	r.readForHold(context.Background(), holdRequest{containerIDs: []string{p.id}, finished: make(chan bool, 1)})
	if got := content(t, n.record(t, p).Interface); !strings.Contains(got, "10.8.0.0/24") || r.Counters().Readings != readings {
		t.Errorf("%d readings, want none and the route in the checkpoint:\n%s", r.Counters().Readings-readings, got)
	}
	n.build(t) // The end of the test removes it.
}

// The parents of all pods go. No pod is read for that: a reading could only find that its interface is gone. After a restore each pod is read
// once, and its sysctls are read again only if they have changed.
func TestLostSandboxesAreNotRead(t *testing.T) {
	const pods = 20
	n := newNode(t, pods)
	r := n.startRefresher(t)
	n.awaitIdle(t, r)
	before := r.Counters()
	n.deleteParent(t)
	time.Sleep(2 * settleDelay)
	if after := r.Counters(); after.Readings-before.Readings > pods/4 || len(r.Refusals()) > 0 {
		t.Errorf("%d readings of lost pods, and %d findings", after.Readings-before.Readings, len(r.Refusals()))
	}
	var ids []string
	for _, p := range n.pods {
		ids = append(ids, p.id)
	}
	r.Hold(t.Context(), ids...)
	before = r.Counters()
	n.build(t)
	for _, p := range n.pods { // Each change after the first reading is another reading.
		waitUntil(t, "it has carrier", func() bool { return strings.Contains(testnet.IP(t, p.path, "link show eth0"), "LOWER_UP") })
	}
	for _, id := range ids {
		r.Release(id)
	}
	for _, p := range n.pods {
		waitUntil(t, "it has its new parent", func() bool {
			index, err := n.host.Index(p.parent)
			return err == nil && n.record(t, p).Interface.Parents[0].IfIndex == index
		})
	}
	n.awaitIdle(t, r)
	if readings := r.Counters().Readings - before.Readings; readings < pods || readings > 3*pods { // The kernel may report the carrier later.
		t.Errorf("%d readings of %d restored pods", readings, pods)
	}
}

// All sysctls of a pod are read while an interface goes down, and so nothing is written. The next reading still finds the one that has changed.
func TestASysctlThatWasReadInVainIsReadAgain(t *testing.T) {
	n := newNode(t, 1)
	p := n.pods[0]
	testnet.Run(t, p.path, "echo 1 >/proc/sys/net/ipv4/conf/eth0/log_martians")
	devices, err := n.host.Devices()
	if err != nil {
		t.Fatal(err)
	}
	down := map[int]bool{0: true}
	renewal := capture.Renewal{
		Store: n.store, Host: n.host, Devices: devices, Namespace: p.namespace.Identity(), ContainerIDs: []string{p.id}, Marks: map[int]kernel.SettingsMark{},
		LinkHistory: func() capture.LinkHistory { return capture.LinkHistory{Down: down} },
	}
	if _, err := renewal.Renew(t.Context()); !errors.Is(err, kernel.ErrNoDevice) {
		t.Fatalf("the reading in vain: %v", err)
	}
	down = nil
	if _, err := renewal.Renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := n.record(t, p).Interface.Settings["ipv4/log_martians"]; got != "1" {
		t.Errorf("log_martians is recorded as %q", got)
	}
}
