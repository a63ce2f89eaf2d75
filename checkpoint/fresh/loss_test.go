package fresh

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/netstate"
	testnet "github.com/relink-cni/relink/test/fresh"
)

// isWhole reports whether the record has all that the pod had when it was built.
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

// addMarker adds a route to the pod, if it can.
func (p *pod) addMarker() {
	if index, err := p.namespace.Index("eth0"); err == nil {
		marker := netstate.Route{
			Destination: netip.MustParsePrefix("10.250.0.0/16"), Table: 1000 + rand.Uint32N(1000), Type: unix.RTN_UNICAST, Scope: unix.RT_SCOPE_LINK,
		}
		_ = p.namespace.AddRoutes(index, []netstate.Route{marker}, netstate.Interface{})
	}
}

// Parents are deleted at random moments while their pods are read all the time. No reading is written that has seen a
// part of the end.
func TestAHalfDeadStateIsNeverWritten(t *testing.T) {
	const pods = 50
	deletions := 1000
	if os.Getenv("RELINK_LONG") != "" {
		deletions = 20000
	}
	n := newNode(t, pods)
	r := n.refresher(t)
	defer r.hostWatch.Close()
	defer r.watch.Close()
	for _, p := range n.pods {
		r.know(p.id, []checkpoint.Record{n.record(t, p)})
	}
	var alive atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range deletions / pods {
			alive.Store(true)
			time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
			alive.Store(false)
			n.lose(t)
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
			s := r.sandboxes[id(p.namespace.Identity())]
			if alive.Load() { // So that there is something to write.
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

// A route is added, and the parent is deleted right after that.
func TestAChangeRightBeforeALossIsKept(t *testing.T) {
	n := newNode(t, 1)
	p := n.pods[0]
	r := n.run(t)
	const rounds = 20
	kept := 0
	for range rounds {
		readings := r.Counters().Readings
		within(t, 5*time.Second, "the pod is quiet", func() bool {
			is := r.Counters().Readings
			defer func() { readings = is }()
			time.Sleep(settle / 5)
			return is == readings
		})
		testnet.Run(t, "", "nsenter --net="+p.path+" ip route add 10.8.0.0/24 via 10.9.0.1; ip link del lan0")
		within(t, 3*time.Second, "the loss is found", func() bool { return len(r.Findings()) == 1 })
		if slices.ContainsFunc(n.record(t, p).Interface.Routes, func(r netstate.Route) bool { return r.Destination == netip.MustParsePrefix("10.8.0.0/24") }) {
			kept++
		}
		n.build(t)
		n.save(t, p)
		within(t, 3*time.Second, "the pod is whole", func() bool { r.Look(p.id); return len(r.Findings()) == 0 })
	}
	t.Logf("%d of %d routes are in the checkpoint", kept, rounds)
}
