package agent

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/test/fresh"
)

// BenchmarkNICBack is the time from the moment that the parent is back and up until all pods on it are whole. One round in
// two has a dead base beside it.
func BenchmarkNICBack(b *testing.B) {
	for _, dead := range []bool{false, true} {
		b.Run(fmt.Sprintf("250 sandboxes, dead base beside %v", dead), func(b *testing.B) {
			n := newNode(b, "lan0", "wan0")
			for i := range 250 {
				n.attach(b, "lan0", i)
			}
			n.attach(b, "wan0", 300)
			n.start(b, func(o *Options) {
				o.Log = slog.New(slog.NewTextHandler(n.log, nil))
				o.HostGrace = 2 * time.Second
			})
			if dead {
				fresh.IP(b, "", "link del wan0")
				n.is(b, "wan0", control.Lost)
			}
			var total time.Duration
			for range b.N {
				fresh.IP(b, "", "link del lan0")
				n.is(b, "lan0", control.Lost)
				fresh.Run(b, "", "ip link add lan0 type veth peer name lan0p; ip link set lan0p up")
				n.is(b, "lan0", control.Waiting)
				start := time.Now()
				fresh.IP(b, "", "link set lan0 up")
				within(b, 20*time.Second, "all are whole", func() bool { c := n.chain("lan0"); return c.State == control.Whole })
				total += time.Since(start)
			}
			b.ReportMetric(float64(total.Microseconds())/1000/float64(b.N), "ms/restore")
			b.Log(n.log)
		})
	}
}
