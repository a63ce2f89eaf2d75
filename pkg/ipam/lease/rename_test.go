package lease

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// withNetwork returns the same node with its network under another name.
func (n *node) withNetwork(network string) *node {
	other := *n
	other.network = network
	return &other
}

// rename moves the leases to the other network.
func (n *node) rename(t *testing.T, to *node) (int, error) {
	t.Helper()
	return n.store(t).Rename(t.Context(), to.store(t))
}

// expectNoStore fails the test if the node has a store for the network.
func (n *node) expectNoStore(t *testing.T) {
	t.Helper()
	if there, err := n.store(t).Exists(); there || err != nil {
		t.Errorf("network %s has a store: %v, %v", n.network, there, err)
	}
	if files, err := os.ReadDir(n.dir); err != nil || len(files) > 1 {
		t.Errorf("files %v, %v", files, err)
	}
}

// If the other network has no store, the file only gets a new name.
func TestRenameOfTheFile(t *testing.T) {
	n := newNode(t, "10.3.0.20", sticky)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	n.add(t, "c2/eth0", "web-0", "10.3.0.2")
	n.add(t, "c3/eth0", "web-1", "10.3.0.3")
	n.del(t, "c3/eth0")
	want := n.lines(t)
	told := n.eventLines(t, "10.3.0.2")

	to := n.withNetwork("new")
	if count, err := n.rename(t, to); count != 2 || err != nil {
		t.Fatalf("%d leases, %v", count, err)
	}
	n.expectNoStore(t)
	to.expect(t, "renamed", want...)
	if diff := cmp.Diff(told, to.eventLines(t, "10.3.0.2")); diff != "" {
		t.Errorf("the history (-before +after):\n%s", diff)
	}
	if l := to.get(t, "10.3.0.2"); l.Network != "new" || !l.HeldBy(to.key("c1/eth0")) || !strings.Contains(l.Describe(), "eth0 of c2 on new") {
		t.Errorf("%+v, %s", l, l.Describe())
	}
	to.del(t, "c1/eth0")
	to.add(t, "c4/eth0", "web-1", "10.3.0.3")
	to.expect(t, "used", "10.3.0.2 held c2/eth0 web-0", "10.3.0.3 held c4/eth0 web-1")
}

// If the other network already has leases, these are added to them.
func TestRenameIntoANetworkWithLeases(t *testing.T) {
	n := newNode(t, "10.3.0.20", sticky)
	to := n.withNetwork("new")
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	n.add(t, "c2/eth0", "web-0", "10.3.0.2")
	n.add(t, "c3/eth0", "web-1", "10.3.0.3")
	n.del(t, "c3/eth0")
	n.policy = minute
	n.add(t, "c4/eth0", "", "10.3.0.4")
	n.add(t, "c5/eth0", "", "10.3.0.5")
	n.del(t, "c5/eth0")
	n.later(time.Minute)
	n.add(t, "c6/eth0", "", "10.3.0.6")
	n.del(t, "c6/eth0")
	to.day, to.uptime = n.day, n.uptime
	// Here another pod had an address and is gone.
	to.addWanted(t, "n1/eth0", "x", "10.3.0.4")
	to.policy = minute
	to.addWanted(t, "n2/eth0", "y", "10.3.0.9")
	_, _, err := to.store(t).ReleaseByHand(t.Context(), addr("10.3.0.4"), Expected{Lease: to.get(t, "10.3.0.4")})
	must(t, err)

	was := n.eventLines(t, "10.3.0.2")
	if count, err := n.rename(t, to); count != 4 || err != nil {
		t.Fatalf("%d leases, %v", count, err)
	}
	n.expectNoStore(t)
	merged := []string{
		"10.3.0.2 held c1/eth0+c2/eth0 web-0", "10.3.0.3 reserved c3/eth0 web-1", "10.3.0.4 held c4/eth0",
		"10.3.0.6 quarantined c6/eth0", "10.3.0.9 held n2/eth0 y",
	}
	to.expect(t, "merged", merged...)
	want := append(was, "05:07 taken in c2/eth0 web-0-uid web-0 (from network pods) held")
	if diff := cmp.Diff(want, to.eventLines(t, "10.3.0.2")); diff != "" {
		t.Errorf("the history (-want +got):\n%s", diff)
	}
	to.del(t, "c4/eth0")
	to.add(t, "c7/eth0", "web-1", "10.3.0.3")
	to.expect(t, "used", "10.3.0.2 held c1/eth0+c2/eth0 web-0", "10.3.0.3 held c7/eth0 web-1", "10.3.0.4 quarantined c4/eth0",
		"10.3.0.6 quarantined c6/eth0", "10.3.0.9 held n2/eth0 y")
}

// A rename moves all leases or none. Its error names every lease that is in the way.
func TestRenameThatClashesChangesNothing(t *testing.T) {
	n := newNode(t, "10.3.0.20", sticky)
	to := n.withNetwork("new")
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	n.add(t, "c2/eth0", "web-1", "10.3.0.3")
	n.add(t, "c3/eth0", "web-2", "10.3.0.4")
	to.addWanted(t, "n1/eth0", "x", "10.3.0.2")
	to.addWanted(t, "n2/eth0", "y", "10.3.0.4")
	to.del(t, "n2/eth0")
	before, there := n.lines(t), to.lines(t)
	_, err := n.rename(t, to)
	var clash *ClashError
	if !errors.As(err, &clash) {
		t.Fatalf("%v", err)
	}
	want := []string{
		"10.3.0.2 is held by eth0 of c1 on pods (pod default/web-0), and held by eth0 of n1 on new (pod default/x)",
		"10.3.0.4 is held by eth0 of c3 on pods (pod default/web-2), and reserved for pod default/y",
	}
	if diff := cmp.Diff(want, clash.Clashes); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err.Error() != strings.Join(want, "\n") {
		t.Errorf("it says %q", err)
	}
	n.expect(t, "the old one after the clash", before...)
	to.expect(t, "after the clash", there...)
	if got := to.eventLines(t, "10.3.0.3"); len(got) > 0 {
		t.Errorf("of what was not taken in: %q", got)
	}
	// Once they are out of the way, the rename works.
	to.del(t, "n1/eth0")
	for _, a := range []string{"10.3.0.2", "10.3.0.4"} {
		for range 2 { // A reservation leaves a quarantine behind.
			l := to.get(t, a)
			_, _, err := to.store(t).ReleaseByHand(t.Context(), addr(a), Expected{Lease: l})
			must(t, err)
			if l.State == Quarantined {
				break
			}
		}
	}
	if count, err := n.rename(t, to); count != 3 || err != nil {
		t.Errorf("%d leases, %v", count, err)
	}
	to.expect(t, "at last", "10.3.0.2 held c1/eth0 web-0", "10.3.0.3 held c2/eth0 web-1", "10.3.0.4 held c3/eth0 web-2")
}

// The events of both names are told in the order of time, even where no lease was left.
func TestRenameTellsWhatHappenedByBothNames(t *testing.T) {
	n := newNode(t, "10.3.0.20", Policy{})
	to := n.withNetwork("new")
	both := func(d time.Duration) {
		n.later(d)
		to.day, to.uptime = n.day, n.uptime
	}
	n.addWanted(t, "c1/eth0", "a", "10.3.0.2")
	both(time.Minute)
	to.addWanted(t, "n1/eth0", "b", "10.3.0.2")
	both(time.Minute)
	n.del(t, "c1/eth0")
	both(time.Minute)
	to.del(t, "n1/eth0")
	_, err := n.rename(t, to)
	must(t, err)
	want := []string{
		"05:06 given c1/eth0 a-uid a (requested) held", "05:07 given n1/eth0 b-uid b (requested) held",
		"05:08 given up c1/eth0 a-uid a (released)", "05:09 given up n1/eth0 b-uid b (released)",
	}
	if diff := cmp.Diff(want, to.eventLines(t, "10.3.0.2")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// After a boot the new name gives addresses first. Only then somebody renames the old one. What the old one held in the
// earlier boot is given up, because no boot of the new one would do it.
func TestRenameOfAnEarlierBoot(t *testing.T) {
	for name, first := range map[string]bool{"the new name has given addresses in this boot": true, "nobody has given an address in this boot": false} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "10.3.0.9", sticky)
			n.add(t, "c1/eth0", "web-0", "10.3.0.2")
			n.policy = minute
			n.add(t, "c2/eth0", "", "10.3.0.3")
			to := n.withNetwork("new")
			if !first {
				to.addWanted(t, "n0/eth0", "x", "10.3.0.8")
			}
			n.reboot("boot-2", time.Minute)
			to.boot, to.day, to.uptime = n.boot, n.day, n.uptime
			if first {
				to.addWanted(t, "n1/eth0", "x", "10.3.0.8")
			}
			if _, err := n.rename(t, to); err != nil {
				t.Fatal(err)
			}
			to.policy = sticky
			to.later(2 * time.Minute)
			to.add(t, "n2/eth0", "web-0", "10.3.0.2")
			to.policy = minute
			to.addWanted(t, "n3/eth0", "web-1", "10.3.0.3")
			lines := to.lines(t)
			if diff := cmp.Diff([]string{"10.3.0.2 held n2/eth0 web-0", "10.3.0.3 held n3/eth0 web-1"}, lines[:2]); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			to.expectVerified(t)
		})
	}
}

// The time of one store can be far from that of the other. A lease that ends by itself still has as long to go as
// before.
func TestRenameBetweenClocks(t *testing.T) {
	for name, off := range map[string]time.Duration{"the old one is ahead": 10 * 365 * 24 * time.Hour, "the old one is behind": -90 * 24 * time.Hour, "both are right": 0} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "10.3.0.9", stickyFor(72*time.Hour))
			to := n.withNetwork("new")
			n.day = n.day.Add(off)
			n.add(t, "c1/eth0", "web-0", "10.3.0.2")
			n.del(t, "c1/eth0")
			n.reserve(t, "10.3.0.5", "web-5", 24*time.Hour)
			to.addWanted(t, "n1/eth0", "x", "10.3.0.8")
			n.later(time.Hour)
			to.later(time.Hour)
			n.day = to.day
			if _, err := n.rename(t, to); err != nil {
				t.Fatal(err)
			}
			to.later(23*time.Hour - time.Millisecond)
			to.expect(t, "before the first ends", "10.3.0.2 reserved c1/eth0 web-0", "10.3.0.5 reserved web-5", "10.3.0.8 held n1/eth0 x")
			to.later(time.Millisecond)
			to.expect(t, "the first has ended", "10.3.0.2 reserved c1/eth0 web-0", "10.3.0.8 held n1/eth0 x")
			to.later(48 * time.Hour)
			to.expect(t, "the second has ended", "10.3.0.8 held n1/eth0 x")
		})
	}
}

func TestRenameThatHasNothingToDo(t *testing.T) {
	n := newNode(t, "10.3.0.9", minute)
	to := n.withNetwork("new")
	_, err := n.rename(t, to)
	n.refused(t, "nothing was ever given", err, ErrNotLeased, "network pods: nothing is leased (no DIR/pods.db)")
	n.add(t, "c1/eth0", "", "10.3.0.2")
	if _, err := n.rename(t, n); err == nil || err.Error() != "network pods has that name already" {
		t.Errorf("the same name: %v", err)
	}
	n.expect(t, "after it", "10.3.0.2 held c1/eth0")
}

// A store is renamed while an ADD waits for it. The ADD makes no second store under the old name.
func TestRenameWhileAnAddWaits(t *testing.T) {
	n := newNode(t, "10.3.0.9", minute)
	n.add(t, "c1/eth0", "", "10.3.0.2")
	_, letGo := n.lockStore(t)
	s, done := n.store(t), make(chan error)
	go func() {
		_, err := s.Allocate(context.Background(), n.request("c2/eth0", ""))
		done <- err
	}()
	n.waitUntilOpened(t)
	must(t, os.Rename(n.path(), n.withNetwork("new").path()))
	letGo()
	n.refused(t, "ADD", <-done, ErrMoved, "store DIR/pods.db: somebody moved it away while it was waited for")
	n.expectNoStore(t)
}

// If one owner has two reservations, the stronger one stays.
func TestRenameKeepsTheStrongerReservation(t *testing.T) {
	n := newNode(t, "10.3.0.20", stickyFor(time.Hour))
	to := n.withNetwork("new")
	to.policy = stickyFor(time.Minute)
	for _, one := range []*node{n, to} {
		one.addWanted(t, "c1/eth0", "web-0", "10.3.0.2")
		one.addWanted(t, "c2/eth0", "web-1", "10.3.0.3")
		one.del(t, "c1/eth0")
		one.del(t, "c2/eth0")
	}
	n.reserve(t, "10.3.0.3", "web-1", 0)
	_, err := n.rename(t, to)
	must(t, err)
	to.later(59 * time.Minute)
	to.expect(t, "before the longer one ends", "10.3.0.2 reserved c1/eth0 web-0", "10.3.0.3 reserved c2/eth0 web-1")
	to.later(time.Hour)
	to.expect(t, "what somebody has reserved by hand", "10.3.0.3 reserved c2/eth0 web-1")
}

// The known ranges move too, except those that ADDs of the other name ask for.
func TestRenameTakesTheRangesThatTheOtherDoesNotKnow(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	to := n.withNetwork("new")
	n.sets = []RangeSet{n.sets[0], tenAddresses(7)}
	n.add(t, "c1/eth0", "", "10.3.0.2 10.7.0.10")
	to.addWanted(t, "n1/eth0", "x", "10.3.0.9")
	_, err := n.rename(t, to)
	must(t, err)
	to.reserve(t, "10.7.0.19", "web-9", 0)
	u, err := to.store(t).Usage(t.Context())
	must(t, err)
	if len(u.Sets) != 2 || u.Sets[1].Set != 1 || u.Outside != 0 {
		t.Errorf("%+v", u)
	}
}
