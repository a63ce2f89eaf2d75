package metrics

import "github.com/relink-cni/relink/checkpoint/control"

var (
	auditTable table

	auditFindings = auditTable.gauge("relink_audit_findings", "What the last audit of the node has found, by kind.", "kind")
	auditErrors   = auditTable.gauge("relink_audit_errors", "How many findings of the last audit are errors.")
	auditTime     = auditTable.gauge("relink_audit_last_timestamp_seconds", "When the last audit of the node began.")
	auditComplete = auditTable.gauge("relink_audit_complete", "1 if the last audit could look at everything, else 0.")
	gcFreed       = auditTable.counter("relink_gc_freed_total", "Leases, reservations and checkpoints that were proven dead and freed.")
	gcFailed      = auditTable.counter("relink_gc_failures_total", "How often something that was proven dead could not be freed.")
	gcWaiting     = auditTable.gauge("relink_gc_waiting", "Leases, reservations and checkpoints that were seen dead, but not yet for long enough.")
)

// Audits are an agent's audits. Several goroutines call them at once.
type Audits interface {
	Last() *control.Audit
	Counts() (freed, failed uint64)
}

// RegisterAudits adds the audits to the metrics. Call it once. Before the first audit only the counters are there.
func (m *Metrics) RegisterAudits(a Audits) {
	m.registry.MustRegister(collector{auditTable, func(show show) {
		freed, failed := a.Counts()
		show(gcFreed, float64(freed))
		show(gcFailed, float64(failed))
		last := a.Last()
		if last == nil {
			return
		}
		for kind, n := range last.Findings {
			show(auditFindings, float64(n), kind)
		}
		show(auditErrors, float64(last.Errors))
		show(auditTime, timestamp(last.Time))
		show(gcWaiting, float64(last.Waiting))
		show(auditComplete, boolValue(last.Problem == ""))
	}})
}
