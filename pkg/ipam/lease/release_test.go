package lease

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
)

// The DEL of a holder never came, and its sandbox is proven gone. Then its hold ends: for exactly the holder that
// somebody looked at, and for nobody who came later.
func TestAbandon(t *testing.T) {
	for name, test := range map[string]struct {
		// meanwhile happens after somebody has looked at c1's hold.
		meanwhile func(t *testing.T, n *node)
		is        error
		msg       string
		want      []string
	}{
		"it has it still": {func(*testing.T, *node) {}, nil, "<nil>", []string{"10.3.0.2 reserved c1/eth0 web-0"}},
		"beside its next sandbox": {func(t *testing.T, n *node) { n.add(t, "c2/eth0", "web-0", "10.3.0.2") },
			nil, "<nil>", []string{"10.3.0.2 held c2/eth0 web-0"}},
		"its next sandbox has settled": {func(t *testing.T, n *node) {
			n.add(t, "c2/eth0", "web-0", "10.3.0.2")
			n.settled(t, "c2/eth0")
		}, ErrHolderChanged, "10.3.0.2 is not as expected: it is held by eth0 of c2 on pods (pod default/web-0)", []string{"10.3.0.2 held c2/eth0 web-0"}},
		"its DEL has come": {func(t *testing.T, n *node) { n.del(t, "c1/eth0") },
			ErrHolderChanged, "10.3.0.2 is not as expected: it is reserved for pod default/web-0", []string{"10.3.0.2 reserved c1/eth0 web-0"}},
		"it was given it again": {func(t *testing.T, n *node) {
			n.del(t, "c1/eth0")
			n.later(time.Second)
			n.add(t, "c1/eth0", "web-0", "10.3.0.2")
		}, ErrHolderChanged, "10.3.0.2 is not as expected: it is held by eth0 of c1 on pods (pod default/web-0)", []string{"10.3.0.2 held c1/eth0 web-0"}},
		"it is free": {func(t *testing.T, n *node) {
			n.del(t, "c1/eth0")
			err := n.store(t).ReleaseByHand(t.Context(), n.get(t, "10.3.0.2"))
			must(t, err)
			n.later(time.Hour)
		}, ErrNotLeased, "10.3.0.2 is free in network pods: nothing is leased", nil},
		"a boot": {func(_ *testing.T, n *node) { n.reboot("boot-2", time.Second) },
			ErrHolderChanged, "10.3.0.2 is not as expected: it is reserved for pod default/web-0", []string{"10.3.0.2 reserved c1/eth0 web-0"}},
	} {
		n := newNode(t, "10.3.0.9", sticky)
		n.add(t, "c1/eth0", "web-0", "10.3.0.2")
		seen := n.get(t, "10.3.0.2")
		test.meanwhile(t, n)
		err := n.store(t).RemoveHolder(t.Context(), seen, seen.Holders[0], "no namespace has inode 4:5")
		n.refused(t, name, err, test.is, test.msg)
		n.expect(t, name, test.want...)
	}
}

func TestAbandonIsTold(t *testing.T) {
	n := newNode(t, "10.3.0.9", minute)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	l := n.get(t, "10.3.0.2")
	must(t, n.store(t).RemoveHolder(t.Context(), l, l.Holders[0], "no namespace has inode 4:5"))
	told := n.eventLines(t, "10.3.0.2")
	if want := "05:06 given up c1/eth0 web-0-uid web-0 (no namespace has inode 4:5) quarantined"; told[1] != want {
		t.Errorf("%q, want %q", told[1], want)
	}
	if l := n.get(t, "10.3.0.2"); l.Reason != "no namespace has inode 4:5" || l.Describe() != "in quarantine: no namespace has inode 4:5" {
		t.Errorf("%+v, %s", l, l.Describe())
	}
}

// A proof about one namespace is no proof for a holder with another namespace.
func TestAbandonComparesTheNamespace(t *testing.T) {
	n := newNode(t, "10.3.0.9", minute)
	r := n.request("c1/eth0", "")
	r.Namespace = attachment.Namespace{Device: 4, Inode: 5, Cookie: 6}
	_, err := n.store(t).Allocate(t.Context(), r)
	must(t, err)
	l := n.get(t, "10.3.0.2")
	other := l.Holders[0]
	other.Namespace.Cookie = 7
	n.refused(t, "another cookie", n.store(t).RemoveHolder(t.Context(), l, other, "gone"), ErrHolderChanged,
		"10.3.0.2 is not as expected: it is held by eth0 of c1 on pods")
	must(t, n.store(t).RemoveHolder(t.Context(), l, l.Holders[0], "gone"))
}

// The policy of the last holder decides about the address, whoever came first.
func TestPolicyOfTheLastHolder(t *testing.T) {
	for name, test := range map[string]struct {
		old, next Policy
		// order is the order of the DELs.
		order []string
		want  string
	}{
		"the old one goes first":          {sticky, minute, []string{"old/eth0", "new/eth0"}, "10.3.0.2 quarantined new/eth0 web-0"},
		"the new one goes first":          {sticky, minute, []string{"new/eth0", "old/eth0"}, "10.3.0.2 reserved old/eth0 web-0"},
		"sticky came with the new one":    {minute, sticky, []string{"old/eth0", "new/eth0"}, "10.3.0.2 reserved new/eth0 web-0"},
		"sticky came, the new one failed": {minute, sticky, []string{"new/eth0", "old/eth0"}, "10.3.0.2 quarantined old/eth0 web-0"},
		"no quarantine with the last":     {sticky, Policy{}, []string{"old/eth0", "new/eth0"}, ""},
	} {
		n := newNode(t, "10.3.0.9", test.old)
		n.add(t, "old/eth0", "web-0", "10.3.0.2")
		n.policy = test.next
		n.add(t, "new/eth0", "web-0", "10.3.0.2")
		for _, sandbox := range test.order {
			n.del(t, sandbox)
		}
		var want []string
		if test.want != "" {
			want = []string{test.want}
		}
		n.expect(t, name, want...)
	}
}

// If a GC finds both sandboxes gone, the policy of the newer one decides.
func TestGC(t *testing.T) {
	n := newNode(t, "10.3.0.9", minute)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	n.add(t, "c1/net1", "web-0", "10.3.0.3")
	n.policy = sticky
	n.add(t, "c2/eth0", "web-1", "10.3.0.4")
	n.add(t, "c3/eth0", "web-1", "10.3.0.4")
	gc := func(valid ...string) {
		t.Helper()
		must(t, n.store(t).Collect(t.Context(), func(k Holder) bool {
			for _, v := range valid {
				if n.key(v) == k.Key(n.network) {
					return true
				}
			}
			return false
		}))
	}
	gc("c1/eth0", "c1/net1", "c2/eth0", "c3/eth0")
	n.expect(t, "all valid", "10.3.0.2 held c1/eth0 web-0", "10.3.0.3 held c1/net1 web-0", "10.3.0.4 held c2/eth0+c3/eth0 web-1")
	gc("c1/net1", "c2/eth0", "c9/eth0")
	n.expect(t, "the new one is not", "10.3.0.2 quarantined c1/eth0 web-0", "10.3.0.3 held c1/net1 web-0", "10.3.0.4 held c2/eth0 web-1")
	n.add(t, "c3/eth0", "web-1", "10.3.0.4")
	gc()
	n.expect(t, "none is", "10.3.0.2 quarantined c1/eth0 web-0", "10.3.0.3 quarantined c1/net1 web-0", "10.3.0.4 reserved c3/eth0 web-1")
}

// An address is not reserved if nobody would ever ask for it again: the owner has another address of the set on the
// same interface.
func TestReservationsThatNobodyWouldAskForAreNotMade(t *testing.T) {
	for name, test := range map[string]struct {
		// after happens once web-0 has had 10.3.0.2 on eth0 of c1.
		after func(t *testing.T, n *node)
		want  []string
	}{
		"the next sandbox asked for another": {func(t *testing.T, n *node) {
			n.addWanted(t, "c2/eth0", "web-0", "10.3.0.9")
			n.del(t, "c1/eth0")
		}, []string{"10.3.0.2 quarantined c1/eth0 web-0", "10.3.0.9 held c2/eth0 web-0"}},
		"it asked for another after the DEL": {func(t *testing.T, n *node) {
			n.del(t, "c1/eth0")
			n.addWanted(t, "c2/eth0", "web-0", "10.3.0.9")
		}, []string{"10.3.0.2 quarantined c1/eth0 web-0", "10.3.0.9 held c2/eth0 web-0"}},
		"and long after it": {func(t *testing.T, n *node) {
			n.del(t, "c1/eth0")
			n.later(time.Hour)
			n.addWanted(t, "c2/eth0", "web-0", "10.3.0.9")
		}, []string{"10.3.0.9 held c2/eth0 web-0"}},
		"on another interface": {func(t *testing.T, n *node) {
			n.addWanted(t, "c2/net1", "web-0", "10.3.0.9")
			n.del(t, "c1/eth0")
		}, []string{"10.3.0.2 reserved c1/eth0 web-0", "10.3.0.9 held c2/net1 web-0"}},
		"on another interface after the DEL": {func(t *testing.T, n *node) {
			n.del(t, "c1/eth0")
			n.addWanted(t, "c2/net1", "web-0", "10.3.0.9")
		}, []string{"10.3.0.2 reserved c1/eth0 web-0", "10.3.0.9 held c2/net1 web-0"}},
		"of another set": {func(t *testing.T, n *node) {
			n.sets = []RangeSet{tenAddresses(4)}
			n.add(t, "c2/eth0", "web-0", "10.4.0.10")
			n.del(t, "c1/eth0")
		}, []string{"10.3.0.2 reserved c1/eth0 web-0", "10.4.0.10 held c2/eth0 web-0"}},
		"of another pod": {func(t *testing.T, n *node) {
			n.addWanted(t, "c2/eth0", "web-1", "10.3.0.9")
			n.del(t, "c1/eth0")
		}, []string{"10.3.0.2 reserved c1/eth0 web-0", "10.3.0.9 held c2/eth0 web-1"}},
		"reserved by hand": {func(t *testing.T, n *node) {
			n.reserve(t, "10.3.0.2", "web-0", 0)
			n.addWanted(t, "c2/eth0", "web-0", "10.3.0.9")
			n.del(t, "c1/eth0")
		}, []string{"10.3.0.2 reserved c1/eth0 web-0", "10.3.0.9 held c2/eth0 web-0"}},
		"reserved by hand after the DEL": {func(t *testing.T, n *node) {
			n.del(t, "c1/eth0")
			n.reserve(t, "10.3.0.2", "web-0", 0)
			n.addWanted(t, "c2/eth0", "web-0", "10.3.0.9")
		}, []string{"10.3.0.2 reserved c1/eth0 web-0", "10.3.0.9 held c2/eth0 web-0"}},
		"the other one is given up, too": {func(t *testing.T, n *node) {
			n.addWanted(t, "c2/eth0", "web-0", "10.3.0.9")
			n.del(t, "c2/eth0")
			n.del(t, "c1/eth0")
		}, []string{"10.3.0.2 reserved c1/eth0 web-0", "10.3.0.9 quarantined c2/eth0 web-0"}},
	} {
		n := newNode(t, "10.3.0.9", sticky)
		n.add(t, "c1/eth0", "web-0", "10.3.0.2")
		test.after(t, n)
		n.expect(t, name, test.want...)
	}
}

func TestReleaseByHand(t *testing.T) {
	for name, test := range map[string]struct {
		before func(t *testing.T, n *node)
		// meant are the containers that the user means, none for all.
		meant []string
		// since happens between the look and the release.
		since func(t *testing.T, n *node)
		is    error
		msg   string
		want  []string
	}{
		"a holder": {func(t *testing.T, n *node) { n.add(t, "c1/eth0", "web-0", "10.3.0.2") }, []string{"c1"}, nil,
			nil, "<nil>", []string{"10.3.0.2 quarantined c1/eth0 web-0"}},
		"one of two holders": {twoSandboxes, []string{"c2"}, nil, nil, "<nil>", []string{"10.3.0.2 held c1/eth0 web-0"}},
		"both holders":       {twoSandboxes, nil, nil, nil, "<nil>", []string{"10.3.0.2 quarantined c2/eth0 web-0"}},
		"another sandbox": {func(t *testing.T, n *node) { n.add(t, "c1/eth0", "web-0", "10.3.0.2") }, []string{"c2"}, nil,
			ErrHolderChanged, "10.3.0.2 is not as expected: it is held by eth0 of c1 on pods (pod default/web-0)", []string{"10.3.0.2 held c1/eth0 web-0"}},
		"a fresh reservation": {func(t *testing.T, n *node) { n.add(t, "c1/eth0", "web-0", "10.3.0.2"); n.del(t, "c1/eth0") }, nil, nil,
			nil, "<nil>", []string{"10.3.0.2 quarantined c1/eth0 web-0"}},
		"an old reservation": {func(t *testing.T, n *node) {
			n.add(t, "c1/eth0", "web-0", "10.3.0.2")
			n.del(t, "c1/eth0")
			n.later(time.Minute)
		}, nil, nil, nil, "<nil>", nil},
		"a quarantine": {quarantined, nil, nil, nil, "<nil>", nil},
		"what was reserved by hand and held": {func(t *testing.T, n *node) {
			n.reserve(t, "10.3.0.2", "web-0", 0)
			n.add(t, "c1/eth0", "web-0", "10.3.0.2")
		}, []string{"c1"}, nil, nil, "<nil>", []string{"10.3.0.2 quarantined c1/eth0 web-0"}},
		"what is free": {func(t *testing.T, n *node) { n.addWanted(t, "c1/eth0", "web-0", "10.3.0.3") }, nil, nil,
			ErrNotLeased, "10.3.0.2 is free in network pods: nothing is leased", []string{"10.3.0.3 held c1/eth0 web-0"}},
		"the reservation was taken": {func(t *testing.T, n *node) { n.reserve(t, "10.3.0.2", "web-0", 0) }, nil,
			func(t *testing.T, n *node) { n.add(t, "c1/eth0", "web-0", "10.3.0.2") },
			ErrHolderChanged, "10.3.0.2 is not as expected: it is held by eth0 of c1 on pods (pod default/web-0)", []string{"10.3.0.2 held c1/eth0 web-0"}},
		"the pod has another sandbox besides": {func(t *testing.T, n *node) { n.add(t, "c1/eth0", "web-0", "10.3.0.2") }, nil,
			func(t *testing.T, n *node) { n.add(t, "c2/eth0", "web-0", "10.3.0.2") },
			nil, "<nil>", []string{"10.3.0.2 held c2/eth0 web-0"}},
		"one of two sandboxes is gone": {twoSandboxes, nil, func(t *testing.T, n *node) { n.del(t, "c1/eth0") },
			ErrHolderChanged, "10.3.0.2 is not as expected: it is held by eth0 of c2 on pods (pod default/web-0)", []string{"10.3.0.2 held c2/eth0 web-0"}},
		"its DEL has come": {func(t *testing.T, n *node) { n.add(t, "c1/eth0", "web-0", "10.3.0.2") }, nil, func(t *testing.T, n *node) { n.del(t, "c1/eth0") },
			ErrHolderChanged, "10.3.0.2 is not as expected: it is reserved for pod default/web-0", []string{"10.3.0.2 reserved c1/eth0 web-0"}},
		"another quarantine": {quarantined, nil, func(t *testing.T, n *node) {
			n.later(time.Hour)
			n.addWanted(t, "c2/eth0", "web-0", "10.3.0.2")
			n.del(t, "c2/eth0")
		}, ErrHolderChanged, "10.3.0.2 is not as expected: it is in quarantine: released", []string{"10.3.0.2 quarantined c2/eth0 web-0"}},
		"a boot": {func(t *testing.T, n *node) { n.add(t, "c1/eth0", "web-0", "10.3.0.2") }, nil,
			func(_ *testing.T, n *node) { n.reboot("boot-2", time.Second) },
			ErrHolderChanged, "10.3.0.2 is not as expected: it is reserved for pod default/web-0", []string{"10.3.0.2 reserved c1/eth0 web-0"}},
	} {
		n := newNode(t, "10.3.0.9", sticky)
		test.before(t, n)
		seen, err := n.store(t).Get(t.Context(), addr("10.3.0.2"))
		if !errors.Is(err, ErrNotLeased) {
			must(t, err)
		}
		if test.since != nil {
			test.since(t, n)
		}
		var meant []Holder
		for _, c := range test.meant {
			h := Holder{ContainerID: c, IfName: "eth0"}
			if i := slices.IndexFunc(seen.Holders, h.sameAttachment); i >= 0 {
				h = seen.Holders[i]
			}
			meant = append(meant, h)
		}
		seen.Address = addr("10.3.0.2")
		n.refused(t, name, n.store(t).ReleaseByHand(t.Context(), seen, meant...), test.is, test.msg)
		n.expect(t, name, test.want...)
	}
}

func twoSandboxes(t *testing.T, n *node) {
	t.Helper()
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	n.add(t, "c2/eth0", "web-0", "10.3.0.2")
}

func quarantined(t *testing.T, n *node) {
	t.Helper()
	n.policy = minute
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	n.del(t, "c1/eth0")
}

// The configuration has become sticky since the ADD. A DEL with it keeps the address for the owner.
func TestDelWithAConfigurationThatBecameSticky(t *testing.T) {
	for name, test := range map[string]struct {
		was, is Policy
		want    string
		until   time.Duration
	}{
		"it became sticky":         {minute, stickyFor(time.Hour), "10.3.0.2 reserved c1/eth0 web-0", time.Hour},
		"it was sticky for longer": {stickyFor(2 * time.Hour), stickyFor(time.Hour), "10.3.0.2 reserved c1/eth0 web-0", 2 * time.Hour},
		"it is sticky no more":     {stickyFor(time.Hour), minute, "10.3.0.2 reserved c1/eth0 web-0", time.Hour},
		"neither":                  {minute, minute, "10.3.0.2 quarantined c1/eth0 web-0", time.Minute},
	} {
		n := newNode(t, "10.3.0.9", test.was)
		n.add(t, "c1/eth0", "web-0", "10.3.0.2")
		n.add(t, "c1/net1", "", "10.3.0.3")
		must(t, n.store(t).Release(t.Context(), n.key("c1/eth0"), test.is))
		n.expect(t, name, test.want, "10.3.0.3 held c1/net1")
		if l := n.get(t, "10.3.0.2"); !l.Until.Equal(n.day.Add(test.until)) {
			t.Errorf("%s: until %s", name, l.Until)
		}
		must(t, n.store(t).Release(t.Context(), n.key("c1/net1"), test.is))
		if l := n.get(t, "10.3.0.3"); l.State != Quarantined {
			t.Errorf("%s: without an owner it is %s", name, l.State)
		}
	}
}

// The addresses of owners became addresses of pods. A pod of its own was its own owner, by its UID: the next pod of its name
// gets the address, and nothing is kept for a UID.
func TestDelOfAPodThatWasItsOwnOwner(t *testing.T) {
	n := newNode(t, "10.3.0.9", minute)
	r := n.request("c1/eth0", "web-0")
	r.Owner.UID, r.APIOwner, r.AlternateOwner, r.Policy.ByOwner = r.Pod.UID, r.Owner, pod("web-0"), true
	r.APIOwner.UID = r.Pod.UID
	if _, err := n.store(t).Allocate(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	must(t, n.store(t).Release(t.Context(), n.key("c1/eth0"), stickyFor(0)))
	n.expect(t, "after the DEL", "10.3.0.2 reserved c1/eth0 web-0")
	if l := n.get(t, "10.3.0.2"); l.Owner != pod("web-0") {
		t.Errorf("it is kept for %+v", l.Owner)
	}
	n.policy = stickyFor(0)
	n.add(t, "c2/eth0", "web-1", "10.3.0.3")
	n.add(t, "c3/eth0", "web-0", "10.3.0.2")
}
