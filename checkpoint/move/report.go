package move

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
)

// State is what became of an attachment.
type State string

// The states.
const (
	// Moved: the interface is on the new parent, as recorded.
	Moved State = "moved"
	// ToMove: the interface can be moved. Nothing was changed.
	ToMove State = "to move"
	// Refused: the interface cannot be moved, and is where it was.
	Refused State = "not movable"
	// Failed: the move failed. The reason says where the interface is.
	Failed State = "FAILED"
	// Deleted: the pod or its interface was deleted during the move, and nothing is left to move.
	Deleted State = "deleted"
)

// Outcome is what became of one attachment.
type Outcome struct {
	Attachment attachment.Key `json:"attachment"`
	Pod        attachment.Pod `json:"pod,omitzero"`
	State      State          `json:"state"`
	Reason     string         `json:"reason,omitempty"`
	// From and To are the names of the parents before and after the move.
	From string `json:"from"`
	To   string `json:"to,omitempty"`
	// Switched is how long the pod's part of the move took, in nanoseconds: from the first request to the last
	// announcement.
	Switched time.Duration `json:"switchedNanoseconds,omitempty"`
}

// Report is the whole of what a move found and did.
type Report struct {
	DryRun bool `json:"dryRun"`
	// Steps are the steps in the host.
	Steps []restore.StepResult `json:"steps,omitempty"`
	// Notes are what the operator should know.
	Notes       []string  `json:"notes,omitempty"`
	Attachments []Outcome `json:"attachments"`
	// Problems are problems that do not concern one attachment.
	Problems []string `json:"problems,omitempty"`
	// Interrupted says that the context ended before the move did.
	Interrupted bool          `json:"interrupted,omitempty"`
	Took        time.Duration `json:"tookNanoseconds"`
}

// Whole says that everything was moved, or that a dry run would move everything. What was deleted meanwhile does not count.
func (r Report) Whole() bool {
	return len(r.Problems) == 0 && !r.Interrupted && !slices.ContainsFunc(r.Attachments, func(o Outcome) bool {
		return o.State != Moved && o.State != ToMove && o.State != Deleted
	})
}

// Nothing says that the move did not begin.
func (r Report) Nothing() bool {
	return !slices.ContainsFunc(r.Attachments, func(o Outcome) bool { return o.State == Moved || o.State == Failed })
}

func (r *run) finish(start time.Time) Report {
	for _, j := range r.moves {
		r.report.Attachments = append(r.report.Attachments, j.outcome)
	}
	slices.SortStableFunc(r.report.Attachments, func(a, b Outcome) int {
		return cmp.Or(strings.Compare(a.Pod.Namespace, b.Pod.Namespace), strings.Compare(a.Pod.Name, b.Pod.Name),
			strings.Compare(a.Attachment.ContainerID, b.Attachment.ContainerID), strings.Compare(a.Attachment.IfName, b.Attachment.IfName))
	})
	r.report.Took = time.Since(start)
	return r.report
}
