package lease

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Only what waits for no other reason than that its owner lives can be given up for a pod that is elsewhere.
func TestWaitsForPod(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Lease)
		want   bool
	}{
		"an ordinal":                 {func(*Lease) {}, true},
		"held":                       {func(l *Lease) { l.State = Held }, false},
		"in quarantine":              {func(l *Lease) { l.State = Quarantined }, false},
		"a virtual machine":          {func(l *Lease) { l.Owner = vm("db") }, false},
		"a pod by its name":          {func(l *Lease) { l.Owner = pod("web-0") }, false},
		"by hand":                    {func(l *Lease) { l.ByHand = true }, false},
		"for a time":                 {func(l *Lease) { l.Until = time.Now() }, false},
		"the API knows the address":  {func(l *Lease) { l.Claimed = true }, false},
		"an ordinal of no known set": {func(l *Lease) { l.Owner.UID = "" }, false},
	} {
		l := Lease{Address: addr("10.3.0.2"), State: Reserved, Owner: set("web", 0)}
		if test.change(&l); l.WaitsForPod() != test.want {
			t.Errorf("%s: %t", name, !test.want)
		}
	}
}

// STATUS can fail a node because of this. An address that waits for its owner counts as free.
func TestExhausted(t *testing.T) {
	full := "range set 0 (10.3.0.2-10.3.0.3) of network pods: no address is free: "
	for name, test := range map[string]struct {
		before func(t *testing.T, n *node)
		want   string
	}{
		"one is free": {func(t *testing.T, n *node) { n.add(t, "c1/eth0", "a", "10.3.0.2") }, ""},
		"all held": {func(t *testing.T, n *node) {
			n.add(t, "c1/eth0", "a", "10.3.0.2")
			n.add(t, "c2/eth0", "b", "10.3.0.3")
		}, full + "2 held, 0 reserved, 0 in quarantine"},
		"one in quarantine": {func(t *testing.T, n *node) {
			n.add(t, "c1/eth0", "a", "10.3.0.2")
			n.add(t, "c2/eth0", "b", "10.3.0.3")
			n.del(t, "c1/eth0")
		}, ""},
		"reserved for owners": {func(t *testing.T, n *node) { n.reserve(t, "10.3.0.2", "a", 0); n.reserve(t, "10.3.0.3", "b", 0) }, ""},
		"one for an owner":    {func(t *testing.T, n *node) { n.add(t, "c1/eth0", "a", "10.3.0.2"); n.reserve(t, "10.3.0.3", "b", 0) }, ""},
		"one for nobody": {func(t *testing.T, n *node) {
			n.add(t, "c1/eth0", "a", "10.3.0.2")
			n.takeIn(t, "host-local", Lease{Address: addr("10.3.0.3"), State: Reserved, Reason: "torn"})
		}, full + "1 held, 1 reserved, 0 in quarantine"},
		"one of another host": {func(t *testing.T, n *node) {
			n.add(t, "c1/eth0", "a", "10.3.0.2")
			n.add(t, "c2/eth0", "b", "10.3.0.3")
			_, err := n.store(t).Conflict(t.Context(), n.key("c2/eth0"), addr("10.3.0.3"), "02:00:00:00:00:01")
			must(t, err)
		}, full + "1 held, 0 reserved, 1 in quarantine"},
		"held in an earlier boot, then in quarantine": {func(t *testing.T, n *node) {
			n.add(t, "c1/eth0", "a", "10.3.0.2")
			n.add(t, "c2/eth0", "b", "10.3.0.3")
			n.reboot("boot-2", time.Second)
		}, ""},
		"held in an earlier boot, then free": {func(t *testing.T, n *node) {
			n.policy = Policy{}
			n.add(t, "c1/eth0", "a", "10.3.0.2")
			n.add(t, "c2/eth0", "b", "10.3.0.3")
			n.reboot("boot-2", time.Second)
		}, ""},
		"what is not given is no part of it": {func(t *testing.T, n *node) {
			n.add(t, "c1/eth0", "a", "10.3.0.2")
			n.sets[0][0].Excluded = []Span{span("10.3.0.3", "10.3.0.3")}
		}, full + "1 held, 0 reserved, 0 in quarantine"},
		"a reservation of what is not given": {func(t *testing.T, n *node) {
			n.add(t, "c1/eth0", "a", "10.3.0.2")
			n.reserve(t, "10.3.0.3", "b", 0)
			n.sets[0][0].Excluded = []Span{span("10.3.0.3", "10.3.0.3")}
		}, full + "1 held, 1 reserved, 0 in quarantine"},
	} {
		n := newNode(t, "10.3.0.3", minute)
		test.before(t, n)
		all, err := n.store(t).Exhausted(t.Context(), n.sets)
		must(t, err)
		got := ""
		for _, e := range all {
			if !errors.Is(e, ErrExhausted) {
				t.Errorf("%s: %v is not ErrExhausted", name, e)
			}
			got += strings.TrimSuffix(e.Error(), "; relink ipam list says for whom")
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// A gateway that is another pod's address is reported and refuses no ADD. Somebody may want it so, and a pod that does
// not start helps nobody.
func TestGatewayThatIsHeld(t *testing.T) {
	n := newNode(t, "10.3.0.9", minute)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	n.sets[0][0].Gateway = addr("10.3.0.2")
	why := []string{"10.3.0.2, the gateway of 10.3.0.0/24, is held by eth0 of c1 on pods (pod default/web-0): the other pods send their traffic to that pod. " +
		"Delete that pod, and it gets another address. If its sandbox is gone, relink gc --leases --network pods frees the address"}
	add := func(sandbox, want string, remarks []string) {
		t.Helper()
		s := n.store(t)
		given, err := s.Allocate(t.Context(), n.request(sandbox, ""))
		if err != nil || given[0].Address != addr(want) {
			t.Fatal(given, err)
		}
		if diff := cmp.Diff(remarks, s.Remarks()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", sandbox, diff)
		}
	}
	add("c3/eth0", "10.3.0.3", why)
	u, err := n.store(t).Usage(t.Context())
	if diff := cmp.Diff(why, u.Remarks); err != nil || diff != "" {
		t.Errorf("usage: %v (-want +got):\n%s", err, diff)
	}
	n.del(t, "c1/eth0")
	add("c4/eth0", "10.3.0.4", nil)
	// It does no harm if the gateway is reserved.
	n.reserve(t, "10.3.0.6", "web-9", 0)
	n.sets[0][0].Gateway = addr("10.3.0.6")
	add("c5/eth0", "10.3.0.5", nil)
}

// Nobody asks for those ranges any more, so their gateway does not matter.
func TestGatewayOfEarlierRanges(t *testing.T) {
	n := newNode(t, "10.3.0.9", minute)
	n.sets[0] = RangeSet{{Span: span("10.3.0.128", "10.3.0.130"), Subnet: n.sets[0][0].Subnet, Gateway: addr("10.3.0.1")}}
	n.add(t, "c1/eth0", "", "10.3.0.128")
	n.sets[0] = RangeSet{{Span: span("10.3.0.1", "10.3.0.9"), Subnet: n.sets[0][0].Subnet, Gateway: addr("10.3.0.254")}}
	n.add(t, "c2/eth0", "", "10.3.0.1")
	if u, err := n.store(t).Usage(t.Context()); err != nil || len(u.Remarks) > 0 {
		t.Errorf("%q, %v", u.Remarks, err)
	}
}
