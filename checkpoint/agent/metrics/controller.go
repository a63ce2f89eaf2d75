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
	poolAddresses      = newDesc("relink_pool_addresses", "Addresses of the AddressPool that can be given.", "pool")
	poolGranted        = newDesc("relink_pool_granted_addresses", "Addresses of the AddressPool that nodes have. Most of them wait for pods.", "pool")
	poolBlocks         = newDesc("relink_pool_blocks", "AddressBlocks that the AddressPool can have.", "pool")
	poolTaken          = newDesc("relink_pool_taken_blocks", "AddressBlocks of the AddressPool that exist: nodes have addresses of them.", "pool")
	poolFenced         = newDesc("relink_pool_fenced_holders", "Parts of AddressBlocks whose node is declared dead, and has not come back since.", "pool")
	poolStopped        = newDesc("relink_pool_stopped", "1 if the AddressPool gives nothing new, for whatever reason, 0 otherwise.", "pool")
	poolProblem        = newDesc("relink_pool_problem", "1 if the AddressPool gives nothing new because its spec is wrong, or because it overlaps another one, 0 otherwise.", "pool")
	poolRecovering     = newDesc("relink_pool_recovering", "1 while the AddressPool recovers: the API has lost what nodes have. 0 otherwise.", "pool")
	poolPaused         = newDesc("relink_pool_paused", "1 if the AddressPool is paused, 0 otherwise.", "pool")
	poolUnasserted     = newDesc("relink_pool_unasserted_nodes", "Nodes that a recovery of the AddressPool waits for.", "pool")
	controllerLeader   = newDesc("relink_pool_controller_leader", "1 if this process is the controller that works, 0 if it waits.")
	controllerLastLook = newDesc("relink_pool_controller_last_look_timestamp_seconds", "When the controller looked at all AddressPools last.")
)

// Controller is what keeps pools as a whole: a controller.Controller. Several goroutines call it at once.
type Controller interface {
	Seen() (found []controller.Observation, lastLook time.Time, leads bool)
}

// ControllerHandler answers with all metrics of a controller of this version.
func ControllerHandler(version string, c Controller) http.Handler {
	r := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "relink_pool_controller_build_info", Help: "The version of relink-agent that runs as the controller. The value is 1.", ConstLabels: prometheus.Labels{"version": version},
	})
	info.Set(1)
	r.MustRegister(info, controllerCollector{c}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// controllerCollector shows a controller.
type controllerCollector struct{ Controller }

// Describe implements prometheus.Collector.
func (controllerCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		poolAddresses, poolGranted, poolBlocks, poolTaken, poolFenced, poolStopped, poolProblem, poolRecovering, poolPaused, poolUnasserted, controllerLeader, controllerLastLook,
	} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c controllerCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	found, lastLook, leads := c.Seen()
	gauge(controllerLeader, boolValue(leads))
	if !lastLook.IsZero() {
		gauge(controllerLastLook, timestamp(lastLook))
	}
	for _, l := range found {
		addresses, _ := new(big.Int).SetString(l.Status.Addresses, 10)
		if addresses == nil {
			addresses = new(big.Int) // A pool with a wrong spec has none.
		}
		gauge(poolAddresses, nearestFloat(addresses), l.Pool)
		gauge(poolGranted, float64(l.Status.Granted), l.Pool)
		gauge(poolBlocks, float64(l.Status.Blocks), l.Pool)
		gauge(poolTaken, float64(l.Status.Existing), l.Pool)
		gauge(poolFenced, float64(l.Fenced), l.Pool)
		gauge(poolStopped, boolValue(l.Stopped), l.Pool)
		gauge(poolProblem, boolValue(l.Status.Problem != ""), l.Pool)
		gauge(poolRecovering, boolValue(l.Recovering), l.Pool)
		gauge(poolPaused, boolValue(l.Paused), l.Pool)
		gauge(poolUnasserted, float64(l.Unasserted), l.Pool)
	}
}
