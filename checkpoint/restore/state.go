package restore

import (
	"errors"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// attachmentState is what a run knows of one attachment between its steps.
type attachmentState struct {
	outcome Outcome
	// listed is the record as the run has read it. namespace is that of the sandbox.
	listed    *checkpoint.Record
	namespace attachment.Namespace
	// missing is what is at the namespace's path, if that does not lead to the namespace any more.
	missing error
	// foundParents are the recorded parents as they came back, until their indices are written. parentIndex is the index of the parent in
	// the host: another device may get its name.
	foundParents []netstate.Device
	parentIndex  int
	// owedInRecordOnly says that the outcome's AnnouncementOwed stands only for the record: the neighbours were told while another was at
	// work on the sandbox.
	owedInRecordOnly bool
	chain            *chainRestore
	sandbox          *sandboxRestore
	// detached says that the attachment has no checkpoint any more.
	detached bool
}

func newState(listed *checkpoint.Record) *attachmentState {
	o := outcomeOf(*listed)
	o.Record = listed
	return &attachmentState{outcome: o, listed: listed, namespace: listed.Namespace}
}

func outcomeOf(record checkpoint.Record) Outcome {
	o := Outcome{Outcome: change.Outcome{Attachment: record.Attachment, Pod: record.Pod, State: AsRecorded}, Interface: record.Interface}
	if len(record.Interface.Parents) > 0 {
		o.Parent = record.Interface.Parents[0].Name
	}
	return o
}

// addSteps adds steps that bring the attachment back, to those in the host and those that are done already.
func (o *Outcome) addSteps(steps []Step) {
	o.Steps = slices.Concat(o.Steps, steps)
	if len(o.HostSteps)+len(o.Steps) == 0 {
		return
	}
	o.State, o.ParentReason, o.Reason = Repaired, stepReasons(o.HostSteps), stepReasons(o.Steps)
	if slices.ContainsFunc(o.Steps, func(s Step) bool { return s.Action == Create || s.Action == MoveNIC }) {
		o.State = Restored
	}
}

// Fail sets the state by the error, and notes the Problem in it.
func (o *Outcome) Fail(err error) {
	o.Outcome.Fail(err)
	o.Problem = Problem{}
	if found := (*Problem)(nil); errors.As(err, &found) {
		o.Problem = *found
	}
	o.Problem.Reason = o.Reason
}
