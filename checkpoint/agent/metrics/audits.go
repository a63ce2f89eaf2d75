package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/relink-cni/relink/checkpoint/control"
)

var (
	auditFindings = newDesc("relink_audit_findings", "What the last audit of the node has found, by kind.", "kind")
	auditErrors   = newDesc("relink_audit_errors", "How many findings of the last audit are errors.")
	auditTime     = newDesc("relink_audit_last_timestamp_seconds", "When the last audit of the node began.")
	auditComplete = newDesc("relink_audit_complete", "1 if the last audit could look at everything, else 0.")
	gcFreed       = newDesc("relink_gc_freed_total", "Leases, reservations and checkpoints that were proven dead and freed.")
	gcFailed      = newDesc("relink_gc_failures_total", "How often something that was proven dead could not be freed.")
	gcWaiting     = newDesc("relink_gc_waiting", "Leases, reservations and checkpoints that were seen dead, but not yet for long enough.")
)

// Audits are an agent's audits. Several goroutines call them at once.
type Audits interface {
	Last() *control.Audit
	Counts() (freed, failed uint64)
}

// RegisterAudits adds the audits to the metrics. Call it once.
func (m *Metrics) RegisterAudits(a Audits) { m.registry.MustRegister(auditCollector{a}) }

// auditCollector shows the last audit.
type auditCollector struct{ Audits }

// Describe implements prometheus.Collector.
func (auditCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{auditFindings, auditErrors, auditTime, auditComplete, gcFreed, gcFailed, gcWaiting} {
		ch <- d
	}
}

// Collect implements prometheus.Collector. Before the first audit only the counters are there.
func (a auditCollector) Collect(ch chan<- prometheus.Metric) {
	freed, failed := a.Counts()
	ch <- prometheus.MustNewConstMetric(gcFreed, prometheus.CounterValue, float64(freed))
	ch <- prometheus.MustNewConstMetric(gcFailed, prometheus.CounterValue, float64(failed))
	last := a.Last()
	if last == nil {
		return
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	for kind, n := range last.Findings {
		gauge(auditFindings, float64(n), kind)
	}
	gauge(auditErrors, float64(last.Errors))
	gauge(auditTime, float64(last.Time.UnixMilli())/1000)
	gauge(gcWaiting, float64(last.Waiting))
	complete := 1.0
	if last.Problem != "" {
		complete = 0
	}
	gauge(auditComplete, complete)
}
