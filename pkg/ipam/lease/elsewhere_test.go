package lease

import (
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// Leases of the same ranges in another store can be those of this network by an earlier name.
func TestLeasesOfTheRangesInAnotherStore(t *testing.T) {
	for name, test := range map[string]struct {
		other func(t *testing.T, n *node)
		want  []string
	}{
		"it has pods": {func(t *testing.T, n *node) { n.add(t, "c1/eth0", "", "10.3.0.2") }, []string{"pods"}},
		"it had pods": {func(t *testing.T, n *node) { n.add(t, "c1/eth0", "", "10.3.0.2"); n.del(t, "c1/eth0") }, nil},
		"it waits for an owner": {func(t *testing.T, n *node) {
			n.policy = sticky
			n.add(t, "c1/eth0", "web-0", "10.3.0.2")
			n.del(t, "c1/eth0")
		}, []string{"pods"}},
		"it had pods in an earlier boot": {func(t *testing.T, n *node) {
			n.add(t, "c1/eth0", "", "10.3.0.2")
			n.reboot("boot-2", time.Minute)
		}, nil},
		"it has other ranges": {func(t *testing.T, n *node) {
			n.sets = []RangeSet{tenAddresses(7)}
			n.add(t, "c1/eth0", "", "10.7.0.10")
		}, nil},
		"it has pods in other ranges only": {func(t *testing.T, n *node) {
			n.sets = append(n.sets, tenAddresses(7))
			n.add(t, "c1/eth0", "", "10.3.0.2 10.7.0.10")
			n.del(t, "c1/eth0")
			n.later(time.Hour)
			n.sets = n.sets[1:]
			n.add(t, "c2/eth0", "", "10.7.0.10")
		}, nil},
		"what it has is no store": {func(t *testing.T, n *node) { must(t, os.WriteFile(n.path(), []byte("x"), 0o600)) }, nil},
		"there is no other":       {func(*testing.T, *node) {}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t, "10.3.0.9", minute)
			sets := n.sets
			test.other(t, n)
			n.network, n.sets = "new", sets
			got, err := n.store(t).LeasedElsewhere(t.Context(), sets)
			if diff := cmp.Diff(test.want, got, cmpopts.EquateEmpty()); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// A holder has the name of its network if that is not the store's. A repeated ADD by another name has that name noted.
func TestHoldersOfANetworkOfAnotherStore(t *testing.T) {
	n := newNode(t, "10.3.0.9", minute)
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	expect := func(when, want string) {
		t.Helper()
		if got := n.get(t, "10.3.0.2").Describe(); got != want {
			t.Errorf("%s: %s, want %s", when, got, want)
		}
	}
	expect("by the store's name", "held by eth0 of c1 on pods (pod default/web-0)")
	r := n.request("c1/eth0", "web-0")
	r.Attachment.Network = "vlan3"
	for range 2 {
		_, err := n.store(t).Allocate(t.Context(), r)
		must(t, err)
		expect("by the network's name", "held by eth0 of c1 on vlan3 (pod default/web-0)")
	}
	n.add(t, "c1/eth0", "web-0", "10.3.0.2")
	expect("by the store's name again", "held by eth0 of c1 on pods (pod default/web-0)")
	r.Attachment.ContainerID = "c2"
	r.Owner, r.Pod.Name = pod("web-1"), "web-1"
	leases, err := n.store(t).Allocate(t.Context(), r)
	must(t, err)
	if got := leases[0].Holders[0].Network; got != "vlan3" {
		t.Errorf("given to %q", got)
	}
	must(t, n.store(t).Release(t.Context(), n.key("c1/eth0"), Policy{}))
	n.expect(t, "after a DEL by the store's name", "10.3.0.2 quarantined c1/eth0 web-0", "10.3.0.3 held c2/eth0 web-1")
}
