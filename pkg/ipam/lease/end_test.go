package lease

import (
	"testing"
	"time"
)

// A reservation ends only for the one that somebody looked at, and never one that an operator made.
func TestEnd(t *testing.T) {
	for name, test := range map[string]struct {
		// before happens before somebody looks, meanwhile after that.
		before, meanwhile func(t *testing.T, n *node)
		is                error
		msg               string
		want              []string
	}{
		"its quarantine is over": {
			before: func(_ *testing.T, n *node) { n.later(time.Hour) },
			msg:    "<nil>",
		},
		"its quarantine is not over": {msg: "<nil>", want: []string{"10.3.0.2 quarantined c1/eth0 web-0"}},
		"its owner has it again": {
			meanwhile: func(t *testing.T, n *node) { n.add(t, "c2/eth0", "web-0", "10.3.0.2") },
			is:        ErrHolderChanged, msg: "10.3.0.2 is not as expected: it is held by eth0 of c2 on pods (pod default/web-0)",
			want: []string{"10.3.0.2 held c2/eth0 web-0"},
		},
		"its owner had it again": {
			meanwhile: func(t *testing.T, n *node) {
				n.later(time.Minute)
				n.add(t, "c2/eth0", "web-0", "10.3.0.2")
				n.del(t, "c2/eth0")
			},
			is: ErrHolderChanged, msg: "10.3.0.2 is not as expected: it is reserved for pod default/web-0",
			want: []string{"10.3.0.2 reserved c2/eth0 web-0"},
		},
		"the same sandbox had it again": {
			meanwhile: func(t *testing.T, n *node) {
				n.later(time.Minute)
				n.add(t, "c1/eth0", "web-0", "10.3.0.2")
				n.del(t, "c1/eth0")
			},
			is: ErrHolderChanged, msg: "10.3.0.2 is not as expected: it is reserved for pod default/web-0",
			want: []string{"10.3.0.2 reserved c1/eth0 web-0"},
		},
		"an operator reserved it first": {
			before: func(t *testing.T, n *node) { n.reserve(t, "10.3.0.2", "web-0", time.Hour) },
			is:     ErrHolderChanged, msg: "10.3.0.2 is not as expected: it is reserved for pod default/web-0",
			want: []string{"10.3.0.2 reserved c1/eth0 web-0"},
		},
		"an operator reserves it meanwhile": {
			meanwhile: func(t *testing.T, n *node) { n.reserve(t, "10.3.0.2", "web-0", 0) },
			is:        ErrHolderChanged, msg: "10.3.0.2 is not as expected: it is reserved for pod default/web-0",
			want: []string{"10.3.0.2 reserved c1/eth0 web-0"},
		},
		"an operator released it": {
			before: func(_ *testing.T, n *node) { n.later(time.Hour) },
			meanwhile: func(t *testing.T, n *node) {
				err := n.store(t).ReleaseByHand(t.Context(), n.get(t, "10.3.0.2"))
				must(t, err)
			},
			is: ErrNotLeased, msg: "10.3.0.2 is free in network pods: nothing is leased",
		},
	} {
		n := newNode(t, "10.3.0.9", sticky)
		n.add(t, "c1/eth0", "web-0", "10.3.0.2")
		n.del(t, "c1/eth0")
		if test.before != nil {
			test.before(t, n)
		}
		seen := n.get(t, "10.3.0.2")
		if test.meanwhile != nil {
			test.meanwhile(t, n)
		}
		n.refused(t, name, n.store(t).End(t.Context(), seen, "its owner is gone"), test.is, test.msg)
		n.expect(t, name, test.want...)
	}
}

// Who holds the address has it, whatever the caller takes for the reservation.
func TestEndOfAHeldAddress(t *testing.T) {
	n := newNode(t, "10.3.0.9", sticky)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	n.refused(t, "held", n.store(t).End(t.Context(), n.get(t, "10.3.0.2"), "its owner is gone"), ErrHolderChanged,
		"10.3.0.2 is not as expected: it is held by eth0 of c1 on pods (pod default/web-0)")
	n.expect(t, "held", "10.3.0.2 held c1/eth0 web-0")
}

// An operator's reservation that is over keeps nothing, even while the policy's goes on.
func TestAReservationByHandThatIsOver(t *testing.T) {
	n := newNode(t, "10.3.0.9", sticky)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	n.reserve(t, "10.3.0.2", "web-0", time.Hour)
	n.del(t, "c1/eth0")
	seen := n.get(t, "10.3.0.2")
	if now := n.day; !seen.ReservedByHandAt(now) || seen.ReservedByHandAt(now.Add(time.Hour)) {
		t.Errorf("kept by hand now: %v; in an hour: %v", seen.ReservedByHandAt(now), seen.ReservedByHandAt(now.Add(time.Hour)))
	}
	n.later(2 * time.Hour)
	n.refused(t, "over", n.store(t).End(t.Context(), n.get(t, "10.3.0.2"), "its owner is gone"), nil, "<nil>")
	n.expect(t, "over")
}

// relink ipam show tells afterwards why the address was taken from its owner.
func TestEndIsTold(t *testing.T) {
	n := newNode(t, "10.3.0.9", sticky)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	n.del(t, "c1/eth0")
	must(t, n.store(t).End(t.Context(), n.get(t, "10.3.0.2"), "StatefulSet default/web has 0 replicas"))
	told := n.eventLines(t, "10.3.0.2")
	if want := "05:06 ended c1/eth0 web-0-uid web-0 (StatefulSet default/web has 0 replicas) quarantined"; told[len(told)-1] != want {
		t.Errorf("%q, want %q", told, want)
	}
	if l := n.get(t, "10.3.0.2"); l.Describe() != "in quarantine: StatefulSet default/web has 0 replicas" {
		t.Error(l.Describe())
	}
}

// A reboot makes another reservation of what was held: its owner has not been looked at since.
func TestEndAfterABoot(t *testing.T) {
	n := newNode(t, "10.3.0.9", sticky)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	n.reboot("boot-2", time.Minute)
	seen := n.get(t, "10.3.0.2")
	n.later(time.Minute)
	n.refused(t, "first", n.store(t).End(t.Context(), seen, "gone"), ErrHolderChanged, "10.3.0.2 is not as expected: it is reserved for pod default/web-0")
	n.later(time.Minute)
	n.add(t, "c2/eth0", "web-1", "10.3.0.3") // The first change of the boot.
	n.later(time.Minute)
	seen = n.get(t, "10.3.0.2")
	n.refused(t, "then", n.store(t).End(t.Context(), seen, "gone"), nil, "<nil>")
	n.expect(t, "then", "10.3.0.3 held c2/eth0 web-1")
	n.expectVerified(t)
}
