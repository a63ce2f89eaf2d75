package restore

import (
	"fmt"
	"time"

	"github.com/relink-cni/relink/checkpoint"
)

// saveLastRestore writes down what the restore did, for relink status. If it cannot be written, the report
// has a note, and nothing fails.
func (r *restoreRun) saveLastRestore(start time.Time, report *Report) {
	if r.DryRun {
		return
	}
	last := lastRestoreOf(*report)
	last.StartedAt, last.Selection = start.UTC().Truncate(time.Millisecond), r.Select.Words()
	if err := r.Store.SaveLastRestore(last); err != nil {
		report.Notes = append(report.Notes, fmt.Sprintf("%v: relink status does not know of this restore", err))
	}
}

// lastRestoreOf sums the report up.
func lastRestoreOf(report Report) checkpoint.LastRestore {
	last := checkpoint.LastRestore{
		Duration: report.Duration, WaitDuration: report.WaitDuration, Interrupted: report.Interrupted,
		Counts: map[string]int{}, Problems: len(report.Problems),
	}
	for _, o := range report.Attachments {
		last.Counts[string(o.State)]++
		if o.State == Failed && len(last.Failed) < checkpoint.MaxFailed {
			last.Failed = append(last.Failed, checkpoint.FailedRestore{Attachment: o.Attachment, Pod: o.Pod, Reason: o.FullReason()})
		}
	}
	return last
}
