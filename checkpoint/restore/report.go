package restore

import (
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// State is how an attachment is, or what became of it.
type State string

// The states. Of a dry run, ToRestore and ToRepair stand for Restored and
// Repaired.
const (
	AsRecorded State = "as recorded"
	Restored   State = "restored"
	Repaired   State = "repaired"
	ToRestore  State = "to restore"
	ToRepair   State = "to repair"
	// SandboxGone: the network namespace is proven gone, and so nothing is to be
	// restored. It is no failure.
	SandboxGone State = "sandbox gone"
	Failed      State = "failed"
)

// Outcome is what is reported of one attachment.
type Outcome struct {
	Attachment attachment.Key     `json:"attachment"`
	Pod        attachment.Pod     `json:"pod,omitzero"`
	Interface  netstate.Interface `json:"interface,omitzero"`
	// Live is the interface as it was seen last, if Options.KeepLive is set: nil if it is gone
	// or can't be looked at, which Reason says.
	Live *netstate.Interface `json:"live,omitempty"`
	// Parent is what the interface is stacked on now.
	Parent string `json:"parent,omitempty"`
	State  State  `json:"state"`
	// Steps are what was done, or of a dry run what would be.
	Steps []Step `json:"steps,omitempty"`
	// Reason says why the state is not AsRecorded, or what an interrupt has kept from the attachment,
	// as far as the sandbox goes; ParentReason as far as the host goes.
	Reason       string `json:"reason,omitempty"`
	ParentReason string `json:"parentReason,omitempty"`
	// Announced says that the neighbours were told the addresses, AnnouncementOwed that
	// they have yet to be.
	Announced        bool `json:"announced"`
	AnnouncementOwed bool `json:"announcementOwed,omitempty"`
	// NoCarrier is the device without carrier, for lack of which the attachment is cut
	// off: its parent, or the interface itself. Empty if there is none.
	NoCarrier string `json:"noCarrier,omitempty"`
	// settled says that the record tells what is owed now.
	settled bool
	// ownLink says that NoCarrier is the interface itself. at is the sandbox, parentIndex
	// the parent's in the host: its name may go to another device.
	ownLink     bool
	at          attachment.Namespace
	parentIndex int
	// What Causes goes by. base is the lowest device in the host by its name now, below are the steps
	// in the host that the attachment needs. blocked is the recorded name of a device in the host that
	// can't be used, waitedFor that of one that was waited for at an interrupt.
	base, blocked, waitedFor string
	below                    []Step
}

// IsAsRecorded says that the attachment is as recorded now.
func (o Outcome) IsAsRecorded() bool {
	return o.State == AsRecorded || o.State == Restored || o.State == Repaired
}

// sandboxName names the sandbox for people: by its pod, or by its container ID where that is not known.
func (o Outcome) sandboxName() string {
	if o.Pod == (attachment.Pod{}) {
		return "sandbox " + o.Attachment.ContainerID
	}
	return o.Pod.String()
}

// Differs says that something is to be done about the attachment: it is neither as
// recorded nor gone with its sandbox.
func (o Outcome) Differs() bool { return !o.IsAsRecorded() && o.State != SandboxGone }

// Why returns all reasons.
func (o Outcome) Why() string {
	if o.Reason == "" || o.ParentReason == "" {
		return o.ParentReason + o.Reason
	}
	return o.ParentReason + "; " + o.Reason
}

// Report is the whole of what a restore found and did.
type Report struct {
	DryRun bool `json:"dryRun"`
	// Parents are the steps in the host.
	Parents []StepResult `json:"parents"`
	// Notes are what the operator should know: a NIC under another name.
	Notes       []string  `json:"notes,omitempty"`
	Attachments []Outcome `json:"attachments"`
	// Devices are the parents that the records name, as they were seen last.
	Devices []DeviceState `json:"-"`
	// Problems are what is not as recorded besides the attachments.
	Problems []string `json:"problems,omitempty"`
	// Interrupted says that the context ended before the restore did.
	Interrupted bool `json:"interrupted,omitempty"`
	// Waited is how long devices were waited for, Took the whole, in
	// nanoseconds.
	Waited time.Duration `json:"waitedNanoseconds"`
	Took   time.Duration `json:"tookNanoseconds"`
}

// AsRecorded says that everything is as recorded, but for what is gone with its sandbox.
func (r Report) AsRecorded() bool {
	return len(r.Problems) == 0 && !slices.ContainsFunc(r.Attachments, Outcome.Differs)
}

func (r *Report) problem(text string) { r.Problems = appendNew(r.Problems, text) }

func appendNew(list []string, text string) []string {
	if slices.Contains(list, text) {
		return list
	}
	return append(list, text)
}
