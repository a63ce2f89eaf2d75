package restore

import (
	"fmt"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/selection"
)

// saveLastRestore writes down what the restore did, for relink status. If it cannot be written, the report
// has a note, and nothing fails.
func saveLastRestore(store *checkpoint.Store, sel selection.Selection, start time.Time, report *Report) {
	last := checkpoint.LastRestore{
		StartedAt: start.UTC().Truncate(time.Millisecond), Selection: sel.Words(),
		Duration: report.Duration, WaitDuration: report.WaitDuration, Interrupted: report.Interrupted,
		Counts: map[string]int{}, Problems: len(report.Problems),
	}
	for _, o := range report.Outcomes {
		last.Counts[string(o.State)]++
		if o.State == change.Failed && len(last.Failed) < checkpoint.MaxFailed {
			last.Failed = append(last.Failed, checkpoint.FailedRestore{Attachment: o.Attachment, Pod: o.Pod, Reason: o.FullReason()})
		}
	}
	if err := store.SaveLastRestore(last); err != nil {
		report.Notes = append(report.Notes, fmt.Sprintf("%v: relink status does not know of this restore", err))
	}
}
