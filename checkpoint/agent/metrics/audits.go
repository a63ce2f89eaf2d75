package metrics

import "github.com/relink-cni/relink/checkpoint/control"

// Audits are an agent's audits. Several goroutines call them at once.
type Audits interface {
	Last() *control.Audit
	Counts() (freed, failed uint64)
}

// RegisterAudits adds the audits to the metrics. Call it once. Before the first audit only the counters are there.
func (m *Metrics) RegisterAudits(a Audits) {
	m.registry.MustRegister(collector(func(p page) {
		freed, failed := a.Counts()
		counter(p, "relink_gc_freed_total", "Leases, reservations and checkpoints that were proven dead and freed.", freed)
		counter(p, "relink_gc_failures_total", "How often something that was proven dead could not be freed.", failed)
		last := a.Last()
		if last == nil {
			return
		}
		for kind, n := range last.Findings {
			gauge(p.with("kind", kind), "relink_audit_findings", "What the last audit of the node has found, by kind.", n)
		}
		gauge(p, "relink_audit_errors", "How many findings of the last audit are errors.", last.Errors)
		gauge(p, "relink_audit_last_timestamp_seconds", "When the last audit of the node began.", last.Time)
		gauge(p, "relink_gc_waiting", "Leases, reservations and checkpoints that were seen dead, but not yet for long enough.", last.Waiting)
		gauge(p, "relink_audit_complete", "1 if the last audit could look at everything, else 0.", last.Problem == "")
	}))
}
