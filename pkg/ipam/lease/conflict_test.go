package lease

import (
	"testing"
	"time"
)

const mac = "02:00:00:00:00:01"

// An address that another host uses goes into quarantine if another address can replace it.
func TestConflict(t *testing.T) {
	for name, test := range map[string]struct {
		policy Policy
		before func(t *testing.T, n *node)
		// exchanged says whether it was replaced. leases are those after the DEL that follows a refusal.
		exchanged bool
		is        error
		msg       string
		want      []string
	}{
		"in turn": {minute, func(t *testing.T, n *node) { n.add(t, "c1/eth0", "web-0", "10.3.0.2") }, true, nil, "<nil>",
			[]string{"10.3.0.2 quarantined c1/eth0"}},
		"in turn, without a quarantine": {Policy{}, func(t *testing.T, n *node) { n.add(t, "c1/eth0", "web-0", "10.3.0.2") }, true, nil, "<nil>",
			[]string{"10.3.0.2 quarantined c1/eth0"}},
		"in turn, sticky": {sticky, func(t *testing.T, n *node) { n.add(t, "c1/eth0", "web-0", "10.3.0.2") }, true, nil, "<nil>",
			[]string{"10.3.0.2 quarantined c1/eth0"}},
		"asked for": {minute, func(t *testing.T, n *node) { n.addWanted(t, "c1/eth0", "web-0", "10.3.0.2") }, false,
			ErrInUse, "10.3.0.2 is in use on the network by 02:00:00:00:00:01, and no other address can take its place (requested): end that use",
			[]string{"10.3.0.2 quarantined c1/eth0 web-0"}},
		"reserved for the owner": {sticky, func(t *testing.T, n *node) {
			n.add(t, "c0/eth0", "web-0", "10.3.0.2")
			n.del(t, "c0/eth0")
			n.add(t, "c1/eth0", "web-0", "10.3.0.2")
		}, false, ErrInUse, "10.3.0.2 is in use on the network by 02:00:00:00:00:01, and no other address can take its place (reserved for the owner): end that use",
			[]string{"10.3.0.2 reserved c1/eth0 web-0"}},
		"reserved by hand while it is held": {minute, func(t *testing.T, n *node) {
			n.add(t, "c1/eth0", "web-0", "10.3.0.2")
			n.reserve(t, "10.3.0.2", "web-0", time.Hour)
		}, false, ErrInUse, "10.3.0.2 is in use on the network by 02:00:00:00:00:01, and no other address can take its place (next in turn): end that use",
			[]string{"10.3.0.2 reserved c1/eth0 web-0"}},
		"reserved by hand until a while ago": {minute, func(t *testing.T, n *node) {
			n.add(t, "c1/eth0", "web-0", "10.3.0.2")
			n.reserve(t, "10.3.0.2", "web-0", time.Hour)
			n.later(2 * time.Hour)
		}, true, nil, "<nil>", []string{"10.3.0.2 quarantined c1/eth0"}},
		"beside the sandbox before": {sticky, func(t *testing.T, n *node) {
			n.add(t, "c0/eth0", "web-0", "10.3.0.2")
			n.add(t, "c1/eth0", "web-0", "10.3.0.2")
		}, false, nil, "<nil>", []string{"10.3.0.2 held c0/eth0 web-0"}},
		"taken over, the sandbox before is gone": {sticky, func(t *testing.T, n *node) {
			n.add(t, "c0/eth0", "web-0", "10.3.0.2")
			n.add(t, "c1/eth0", "web-0", "10.3.0.2")
			n.del(t, "c0/eth0")
		}, false, nil, "<nil>", []string{"10.3.0.2 reserved c1/eth0 web-0"}},
	} {
		n := newNode(t, "10.3.0.9", test.policy)
		test.before(t, n)
		exchanged, err := n.store(t).Conflict(t.Context(), n.key("c1/eth0"), addr("10.3.0.2"), mac)
		if exchanged != test.exchanged {
			t.Errorf("%s: exchanged %t", name, exchanged)
		}
		n.refused(t, name, err, test.is, test.msg)
		n.del(t, "c1/eth0")
		n.expect(t, name, test.want...)
	}
}

func TestConflictOfWhatIsNotHeld(t *testing.T) {
	n := newNode(t, "10.3.0.9", minute)
	n.add(t, "c1/eth0", "", "10.3.0.2")
	for _, a := range []string{"10.3.0.2", "10.3.0.3"} {
		_, err := n.store(t).Conflict(t.Context(), n.key("c2/eth0"), addr(a), mac)
		if want := "eth0 of c2 on pods does not hold " + a + ", which 02:00:00:00:00:01 has"; err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	n.expect(t, "after it", "10.3.0.2 held c1/eth0")
}

func TestNextAddAfterAConflictGivesAnotherAddress(t *testing.T) {
	n := newNode(t, "10.3.0.9", sticky)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	for _, a := range []string{"10.3.0.2", "10.3.0.3"} {
		if exchanged, err := n.store(t).Conflict(t.Context(), n.key("c1/eth0"), addr(a), mac); !exchanged || err != nil {
			t.Fatal(exchanged, err)
		}
		n.add(t, "c1/eth0", "web-0", addr(a).Next().String())
	}
	n.del(t, "c1/eth0")
	n.expect(t, "its own is kept", "10.3.0.2 quarantined c1/eth0", "10.3.0.3 quarantined c1/eth0", "10.3.0.4 reserved c1/eth0 web-0")
}

// An address that another host uses is not given for at least a minute, even if no other is free.
func TestAddressOfAnotherHostIsNotGivenForALackOfOthers(t *testing.T) {
	for name, before := range map[string]func(t *testing.T, n *node){
		"exchanged": func(t *testing.T, n *node) {
			n.add(t, "c1/eth0", "web-0", "10.3.0.2")
			exchanged, err := n.store(t).Conflict(t.Context(), n.key("c1/eth0"), addr("10.3.0.2"), mac)
			if !exchanged || err != nil {
				t.Fatal(exchanged, err)
			}
		},
		"refused, then its DEL": func(t *testing.T, n *node) {
			refuse(t, n)
			n.del(t, "c1/eth0")
		},
		"refused, then taken over, and both are deleted": func(t *testing.T, n *node) {
			refuse(t, n)
			n.policy = sticky
			n.add(t, "c2/eth0", "web-0", "10.3.0.2")
			n.del(t, "c2/eth0")
			n.del(t, "c1/eth0")
		},
		"refused, and the owner has another": func(t *testing.T, n *node) {
			n.policy = sticky
			n.sets[0][0].Last = addr("10.3.0.3")
			refuse(t, n)
			n.addWanted(t, "c2/eth0", "web-0", "10.3.0.3")
			n.del(t, "c1/eth0")
			n.sets[0][0].Last = addr("10.3.0.2")
		},
	} {
		n := newNode(t, "10.3.0.2", Policy{})
		before(t, n)
		n.policy = Policy{}
		if l := n.get(t, "10.3.0.2"); l.State != Quarantined || !l.Conflict || l.Reason != "in use by "+mac {
			t.Errorf("%s: %+v", name, l)
		}
		n.later(time.Minute - time.Millisecond)
		if got, err := n.try(t, "x/eth0", ""); err == nil {
			t.Errorf("%s: given: %s", name, got)
		}
		n.later(time.Millisecond)
		n.add(t, "x/eth0", "", "10.3.0.2")
		if l := n.get(t, "10.3.0.2"); l.Conflict {
			t.Errorf("%s: the next one has the mark", name)
		}
	}
}

// refuse is an ADD that asks for 10.3.0.2. It is refused, because another host uses the address.
func refuse(t *testing.T, n *node) {
	t.Helper()
	n.addWanted(t, "c1/eth0", "web-0", "10.3.0.2")
	_, err := n.store(t).Conflict(t.Context(), n.key("c1/eth0"), addr("10.3.0.2"), mac)
	n.refused(t, "refused", err, ErrInUse,
		"10.3.0.2 is in use on the network by 02:00:00:00:00:01, and no other address can take its place (requested): end that use")
}

// A pod that can have one of a list does not get an address that another host uses, even if the list has no other. Whoever asks for that address
// gets it.
func TestAConflictInAListOfAddresses(t *testing.T) {
	n := newNode(t, "10.3.0.9", minute)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	if exchanged, err := n.store(t).Conflict(t.Context(), n.key("c1/eth0"), addr("10.3.0.2"), mac); !exchanged || err != nil {
		t.Fatal(exchanged, err)
	}
	n.add(t, "c3/eth0", "db-0", "10.3.0.3")
	n.gives(t, n.ofOwner("c2/eth0", "a", vm("a"), choosingFrom("10.3.0.2", "10.3.0.3")),
		"each of the requested addresses is not available: 10.3.0.2 is in quarantine: in use by "+mac+"; 10.3.0.3 is held by eth0 of c3 on pods (pod default/db-0)")
	n.gives(t, n.ofOwner("c2/eth0", "a", vm("a"), requesting("10.3.0.2")), "10.3.0.2")
}
