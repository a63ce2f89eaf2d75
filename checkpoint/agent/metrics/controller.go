package metrics

import (
	"math/big"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/relink-cni/relink/pkg/pool/controller"
)

var (
	poolAddresses  = desc("relink_pool_addresses", "Addresses of the AddressPool that can be given.", "pool")
	poolGranted    = desc("relink_pool_granted_addresses", "Addresses of the AddressPool that nodes have. Most of them wait for pods.", "pool")
	poolBlocks     = desc("relink_pool_blocks", "AddressBlocks that the AddressPool can have.", "pool")
	poolTaken      = desc("relink_pool_taken_blocks", "AddressBlocks of the AddressPool that exist: nodes have addresses of them.", "pool")
	poolFenced     = desc("relink_pool_fenced_holders", "Parts of AddressBlocks whose node is declared dead, and has not come back since.", "pool")
	poolStopped    = desc("relink_pool_stopped", "1 if the AddressPool gives nothing new, for whatever reason, 0 otherwise.", "pool")
	poolProblem    = desc("relink_pool_problem", "1 if the AddressPool gives nothing new because its spec is wrong, or because it overlaps another one, 0 otherwise.", "pool")
	poolRecovering = desc("relink_pool_recovering", "1 while the AddressPool recovers: the API has lost what nodes have. 0 otherwise.", "pool")
	poolPaused     = desc("relink_pool_paused", "1 if the AddressPool is paused, 0 otherwise.", "pool")
	poolUnasserted = desc("relink_pool_unasserted_nodes", "Nodes that a recovery of the AddressPool waits for.", "pool")
	leading        = desc("relink_pool_controller_leader", "1 if this process is the controller that works, 0 if it waits.")
	looked         = desc("relink_pool_controller_last_look_timestamp_seconds", "When the controller looked at all AddressPools last.")
)

// Controller is what keeps pools as a whole: a controller.Controller. Several goroutines call it at once.
type Controller interface {
	Seen() (found []controller.Found, at time.Time, leads bool)
}

// OfController answers with all metrics of a controller of this version.
func OfController(version string, c Controller) http.Handler {
	r := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "relink_pool_controller_build_info", Help: "The version of relink-agent that runs as the controller. The value is 1.", ConstLabels: prometheus.Labels{"version": version},
	})
	info.Set(1)
	r.MustRegister(info, controlling{c}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// controlling shows a controller.
type controlling struct{ Controller }

// Describe implements prometheus.Collector.
func (controlling) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		poolAddresses, poolGranted, poolBlocks, poolTaken, poolFenced, poolStopped, poolProblem, poolRecovering, poolPaused, poolUnasserted, leading, looked,
	} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c controlling) Collect(to chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	found, at, leads := c.Seen()
	gauge(leading, number(leads))
	if !at.IsZero() {
		gauge(looked, timestamp(at))
	}
	for _, l := range found {
		addresses, _ := new(big.Int).SetString(l.Status.Addresses, 10)
		if addresses == nil {
			addresses = new(big.Int) // A pool with a wrong spec has none.
		}
		gauge(poolAddresses, float(addresses), l.Pool)
		gauge(poolGranted, float64(l.Status.Granted), l.Pool)
		gauge(poolBlocks, float64(l.Status.Blocks), l.Pool)
		gauge(poolTaken, float64(l.Status.Taken), l.Pool)
		gauge(poolFenced, float64(l.Fenced), l.Pool)
		gauge(poolStopped, number(l.Stopped), l.Pool)
		gauge(poolProblem, number(l.Status.Problem != ""), l.Pool)
		gauge(poolRecovering, number(l.Recovering), l.Pool)
		gauge(poolPaused, number(l.Paused), l.Pool)
		gauge(poolUnasserted, float64(l.Unasserted), l.Pool)
	}
}
