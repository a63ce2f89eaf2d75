package move

import (
	"time"

	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/restore"
)

// The states, beside those of all verbs. Refused is an interface that cannot be moved, and is where it was. The reason of Failed says where
// the interface is.
const (
	// Moved: the interface is on the new parent, as recorded.
	Moved change.State = "moved"
	// ToMove: the interface can be moved. Nothing was changed.
	ToMove change.State = "to move"
	// Deleted: the pod or its interface was deleted during the move, and nothing is left to move.
	Deleted change.State = "deleted"
)

// AttachmentOutcome is what became of one attachment.
type AttachmentOutcome struct {
	change.Outcome
	// OldParent and NewParent are the names of the parents before and after the move.
	OldParent string `json:"from"`
	NewParent string `json:"to,omitempty"`
	// SwitchDuration is how long the pod's part of the move took, in nanoseconds: from the first request to the last
	// announcement.
	SwitchDuration time.Duration `json:"switchedNanoseconds,omitempty"`
}

// UplinkReport is the whole of what a move found and did.
type UplinkReport struct {
	change.Report[AttachmentOutcome]
	// Steps are the steps in the host.
	Steps []restore.Step `json:"steps,omitempty"`
}

// Unchanged says that the move did not begin.
func (r UplinkReport) Unchanged() bool { return r.Count(Moved)+r.Count(change.Failed) == 0 }

func (r *moveRun) buildReport(start time.Time) UplinkReport {
	for _, j := range r.moves {
		r.report.Outcomes = append(r.report.Outcomes, j.outcome)
	}
	r.report.Sort()
	r.report.Duration = time.Since(start)
	return r.report
}
