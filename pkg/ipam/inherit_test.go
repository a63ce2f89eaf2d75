package ipam

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/containernetworking/cni/pkg/skel"

	"github.com/relink-cni/relink/pkg/attachment"
)

// Who gets an address whose reservation by hand has ended inherits nothing of it: else
// the address would wait for that pod for ever once it is gone.
func TestEndedReservationIsNotInherited(t *testing.T) {
	dir := t.TempDir()
	store, err := OpenStore(dir, "pods")
	if err != nil {
		t.Fatal(err)
	}
	reserve := func(a string, retain time.Duration) {
		owner := attachment.Pod{Namespace: "default", Name: "web-0"}.Owner()
		if _, err := store.Reserve(t.Context(), netip.MustParseAddr(a), owner, retain); err != nil {
			t.Fatal(err)
		}
	}
	// An ADD clears away what ended first, but not all of it.
	for i := range dueAtOnce {
		reserve(fmt.Sprintf("10.8.0.%d", i+1), time.Millisecond)
	}
	reserve("10.7.0.10", 2*time.Second)
	store.now = func() time.Time { return time.Now().Add(time.Hour) }
	c := &call{
		network: network{name: "pods"}, store: store,
		args: &skel.CmdArgs{ContainerID: "c1", IfName: "eth0"},
	}
	only := netip.MustParseAddr("10.7.0.10")
	r, err := c.request()
	if err != nil {
		t.Fatal(err)
	}
	r.sets = []RangeSet{{{Span: Span{only, only}, Subnet: netip.MustParsePrefix("10.7.0.0/24")}}}
	var given []Lease
	err = store.update(t.Context(), func(l *leases) (err error) {
		given, err = l.allocate(r)
		return err
	})
	if err != nil || len(given) != 1 {
		t.Fatal(given, err)
	}
	if l := given[0]; l.Address != only || l.ByHand {
		t.Errorf("given: %+v", l)
	}
}
