package lease

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
)

// Some runtimes send DEL and CHECK with the configuration of the ADD, so with the old name. No runtime's GC by the new
// name mentions attachments of the old one.
func TestRuntimesThatKnowTheOldName(t *testing.T) {
	for name, merge := range map[string]bool{"the file got the name": false, "put into another store": true} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "10.3.0.20", sticky)
			to, last := n.withNetwork("new"), n.withNetwork("newest")
			n.add(t, "c1/eth0", "web-0", "10.3.0.2")
			n.add(t, "c2/eth0", "web-1", "10.3.0.3")
			n.add(t, "c3/eth0", "web-2", "10.3.0.4")
			if merge {
				to.addWanted(t, "n0/eth0", "x", "10.3.0.9")
				to.del(t, "n0/eth0")
			}
			_, err := n.rename(t, to)
			must(t, err)
			to.addWanted(t, "n1/eth0", "y", "10.3.0.10")
			// Rename it once more. Each holder is still found by its own name.
			_, err = to.rename(t, last)
			must(t, err)

			held, err := n.store(t).HeldBy(t.Context(), n.key("c1/eth0"))
			must(t, err)
			if len(held) != 1 || held[0].Address != addr("10.3.0.2") {
				t.Errorf("CHECK by the old name: %v", held)
			}
			nobody := func(Holder) bool { return false }
			must(t, last.store(t).Collect(t.Context(), nobody))
			must(t, n.store(t).Release(t.Context(), n.key("c2/eth0"), Policy{}))
			must(t, to.store(t).Release(t.Context(), to.key("n1/eth0"), Policy{}))
			to.refused(t, "DEL by a name that the holder has not", to.store(t).Release(t.Context(), to.key("c1/eth0"), Policy{}),
				ErrNotLeased, "network new: nothing is leased (no DIR/new.db)")
			want := []string{"10.3.0.2 held c1/eth0 web-0", "10.3.0.3 reserved c2/eth0 web-1", "10.3.0.4 held c3/eth0 web-2"}
			if merge {
				want = append(want, "10.3.0.9 reserved n0/eth0 x")
			}
			last.expect(t, "after GC and DELs", append(want, "10.3.0.10 reserved n1/eth0 y")...)

			// An attachment whose ADD is repeated is known by the new name. Its DEL may use that name.
			last.add(t, "c1/eth0", "web-0", "10.3.0.2")
			last.del(t, "c3/eth0")
			must(t, last.store(t).Collect(t.Context(), nobody))
			want[0], want[2] = "10.3.0.2 reserved c1/eth0 web-0", "10.3.0.4 reserved c3/eth0 web-2"
			last.expect(t, "at last", append(want, "10.3.0.10 reserved n1/eth0 y")...)
		})
	}
}

// An ADD by the old name was refused. It has made a store there that never gave an address.
func TestDELByTheOldNameAfterAnAddByItWasRefused(t *testing.T) {
	n := newNode(t, "10.3.0.9", minute)
	to := n.withNetwork("new")
	n.add(t, "c1/eth0", "", "10.3.0.2")
	_, err := n.rename(t, to)
	must(t, err)
	if _, err := n.try(t, "c2/eth0", "", "10.9.9.9"); err == nil {
		t.Fatal("an address of no range was given")
	}
	must(t, n.store(t).Release(t.Context(), n.key("c1/eth0"), Policy{}))
	to.expect(t, "after the DEL", "10.3.0.2 quarantined c1/eth0")
}

// An imported lease is given up here, whatever others do to the stores of other networks.
func TestDELOfWhatWasTakenInLooksNowhereElse(t *testing.T) {
	n := newNode(t, "10.3.0.9", minute)
	other := n.withNetwork("other")
	other.add(t, "c9/eth0", "", "10.3.0.2")
	n.takeIn(t, "host-local", Lease{Address: addr("10.3.0.3"), State: Held, Holders: []Holder{{
		ContainerID: "c1", IfName: "eth0", Policy: minute, Namespace: attachment.Namespace{BootID: n.boot},
	}}})
	_, letGo := other.lockStore(t)
	defer letGo()
	s := n.store(t)
	s.wait = time.Millisecond
	must(t, s.Release(t.Context(), n.key("c1/eth0"), Policy{}))
	n.expect(t, "after the DEL", "10.3.0.3 quarantined c1/eth0")
}

// Somebody else uses a store that may hold the address. So the runtime has to try again.
func TestDELByTheOldNameWhileTheStoreIsInUse(t *testing.T) {
	n := newNode(t, "10.3.0.9", minute)
	to := n.withNetwork("new")
	n.add(t, "c1/eth0", "", "10.3.0.2")
	_, err := n.rename(t, to)
	must(t, err)
	must(t, os.WriteFile(n.withNetwork("other").path(), []byte("no store"), 0o600)) // This store does not matter.
	_, letGo := to.lockStore(t)
	s := n.store(t)
	s.wait = time.Millisecond
	if err := s.Release(t.Context(), n.key("c1/eth0"), Policy{}); !errors.Is(err, ErrBusy) {
		t.Errorf("in use: %v", err)
	}
	letGo()
	must(t, s.Release(t.Context(), n.key("c1/eth0"), Policy{}))
	to.expect(t, "afterwards", "10.3.0.2 quarantined c1/eth0")
}

// Renamed finds the earlier name of a network.
func TestRenamedFindsTheOldName(t *testing.T) {
	later := func(n, other *node) {
		n.later(time.Minute)
		other.day, other.uptime = n.day, n.uptime
	}
	for name, test := range map[string]struct {
		old  func(t *testing.T, n, to *node)
		want []string
	}{
		"it has pods":          {func(t *testing.T, n, _ *node) { n.add(t, "c1/eth0", "", "10.3.0.2") }, []string{"pods"}},
		"it has none any more": {func(t *testing.T, n, _ *node) { n.add(t, "c1/eth0", "", "10.3.0.2"); n.del(t, "c1/eth0") }, nil},
		"it has other ranges": {func(t *testing.T, n, _ *node) {
			n.sets = []RangeSet{tenAddresses(7)}
			n.add(t, "c1/eth0", "", "10.7.0.10")
		}, nil},
		"it has given addresses since": {func(t *testing.T, n, to *node) {
			n.add(t, "c1/eth0", "", "10.3.0.2")
			later(n, to)
			to.add(t, "n0/eth0", "", "10.3.0.2")
			later(n, to)
			n.add(t, "c2/eth0", "", "10.3.0.3")
		}, nil},
		"what it has is no store": {func(t *testing.T, n, _ *node) { must(t, os.WriteFile(n.path(), []byte("x"), 0o600)) }, nil},
		"there is no other":       {func(*testing.T, *node, *node) {}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "10.3.0.9", minute)
			to := n.withNetwork("new")
			test.old(t, n, to)
			later(n, to)
			if _, err := to.try(t, "n1/eth0", ""); err != nil {
				t.Fatal(err)
			}
			got, err := to.store(t).Renamed(t.Context())
			if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
	const remark = "network new gives addresses of the same ranges as network pods, which has pods and has given none since new began. " +
		"If new is its new name, no ADD knows what those pods hold: relink ipam rename pods new"
	if got := RenamedRemark("pods", "new"); got != remark {
		t.Errorf("it is said as %q", got)
	}
}
