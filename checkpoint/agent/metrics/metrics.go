package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/relink-cni/relink/checkpoint/agent"
	"github.com/relink-cni/relink/checkpoint/change"
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
	registry registry

	wakes, tries, outcomes *prometheus.CounterVec
	losses, lost           prometheus.Counter
	// The first is of one try, the others of an outage.
	duration, lossToRestored, backToRestored, lossToConnected prometheus.Histogram
}

// Upper bounds of histograms, in seconds. A restore of one pod takes some milliseconds. A restore of 250 pods takes
// less than a second. An outage takes as long as the driver is away.
var (
	restoreBuckets = []float64{.002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30}
	outageBuckets  = []float64{.1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300, 900, 3600}
)

// New returns the metrics of an agent of this version. leaseDir is the directory of relink-ipam's stores. It need not exist.
func New(version, leaseDir string) *Metrics {
	r := newRegistry("relink_agent_build_info", "The version of relink-agent. The value is 1.", version)
	r.MustRegister(collector((&stores{dir: leaseDir}).show))
	m := &Metrics{
		registry: r,
		wakes:    r.counters("relink_agent_wakeups_total", "How often the working loop woke up, by what woke it.", "source"),
		losses:   r.counters("relink_losses_total", "How often a NIC or a bond below pods went away.").WithLabelValues(),
		lost:     r.counters("relink_lost_attachments_total", "Interfaces of pods that went with their NIC or bond.").WithLabelValues(),
		tries:    r.counters("relink_restores_total", "Tries to restore what is on one NIC or bond, by result.", "result"),
		outcomes: r.counters("relink_restored_attachments_total", "Interfaces of pods in all tries to restore, by what became of them.", "outcome"),
		duration: r.histogram("relink_restore_duration_seconds", "How long one try to restore took.", restoreBuckets),
		lossToRestored: r.histogram("relink_loss_to_whole_seconds",
			"Time from the loss of a NIC or bond until the last interface on it was restored.", outageBuckets),
		backToRestored: r.histogram("relink_back_to_whole_seconds",
			"Time from when a NIC or bond was back until the last interface on it was restored. It includes the time that the host's network manager has.", restoreBuckets),
		lossToConnected: r.histogram("relink_loss_to_connected_seconds",
			"Time from the loss of a NIC or bond until it had carrier, and the agent had told the neighbours of all restored addresses.", outageBuckets),
	}
	m.initSeries()
	return m
}

// registry has the metrics of one process.
type registry struct{ *prometheus.Registry }

// newRegistry returns a registry with the metrics of every process. name and help are those of the metric with the version.
func newRegistry(name, help, version string) registry {
	r := registry{prometheus.NewRegistry()}
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collector(func(p page) { gauge(p.with("version", version), name, help, 1) }))
	return r
}

// handler answers with all metrics of the registry.
func (r registry) handler() http.Handler {
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

func (r registry) counters(name, help string, labels ...string) *prometheus.CounterVec {
	return promauto.With(r).NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func (r registry) histogram(name, help string, buckets []float64) prometheus.Histogram {
	return promauto.With(r).NewHistogram(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}

// The values of labels.
const (
	restored = "restored"
	failed   = "failed"
)

// outcomeNames are the values of the label outcome.
var outcomeNames = map[change.State]string{
	restore.Restored: restored, restore.Repaired: "repaired", restore.AsRecorded: "as_recorded", change.Failed: failed, restore.SandboxGone: "sandbox_gone",
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
	m.registry.MustRegister(collector(func(p page) { showAgent(a, p) }))
}

// Handler answers with all metrics.
func (m *Metrics) Handler() http.Handler { return m.registry.handler() }

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

// RegisterResults adds what became of events on pods, and of patches of conditions, by result. Several goroutines call events and patches
// at once. Call RegisterResults once.
func (m *Metrics) RegisterResults(events, patches func() map[string]uint64) {
	m.registry.MustRegister(collector(func(p page) {
		for result, n := range events() {
			counter(p.with("result", result), "relink_pod_events_total", "Kubernetes events on pods, by what became of them.", n)
		}
		for result, n := range patches() {
			counter(p.with("result", result), "relink_condition_patches_total", "Patches of conditions of pods and of the node, by what became of them.", n)
		}
	}))
}
