package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/relink-cni/relink/checkpoint/agent"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/restore"
)

// Agent is what the metrics show. Several goroutines call it at once. It waits for nothing.
type Agent interface {
	Status() control.Status
	Figures() agent.Figures
}

// Metrics counts what an agent does: Observe is an observer of the agent.
type Metrics struct {
	registry *prometheus.Registry

	wakes           *prometheus.CounterVec
	losses          prometheus.Counter
	lost            prometheus.Counter
	tries           *prometheus.CounterVec
	outcomes        *prometheus.CounterVec
	duration        prometheus.Histogram
	lossToRestored  prometheus.Histogram
	backToRestored  prometheus.Histogram
	lossToConnected prometheus.Histogram
}

// Upper bounds of histograms, in seconds. A restore of one pod takes some milliseconds. A restore of 250 pods takes
// less than a second. An outage takes as long as the driver is away.
var (
	restoreBuckets = []float64{.002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30}
	outageBuckets  = []float64{.1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 900, 3600}
)

// New returns the metrics of an agent of this version. leaseDir is the directory of relink-ipam's stores. It need not exist.
func New(version, leaseDir string) *Metrics {
	m := &Metrics{
		registry: newRegistry("relink_agent_build_info", "The version of relink-agent. The value is 1.", version),
		wakes:    counters("relink_agent_wakeups_total", "How often the working loop woke up, by what woke it.", "source"),
		losses:   counter("relink_losses_total", "How often a NIC or a bond below pods went away."),
		lost:     counter("relink_lost_attachments_total", "Interfaces of pods that went with their NIC or bond."),
		tries:    counters("relink_restores_total", "Tries to restore what is on one NIC or bond, by result.", "result"),
		outcomes: counters("relink_restored_attachments_total", "Interfaces of pods in all tries to restore, by what became of them.", "outcome"),
		duration: histogram("relink_restore_duration_seconds", "How long one try to restore took.", restoreBuckets),
		lossToRestored: histogram("relink_loss_to_whole_seconds",
			"Time from the loss of a NIC or bond until the last interface on it was restored.", outageBuckets),
		backToRestored: histogram("relink_back_to_whole_seconds",
			"Time from when a NIC or bond was back until the last interface on it was restored. It includes the time that the host's network manager has.", restoreBuckets),
		lossToConnected: histogram("relink_loss_to_connected_seconds",
			"Time from the loss of a NIC or bond until it had carrier, and the agent had told the neighbours of all restored addresses.", outageBuckets),
	}
	m.registry.MustRegister(m.wakes, m.losses, m.lost, m.tries, m.outcomes, m.duration, m.lossToRestored, m.backToRestored, m.lossToConnected,
		collector{storeTable, newStores(leaseDir).show})
	m.initSeries()
	return m
}

// newRegistry returns a registry with the metrics of every process. name and help are those of the metric with the version.
func newRegistry(name, help, version string) *prometheus.Registry {
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: prometheus.Labels{"version": version}})
	info.Set(1)
	r := prometheus.NewRegistry()
	r.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// handler answers with all metrics of the registry.
func handler(r *prometheus.Registry) http.Handler {
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func counters(name, help, label string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}

// The values of labels.
const (
	restored = "restored"
	failed   = "failed"
)

// outcomeNames are the values of the label outcome.
var outcomeNames = map[restore.State]string{
	restore.Restored: restored, restore.Repaired: "repaired", restore.AsRecorded: "as_recorded", restore.Failed: failed, restore.SandboxGone: "sandbox_gone",
}

// initSeries makes each series with the value 0: rate() needs a value from before the increase.
func (m *Metrics) initSeries() {
	for _, s := range agent.WakeSources {
		m.wakes.WithLabelValues(string(s))
	}
	for _, name := range outcomeNames {
		m.outcomes.WithLabelValues(name)
	}
	m.tries.WithLabelValues(restored)
	m.tries.WithLabelValues(failed)
}

// RegisterAgent adds the agent to the metrics. Call it once.
func (m *Metrics) RegisterAgent(a Agent) {
	m.registry.MustRegister(collector{agentTable, func(show show) { showAgent(a, show) }})
}

// Handler answers with all metrics.
func (m *Metrics) Handler() http.Handler { return handler(m.registry) }

// Observe counts what the agent does. No metric is about one pod.
func (m *Metrics) Observe(event agent.Event) {
	switch e := event.(type) {
	case agent.WakeSource:
		m.wakes.WithLabelValues(string(e)).Inc()
	case agent.LossCount:
		m.losses.Inc()
		m.lost.Add(float64(e))
	case agent.Try:
		m.observeTry(e)
	case agent.Outage:
		m.lossToRestored.Observe(e.WholeAt.Sub(e.LostAt).Seconds())
		if !e.BackAt.IsZero() {
			m.backToRestored.Observe(e.WholeAt.Sub(e.BackAt).Seconds())
		}
	case agent.Connection:
		m.lossToConnected.Observe(time.Duration(e).Seconds())
	}
}

func (m *Metrics) observeTry(t agent.Try) {
	result := restored
	if t.Reason != "" {
		result = failed
	}
	m.tries.WithLabelValues(result).Inc()
	m.duration.Observe(t.Duration.Seconds())
	for _, o := range t.Outcomes {
		if name := outcomeNames[o.State]; name != "" {
			m.outcomes.WithLabelValues(name).Inc()
		}
	}
}

var (
	podEventTable table
	podEvents     = podEventTable.counter("relink_pod_events_total", "Kubernetes events on pods, by what became of them.", "result")
)

// RegisterPodEvents adds what became of events on pods, by result. Several goroutines call counts at once. Call
// RegisterPodEvents once.
func (m *Metrics) RegisterPodEvents(counts func() map[string]uint64) {
	m.registry.MustRegister(collector{podEventTable, func(show show) {
		for result, n := range counts() {
			show(podEvents, float64(n), result)
		}
	}})
}
