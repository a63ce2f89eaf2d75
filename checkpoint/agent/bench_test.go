package agent

import (
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/test/fresh"
)

// medianDuration returns the median duration of the agent's restores of 250 attachments, in milliseconds. It reads the
// agent's log.
func (n *node) medianDuration(b *testing.B) float64 {
	var all []float64
	for _, m := range regexp.MustCompile(`attachments=250 took=(\S+)`).FindAllStringSubmatch(n.log.String(), -1) {
		all = append(all, float64(must(time.ParseDuration(m[1]))(b).Microseconds())/1000)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// clearLossTimes makes the agent forget how often a base came and went: the next restore does not wait.
func (n *node) clearLossTimes(b *testing.B) {
	b.Helper()
	err := n.agent.runInLoop(b.Context(), func() {
		for _, c := range n.agent.chains {
			c.lossTimes = nil
		}
	})
	if err != nil {
		b.Fatal(err)
	}
}

// BenchmarkNICBack measures from the moment when the parent is back and up until all pods on it are whole. Every other
// round has a dead base beside it.
func BenchmarkNICBack(b *testing.B) {
	for _, dead := range []bool{false, true} {
		b.Run(fmt.Sprintf("250 sandboxes, dead base beside %v", dead), func(b *testing.B) {
			n := newNode(b, "lan0", "wan0")
			n.store = checkpoint.OpenStore(must(os.MkdirTemp("/dev/shm", "relink-bench-"))(b)) // As /run: no disk.
			b.Cleanup(func() { _ = os.RemoveAll(n.store.Dir()) })
			for i := range 250 {
				n.attach(b, "lan0", i)
			}
			n.attach(b, "wan0", 300)
			n.start(b, func(o *Options) {
				o.Log = slog.New(slog.NewTextHandler(n.log, nil))
				o.HostGrace = time.Minute
			})
			if dead {
				fresh.IP(b, "", "link del wan0")
				n.awaitState(b, "wan0", control.Lost)
			}
			var total time.Duration
			for range b.N {
				fresh.IP(b, "", "link del lan0")
				n.awaitState(b, "lan0", control.Lost)
				fresh.Run(b, "", "ip link add lan0 type veth peer name lan0p; ip link set lan0p up")
				n.awaitState(b, "lan0", control.Waiting)
				time.Sleep(time.Second) // A real NIC is not back at once either.
				n.clearLossTimes(b)
				start := time.Now()
				fresh.IP(b, "", "link set lan0 up")
				within(b, 20*time.Second, "all are whole", func() bool { c := n.chain("lan0"); return c.State == control.Whole })
				total += time.Since(start)
			}
			b.ReportMetric(float64(total.Microseconds())/1000/float64(b.N), "ms/restore")
			b.ReportMetric(n.medianDuration(b), "ms/whole")
		})
	}
}
