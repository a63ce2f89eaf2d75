package lease

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
)

func TestAddThatIsRepeatedGivesTheSame(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	n.sets = append(n.sets, RangeSet{{Span: span("2001:db8::2", "2001:db8::ffff"), Gateway: addr("2001:db8::1")}})
	for range 3 {
		n.add(t, "c1/eth0", "web-0", "10.3.0.2 2001:db8::2")
		n.later(time.Hour)
	}
	_, err := n.try(t, "c1/eth0", "web-0", "10.3.0.9")
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Reason != "cannot be given: eth0 of c1 on pods holds 10.3.0.2 already; DEL it first" {
		t.Errorf("another address: %v", err)
	}
	if got, err := n.try(t, "c1/eth0", "web-0", "10.3.0.2"); err != nil || got != "10.3.0.2 2001:db8::2" {
		t.Errorf("the same one: %s, %v", got, err)
	}
	n.expect(t, "after all", "10.3.0.2 held c1/eth0 web-0", "2001:db8::2 held c1/eth0 web-0")
}

// A pod's next sandbox holds the address beside the earlier one. If the ADD fails, its DEL leaves the earlier
// holder as it was, and nobody else gets the address, even after retain.
func TestTakeoverWhoseAddFails(t *testing.T) {
	n := newNode(t, "10.3.0.4", stickyFor(time.Hour))
	n.add(t, "old/eth0", "web-0", "10.3.0.2")
	before := n.get(t, "10.3.0.2")
	for range 3 {
		n.later(time.Minute)
		n.add(t, "new/eth0", "web-0", "10.3.0.2")
		n.expect(t, "both have it", "10.3.0.2 held old/eth0+new/eth0 web-0")
		if l := n.get(t, "10.3.0.2"); l.Holders[1].Origin != TakenOver {
			t.Errorf("the new one's origin: %s", l.Holders[1].Origin)
		}
		n.del(t, "new/eth0")
		if diff := cmp.Diff(before, n.get(t, "10.3.0.2"), sameLease); diff != "" {
			t.Errorf("after the DEL of the new one (-before +after):\n%s", diff)
		}
	}
	n.later(48 * time.Hour) // Far beyond retain.
	n.add(t, "x/eth0", "web-1", "10.3.0.3")
	n.add(t, "y/eth0", "web-2", "10.3.0.4")
	_, err := n.try(t, "z/eth0", "web-3")
	n.refused(t, "no other is free", err, ErrExhausted,
		"range set 0 (10.3.0.2-10.3.0.4) of network pods: no address is free: 3 held, 0 reserved, 0 in quarantine; relink ipam list says for whom")
	_, err = n.try(t, "z/eth0", "web-3", "10.3.0.2")
	n.refused(t, "asked for", err, ErrTaken,
		"each of the requested addresses is not available: 10.3.0.2 is held by eth0 of old on pods (pod default/web-0)")
	n.del(t, "old/eth0")
	n.expect(t, "its own DEL", "10.3.0.2 reserved old/eth0 web-0", "10.3.0.3 held x/eth0 web-1", "10.3.0.4 held y/eth0 web-2")
}

// A StatefulSet's next pod starts before the last pod's sandbox is torn down. The late DEL frees nothing, before
// the new sandbox has settled and after.
func TestTakeoverThatSucceeds(t *testing.T) {
	for name, settled := range map[string]bool{"the DEL of the old one comes": false, "the new one settles first": true} {
		n := newNode(t, "10.3.0.4", sticky)
		n.add(t, "old/eth0", "web-0", "10.3.0.2")
		n.policy = stickyFor(time.Hour)
		n.add(t, "new/eth0", "web-0", "10.3.0.2")
		if settled {
			n.settled(t, "new/eth0")
			n.expect(t, name+": settled", "10.3.0.2 held new/eth0 web-0")
			n.settled(t, "new/eth0")
		}
		n.del(t, "old/eth0")
		n.expect(t, name, "10.3.0.2 held new/eth0 web-0")
		n.del(t, "new/eth0")
		n.expect(t, name+": its own DEL", "10.3.0.2 reserved new/eth0 web-0")
		n.later(time.Hour)
		n.expect(t, name+": the last one's policy counts")
	}
}

// An ADD that succeeds late does not take the address from the sandbox that came after it.
func TestLateSuccessLeavesTheNextSandbox(t *testing.T) {
	n := newNode(t, "10.3.0.4", sticky)
	for i := range 3 {
		n.add(t, fmt.Sprintf("c%d/eth0", i), "web-0", "10.3.0.2")
	}
	n.settled(t, "c0/eth0")
	n.expect(t, "the first", "10.3.0.2 held c0/eth0+c1/eth0+c2/eth0 web-0")
	n.settled(t, "c1/eth0")
	n.expect(t, "the second", "10.3.0.2 held c1/eth0+c2/eth0 web-0")
	n.settled(t, "c2/eth0")
	n.expect(t, "the third", "10.3.0.2 held c2/eth0 web-0")
}

func TestWhoTakesOver(t *testing.T) {
	for name, test := range map[string]struct {
		old, next Policy
		byHand    bool
		sandbox   string
		owner     string
		want      string
	}{
		"sticky":                          {sticky, sticky, false, "new/eth0", "web-0", "10.3.0.2"},
		"sticky no more":                  {sticky, minute, false, "new/eth0", "web-0", "10.3.0.2"},
		"sticky by now":                   {minute, sticky, false, "new/eth0", "web-0", "10.3.0.2"},
		"reserved by hand":                {minute, minute, true, "new/eth0", "web-0", "10.3.0.2"},
		"not sticky":                      {minute, minute, false, "new/eth0", "web-0", "10.3.0.3"},
		"another interface":               {sticky, sticky, false, "new/net1", "web-0", "10.3.0.3"},
		"another interface, same sandbox": {sticky, sticky, false, "old/net1", "web-0", "10.3.0.3"},
		"another pod":                     {sticky, sticky, true, "new/eth0", "web-1", "10.3.0.3"},
		"no pod":                          {sticky, minute, false, "new/eth0", "", "10.3.0.3"},
	} {
		n := newNode(t, "10.3.0.9", test.old)
		n.add(t, "old/eth0", "web-0", "10.3.0.2")
		if test.byHand {
			n.reserve(t, "10.3.0.2", "web-0", 0)
		}
		n.policy = test.next
		if got, err := n.try(t, test.sandbox, test.owner); err != nil || got != test.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, test.want)
		}
	}
}

// An address that an operator reserved comes first, and of several the newest one.
func TestWhichOfTheOwnersAddresses(t *testing.T) {
	// had gives the address to the pod on this interface, and then takes it away.
	had := func(t *testing.T, n *node, sandbox, a string) {
		t.Helper()
		n.addWanted(t, sandbox, "web-0", a)
		n.del(t, sandbox)
		n.later(time.Second)
	}
	by := func(t *testing.T, n *node, a string, retain time.Duration) {
		t.Helper()
		n.reserve(t, a, "web-0", retain)
		n.later(time.Second)
	}
	for name, test := range map[string]struct {
		before func(t *testing.T, n *node)
		want   string
	}{
		"the newest by hand": {func(t *testing.T, n *node) {
			by(t, n, "10.3.0.9", 0)
			by(t, n, "10.3.0.5", 0)
		}, "10.3.0.5"},
		"the newest by hand, whichever address": {func(t *testing.T, n *node) {
			by(t, n, "10.3.0.5", 0)
			by(t, n, "10.3.0.9", 0)
		}, "10.3.0.9"},
		"reserved again is newer": {func(t *testing.T, n *node) {
			by(t, n, "10.3.0.5", 0)
			by(t, n, "10.3.0.9", 0)
			by(t, n, "10.3.0.5", time.Hour)
		}, "10.3.0.5"},
		"by hand before what it had": {func(t *testing.T, n *node) {
			by(t, n, "10.3.0.5", 0)
			had(t, n, "c1/eth0", "10.3.0.9")
		}, "10.3.0.5"},
		"by hand before what its sandbox holds": {func(t *testing.T, n *node) {
			n.addWanted(t, "c1/eth0", "web-0", "10.3.0.9")
			by(t, n, "10.3.0.5", 0)
		}, "10.3.0.5"},
		"what it holds, reserved by hand last": {func(t *testing.T, n *node) {
			n.addWanted(t, "c1/eth0", "web-0", "10.3.0.9")
			by(t, n, "10.3.0.5", 0)
			by(t, n, "10.3.0.9", 0)
		}, "10.3.0.9"},
		"what it has on this interface before another's by hand": {func(t *testing.T, n *node) {
			had(t, n, "c1/net1", "10.3.0.5")
			had(t, n, "c1/eth0", "10.3.0.9")
			by(t, n, "10.3.0.5", 0)
		}, "10.3.0.9"},
		"another interface's, if there is nothing else": {func(t *testing.T, n *node) { had(t, n, "c1/net1", "10.3.0.5") }, "10.3.0.5"},
		"what it holds before another interface's": {func(t *testing.T, n *node) {
			had(t, n, "c1/net1", "10.3.0.5")
			n.addWanted(t, "c2/eth0", "web-0", "10.3.0.9")
		}, "10.3.0.9"},
		"a reservation by hand that has ended is none": {func(t *testing.T, n *node) {
			by(t, n, "10.3.0.5", time.Minute)
			had(t, n, "c1/eth0", "10.3.0.5") // The policy reserves it for longer.
			had(t, n, "c2/eth0", "10.3.0.9")
			n.later(time.Minute)
		}, "10.3.0.9"},
		"nothing": {func(*testing.T, *node) {}, "10.3.0.2"},
	} {
		n := newNode(t, "10.3.0.20", sticky)
		test.before(t, n)
		if got, err := n.try(t, "new/eth0", "web-0"); err != nil || got != test.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, test.want)
		}
		n.expectVerified(t)
	}
}

// ended leaves as many ended leases as one ADD clears away, and more that end later.
func (n *node) ended(t *testing.T) {
	t.Helper()
	for i := range maxEndedPerChange {
		n.reserve(t, fmt.Sprintf("10.3.0.%d", 100+i), "other", time.Second)
	}
}

// A lease that has ended is over, even if it is not cleared away yet.
func TestReservationThatHasEndedIsNotTheOwners(t *testing.T) {
	n := newNode(t, "10.3.0.254", stickyFor(time.Hour))
	n.addWanted(t, "c1/eth0", "web-0", "10.3.0.5")
	n.reserve(t, "10.3.0.5", "web-0", time.Hour)
	n.del(t, "c1/eth0")
	n.addWanted(t, "c2/eth0", "web-0", "10.3.0.9")
	n.ended(t)
	n.later(2 * time.Hour)
	n.add(t, "c3/eth0", "web-0", "10.3.0.9")
	n.expect(t, "its sandbox before has one", "10.3.0.9 held c2/eth0+c3/eth0 web-0")
}

// The next holder of an address inherits nothing of a reservation that has ended. Otherwise the address would wait
// for the earlier pod for ever.
func TestReservationThatHasEndedIsNotInherited(t *testing.T) {
	for name, wanted := range map[string][]string{"in turn": nil, "asked for": {"10.3.0.9"}} {
		n := newNode(t, "10.3.0.254", Policy{})
		n.reserve(t, "10.3.0.9", "web-0", time.Hour)
		n.ended(t)
		n.later(2 * time.Hour)
		n.sets[0][0].Span = span("10.3.0.9", "10.3.0.9")
		if got, err := n.try(t, "c1/eth0", "next", wanted...); err != nil || got != "10.3.0.9" {
			t.Fatalf("%s: %s, %v", name, got, err)
		}
		if l := n.get(t, "10.3.0.9"); l.ByHand || !l.ByHandUntil.IsZero() || !l.ByHandAt.IsZero() || l.Owner != pod("next") {
			t.Errorf("%s: %+v", name, l)
		}
		n.del(t, "c1/eth0")
		n.expect(t, name)
	}
}

// An ADD clears away some of the ended leases, not all at once.
func TestNoAddPaysForAllThatHasEnded(t *testing.T) {
	n := newNode(t, "10.3.0.254", stickyFor(time.Hour))
	for i := range 2 * maxEndedPerChange {
		n.add(t, fmt.Sprintf("c%d/eth0", i), fmt.Sprintf("web-%d", i), fmt.Sprintf("10.3.0.%d", i+2))
		n.del(t, fmt.Sprintf("c%d/eth0", i))
	}
	n.later(2 * time.Hour)
	n.add(t, "x/eth0", "x", "10.3.0.130")
	n.expect(t, "what has ended is not listed", "10.3.0.130 held x/eth0 x")
	if got := len(contents(t, n.path())[bucketLeases]); got != maxEndedPerChange+1 {
		t.Errorf("%d leases, want %d", got, maxEndedPerChange+1)
	}
	n.add(t, "y/eth0", "y", "10.3.0.131")
	stored := contents(t, n.path())
	for bucket, want := range map[string]int{bucketLeases: 2, bucketAttachments: 2, bucketOwners: 2, bucketRuns: 1, bucketEnds: 0} {
		if got := len(stored[bucket]); got != want {
			t.Errorf("bucket %s has %d keys, want %d", bucket, got, want)
		}
	}
}

func TestRequestedAddresses(t *testing.T) {
	n := newNode(t, "10.3.0.20", sticky)
	n.sets = append(n.sets, RangeSet{{Span: span("2001:db8::2", "2001:db8::ffff"), Gateway: addr("2001:db8::1")}})
	n.sets[0][0].Excluded = []Span{span("10.3.0.8", "10.3.0.8")}
	if got, err := n.try(t, "c1/eth0", "web-0", "2001:db8::9", "10.3.0.9"); err != nil || got != "10.3.0.9 2001:db8::9" {
		t.Fatalf("one of each set: %s, %v", got, err)
	}
	n.add(t, "c2/eth0", "web-1", "10.3.0.10 2001:db8::a")
	n.del(t, "c2/eth0")
	before := n.lines(t)
	for name, test := range map[string]struct {
		wanted []string
		is     error
		why    string
	}{
		"held":           {[]string{"10.3.0.9"}, ErrTaken, "each of the requested addresses is not available: 10.3.0.9 is held by eth0 of c1 on pods (pod default/web-0)"},
		"reserved":       {[]string{"10.3.0.10"}, ErrTaken, "each of the requested addresses is not available: 10.3.0.10 is reserved for pod default/web-1"},
		"the gateway":    {[]string{"10.3.0.1"}, nil, "10.3.0.1 is in none of the range sets"},
		"excluded":       {[]string{"10.3.0.8"}, nil, "10.3.0.8 cannot be given: it is in exclude 10.3.0.8"},
		"outside":        {[]string{"10.9.0.1"}, nil, "10.9.0.1 is in none of the range sets"},
		"two of one set": {[]string{"10.3.0.12", "10.3.0.13"}, nil, "10.3.0.13 is the second address of a range set that gives one, after 10.3.0.12"},
	} {
		_, err := n.try(t, "c9/eth0", "web-9", test.wanted...)
		var refused *RefusedError
		if test.is == nil && errors.As(err, &refused) {
			test.is = refused
		}
		n.refused(t, name, err, test.is, test.why)
	}
	n.expect(t, "after all", before...)
}

// If one set fails, nothing is given from the others, and their turn stays as it was.
func TestAddThatFailsChangesNothing(t *testing.T) {
	n := newNode(t, "10.3.0.20", minute)
	n.sets = append(n.sets, RangeSet{{Span: span("10.4.0.2", "10.4.0.2"), Subnet: netip.MustParsePrefix("10.4.0.0/30"), Gateway: addr("10.4.0.1")}})
	n.add(t, "c1/eth0", "web-0", "10.3.0.2 10.4.0.2")
	before := sumOf(t, n.path())
	for range 2 {
		_, err := n.try(t, "c2/eth0", "web-1")
		n.refused(t, "the second set", err, ErrExhausted,
			"range set 1 (10.4.0.2) of network pods: no address is free: 1 held, 0 reserved, 0 in quarantine; relink ipam list says for whom")
	}
	if sumOf(t, n.path()) != before {
		t.Error("the file has changed")
	}
	n.del(t, "c1/eth0")
	n.add(t, "c4/eth0", "web-1", "10.3.0.3 10.4.0.2")
}

// A lease tells where the sandbox is that has the address, and since when it has it.
func TestHolderIsWhoAsked(t *testing.T) {
	n := newNode(t, "10.3.0.9", stickyFor(time.Hour))
	r := n.request("c1/eth0", "web-0")
	r.Namespace = attachment.Namespace{Path: "/run/netns/c1", BootID: "another boot", Device: 4, Inode: 5, Cookie: 6}
	given, err := n.store(t).Allocate(t.Context(), r)
	must(t, err)
	want := Lease{
		Address: addr("10.3.0.2"), Network: "pods", Owner: pod("web-0"), State: Held, Holders: []Holder{{
			ContainerID: "c1", IfName: "eth0", Pod: attachment.Pod{Namespace: "default", Name: "web-0", UID: "web-0-uid"}, Since: n.day, Origin: InTurn, Policy: stickyFor(time.Hour),
			Namespace: attachment.Namespace{Path: "/run/netns/c1", BootID: "boot-1", Device: 4, Inode: 5, Cookie: 6},
		}},
	}
	if diff := cmp.Diff([]Lease{want}, given, sameLease); diff != "" {
		t.Errorf("given (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, n.get(t, "10.3.0.2"), sameLease); diff != "" {
		t.Errorf("stored (-want +got):\n%s", diff)
	}
	held, err := n.store(t).HeldBy(t.Context(), n.key("c1/eth0"))
	if diff := cmp.Diff([]Lease{want}, held, sameLease); diff != "" || err != nil {
		t.Errorf("held: %v (-want +got):\n%s", err, diff)
	}
}

// The ranges moved, and were widened back. The owner's next sandbox comes before the DEL of the one before: it gets what that
// one holds, not what an earlier one left.
func TestWhatTheOwnersSandboxHoldsGoesFirst(t *testing.T) {
	n := newNode(t, "10.3.0.9", sticky)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	before := n.sets
	n.sets = []RangeSet{tenAddresses(4)}
	n.add(t, "c2/eth0", "web-0", "10.4.0.10")
	n.del(t, "c1/eth0")
	n.sets = []RangeSet{append(slices.Clone(before[0]), tenAddresses(4)...)}
	n.add(t, "c3/eth0", "web-0", "10.4.0.10")
	n.del(t, "c2/eth0")
	n.add(t, "c4/eth0", "web-0", "10.4.0.10")
}
