package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/relink-cni/relink/checkpoint/control/serve"
	"github.com/relink-cni/relink/pkg/pool"
)

// requestBuckets are upper bounds, in seconds. A request of the API takes some milliseconds, and pool.AgentLimit bounds the whole.
var requestBuckets = []float64{.005, .01, .02, .05, .1, .2, .5, 1, 2, 3}

// The values of the label request: what an ADD asks the agent for.
const (
	forAny   = "any_address"
	forOwner = "owners_address"
	forClaim = "claim"
)

// requests measures what ADDs ask for.
type requests struct {
	serve.Pools
	results   *prometheus.CounterVec
	durations *prometheus.HistogramVec
}

// MeasureRequests returns the pools, and counts from then on what ADDs ask them for. Call it once.
func (m *Metrics) MeasureRequests(p serve.Pools) serve.Pools {
	r := requests{p, m.registry.counters("relink_pool_requests_total",
		"What ADDs have asked the agent for, because the node's store did not have it, by result.", "network", "request", "result"),
		promauto.With(m.registry).NewHistogramVec(prometheus.HistogramOpts{
			Name: "relink_pool_request_duration_seconds", Help: "How long the agent took for what an ADD has asked for.", Buckets: requestBuckets,
		}, []string{"request"}),
	}
	for _, request := range []string{forAny, forOwner, forClaim} {
		r.durations.WithLabelValues(request)
	}
	return r
}

// measure begins a request, and returns what notes its end. Both results of the network begin with it, so that rate() sees the first failure.
func (r requests) measure(network, request string, err *error) (end func()) {
	began := time.Now()
	return func() {
		r.durations.WithLabelValues(request).Observe(time.Since(began).Seconds())
		succeeded, failed := r.results.WithLabelValues(network, request, "succeeded"), r.results.WithLabelValues(network, request, failed)
		if *err != nil {
			failed.Inc()
		} else {
			succeeded.Inc()
		}
	}
}

// Refill implements pool.Agent.
func (r requests) Refill(ctx context.Context, d pool.Demand) (err error) {
	defer r.measure(d.Network, forAny, &err)()
	return r.Pools.Refill(ctx, d)
}

// Acquire implements pool.Agent.
func (r requests) Acquire(ctx context.Context, a pool.Acquisition) (acquired pool.Acquired, err error) {
	defer r.measure(a.Network, forOwner, &err)()
	return r.Pools.Acquire(ctx, a)
}

// Claim implements pool.Agent.
func (r requests) Claim(ctx context.Context, c pool.ClaimedAddress) (err error) {
	defer r.measure(c.Network, forClaim, &err)()
	return r.Pools.Claim(ctx, c)
}
