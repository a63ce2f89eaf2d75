package audit

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
)

// BenchmarkJudge is the cost of the decision for 1,000 sandboxes and 60,000 leases: of each sandbox one is held, the
// rest are reserved for owners, of whom most were asked for.
func BenchmarkJudge(b *testing.B) {
	w := newSnapshot()
	a := netip.MustParseAddr("10.0.0.1")
	for i := range 60000 {
		a = a.Next()
		o := attachment.Owner{Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: fmt.Sprintf("web-%d", i/50), UID: fmt.Sprintf("u%d", i/50), Ordinal: attachment.OrdinalOf(i % 50)}
		if i < 1000 {
			id := fmt.Sprintf("c%d", i)
			w.runPod(id, uint64(i+1), fmt.Sprintf("web-%d", i))
			w.record(id, uint64(i+1), "eth0", "lan", a.String(), o)
			w.address(uint64(i+1), a.String(), "eth0", w.Attached[i].Index, 7)
			w.network("lan").Leases = append(w.network("lan").Leases, lease.Lease{
				Address: a, Network: "lan", State: lease.Held, Owner: o,
				Holders: []lease.Holder{{ContainerID: id, IfName: "eth0", Namespace: namespace(uint64(i + 1))}},
			})
			continue
		}
		w.network("lan").Leases = append(w.network("lan").Leases, lease.Lease{Address: a, Network: "lan", State: lease.Reserved, Owner: o, Last: lease.Holder{IfName: "eth0"}})
		w.standing(o, owner.Exists, "it is there")
	}
	b.ReportAllocs()
	for b.Loop() {
		if r := Judge(w); r.Errors != 0 || r.Counts[Fine] != 1000 || r.Leases != 60000 {
			b.Fatal(r.Counts, r.Errors)
		}
	}
}
