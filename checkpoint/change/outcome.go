package change

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/printable"
)

// State is what is to be done about an attachment, or what became of it. Each verb has its own, and shares these.
type State string

// The states of all verbs.
const (
	// Kept: it stays as it is, as it should.
	Kept State = "kept"
	// Refused: it must not be changed, and stays as it is.
	Refused State = "refused"
	Failed  State = "failed"
	// NotTried: an interrupt came before its turn.
	NotTried State = "not tried"
)

// Outcome is what is to be done about one attachment, or what became of it. An outcome of a verb has it within.
type Outcome struct {
	Attachment attachment.Key `json:"attachment"`
	Pod        attachment.Pod `json:"pod,omitzero"`
	State      State          `json:"state"`
	Reason     string         `json:"reason,omitempty"`
}

// Unreadable is the outcome of an attachment whose checkpoint cannot be read.
func Unreadable(u checkpoint.Unreadable) Outcome {
	o := Outcome{Attachment: u.Attachment(), Pod: u.Partial.Pod}
	o.Fail(u.Err)
	return o
}

// Common returns the part that all verbs share.
func (o Outcome) Common() Outcome { return o }

// SandboxName names the sandbox for people: by its pod, or by its container ID where that is not known.
func (o Outcome) SandboxName() string { return o.Pod.Or("sandbox " + o.Attachment.ContainerID) }

// Fail sets the state by the error.
func (o *Outcome) Fail(err error) {
	o.State, o.Reason = Failed, printable.Joined(err)
	if errors.Is(err, ErrNotTried) {
		o.State = NotTried
	}
}

// IsWrong says that what was asked for was not done.
func (o Outcome) IsWrong() bool {
	return o.State == Refused || o.State == Failed || o.State == NotTried
}

// Compare orders outcomes by pod, and then by attachment.
func (o Outcome) Compare(b Outcome) int {
	return cmp.Or(strings.Compare(o.Pod.Namespace, b.Pod.Namespace), strings.Compare(o.Pod.Name, b.Pod.Name),
		strings.Compare(o.Attachment.ContainerID, b.Attachment.ContainerID), strings.Compare(o.Attachment.IfName, b.Attachment.IfName))
}

// Report is the whole of what a verb found and did.
type Report[O interface{ Common() Outcome }] struct {
	DryRun   bool `json:"dryRun"`
	Outcomes []O  `json:"outcomes"`
	// Notes are what the operator should know. Problems are what went wrong besides the outcomes.
	Notes    []string `json:"notes,omitempty"`
	Problems []string `json:"problems,omitempty"`
	// Interrupted says that the context ended before the run did.
	Interrupted bool `json:"interrupted,omitempty"`
	// Duration is the whole time of the run, in nanoseconds.
	Duration time.Duration `json:"tookNanoseconds,omitempty"`
}

// Complete says that everything was done that was asked for.
func (r Report[O]) Complete() bool {
	return len(r.Problems) == 0 && !r.Interrupted && !slices.ContainsFunc(r.Outcomes, func(o O) bool { return o.Common().IsWrong() })
}

// Count returns how many outcomes are in the state.
func (r Report[O]) Count(state State) (n int) {
	for _, o := range r.Outcomes {
		if o.Common().State == state {
			n++
		}
	}
	return n
}

// Sort puts the outcomes in order by pod.
func (r Report[O]) Sort() {
	slices.SortStableFunc(r.Outcomes, func(a, b O) int { return a.Common().Compare(b.Common()) })
}
