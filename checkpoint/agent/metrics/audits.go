package metrics

import "github.com/relink-cni/relink/checkpoint/control"

// RegisterAudits adds the agent's audits to the metrics: the last one, nil before the first, and the counts since the start. Several
// goroutines call both at once. Call RegisterAudits once. Before the first audit only the counters are there.
func (m *Metrics) RegisterAudits(lastAudit func() *control.Audit, counts func() (freed, failed uint64)) {
	m.registry.MustRegister(collector(func(p page) {
		freed, failed := counts()
		counter(p, "relink_gc_freed_total", "Leases, reservations and checkpoints that were proven dead and freed.", freed)
		counter(p, "relink_gc_failures_total", "How often something that was proven dead could not be freed.", failed)
		last := lastAudit()
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
