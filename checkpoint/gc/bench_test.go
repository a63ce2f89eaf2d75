package gc

import (
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/test/fresh"
)

// BenchmarkAudit is the cost of a whole audit: 1,000 real sandboxes, each with a checkpoint and a lease, and 59,000
// reservations.
func BenchmarkAudit(b *testing.B) {
	n := newNode(b)
	for i := range 1000 {
		n.add(b, "c"+strconv.Itoa(i), fresh.Sandbox(b), web(i))
	}
	var in lease.Import
	a := netip.MustParseAddr("10.3.8.0")
	for i := range 59000 {
		a = a.Next()
		in.Leases = append(in.Leases, lease.Lease{Address: a, State: lease.Reserved, Owner: web(1000 + i), ReleasedAt: time.Now(), Last: lease.Holder{ContainerID: "c", IfName: "eth0"}})
		n.standing[web(1000+i)] = owner.Exists
	}
	if err := n.leases.Import(b.Context(), false, func(lease.ImportView) lease.Import { return in }); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		r, err := audit.Run(b.Context(), n.options().Sources)
		if err != nil || r.Leases != 60000 || r.Counts[audit.LostInterface] != 1000 || r.OwnersUnasked != 58000 {
			b.Fatal(r.Counts, r.Leases, r.OwnersUnasked, err)
		}
	}
}
