package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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

// succeeded is the other value of the label result.
const succeeded = "succeeded"

// requests measures what ADDs ask for.
type requests struct {
	serve.Pools
	results   *prometheus.CounterVec
	durations *prometheus.HistogramVec
}

// MeasureRequests returns the pools, and counts from then on what ADDs ask them for. Call it once.
func (m *Metrics) MeasureRequests(p serve.Pools) serve.Pools {
	r := requests{p,
		prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "relink_pool_requests_total", Help: "What ADDs have asked the agent for, because the node's store did not have it, by result.",
		}, []string{"network", "request", "result"}),
		prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "relink_pool_request_duration_seconds", Help: "How long the agent took for what an ADD has asked for.", Buckets: requestBuckets,
		}, []string{"request"}),
	}
	for _, request := range []string{forAny, forOwner, forClaim} {
		r.durations.WithLabelValues(request)
	}
	m.registry.MustRegister(r.results, r.durations)
	return r
}

// observe notes a request. Both results of the network begin with it, so that rate() sees the first failure.
func (r requests) observe(network, request string, began time.Time, err error) {
	r.durations.WithLabelValues(request).Observe(time.Since(began).Seconds())
	good, bad := r.results.WithLabelValues(network, request, succeeded), r.results.WithLabelValues(network, request, failed)
	if err != nil {
		bad.Inc()
		return
	}
	good.Inc()
}

// Refill implements pool.Agent.
func (r requests) Refill(ctx context.Context, d pool.Demand) error {
	began := time.Now()
	err := r.Pools.Refill(ctx, d)
	r.observe(d.Network, forAny, began, err)
	return err
}

// Acquire implements pool.Agent.
func (r requests) Acquire(ctx context.Context, a pool.Acquisition) (pool.Acquired, error) {
	began := time.Now()
	acquired, err := r.Pools.Acquire(ctx, a)
	r.observe(a.Network, forOwner, began, err)
	return acquired, err
}

// Claim implements pool.Agent.
func (r requests) Claim(ctx context.Context, c pool.ClaimedAddress) error {
	began := time.Now()
	err := r.Pools.Claim(ctx, c)
	r.observe(c.Network, forClaim, began, err)
	return err
}
