package move

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
)

// AttachmentState is what became of an attachment.
type AttachmentState string

// The states.
const (
	// Moved: the interface is on the new parent, as recorded.
	Moved AttachmentState = "moved"
	// ToMove: the interface can be moved. Nothing was changed.
	ToMove AttachmentState = "to move"
	// Refused: the interface cannot be moved, and is where it was.
	Refused AttachmentState = "not movable"
	// Failed: the move failed. The reason says where the interface is.
	Failed AttachmentState = "FAILED"
	// Deleted: the pod or its interface was deleted during the move, and nothing is left to move.
	Deleted AttachmentState = "deleted"
)

// AttachmentOutcome is what became of one attachment.
type AttachmentOutcome struct {
	Attachment attachment.Key  `json:"attachment"`
	Pod        attachment.Pod  `json:"pod,omitzero"`
	State      AttachmentState `json:"state"`
	Reason     string          `json:"reason,omitempty"`
	// OldParent and NewParent are the names of the parents before and after the move.
	OldParent string `json:"from"`
	NewParent string `json:"to,omitempty"`
	// SwitchDuration is how long the pod's part of the move took, in nanoseconds: from the first request to the last
	// announcement.
	SwitchDuration time.Duration `json:"switchedNanoseconds,omitempty"`
}

// UplinkReport is the whole of what a move found and did.
type UplinkReport struct {
	DryRun bool `json:"dryRun"`
	// Steps are the steps in the host.
	Steps []restore.StepResult `json:"steps,omitempty"`
	// Notes are what the operator should know.
	Notes       []string            `json:"notes,omitempty"`
	Attachments []AttachmentOutcome `json:"attachments"`
	// Problems are problems that do not concern one attachment.
	Problems []string `json:"problems,omitempty"`
	// Interrupted says that the context ended before the move did.
	Interrupted bool          `json:"interrupted,omitempty"`
	Duration    time.Duration `json:"tookNanoseconds"`
}

// Complete says that everything was moved, or that a dry run would move everything. What was deleted meanwhile does not count.
func (r UplinkReport) Complete() bool {
	return len(r.Problems) == 0 && !r.Interrupted && !slices.ContainsFunc(r.Attachments, func(o AttachmentOutcome) bool {
		return o.State != Moved && o.State != ToMove && o.State != Deleted
	})
}

// Unchanged says that the move did not begin.
func (r UplinkReport) Unchanged() bool {
	return !slices.ContainsFunc(r.Attachments, func(o AttachmentOutcome) bool { return o.State == Moved || o.State == Failed })
}

func (r *moveRun) buildReport(start time.Time) UplinkReport {
	for _, j := range r.moves {
		r.report.Attachments = append(r.report.Attachments, j.outcome)
	}
	slices.SortStableFunc(r.report.Attachments, func(a, b AttachmentOutcome) int {
		return cmp.Or(strings.Compare(a.Pod.Namespace, b.Pod.Namespace), strings.Compare(a.Pod.Name, b.Pod.Name),
			strings.Compare(a.Attachment.ContainerID, b.Attachment.ContainerID), strings.Compare(a.Attachment.IfName, b.Attachment.IfName))
	})
	r.report.Duration = time.Since(start)
	return r.report
}
