package restore

import (
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/netstate"
)

// The states, beside those of all verbs. A dry run has ToRestore and ToRepair in the place of Restored and Repaired, and Waiting or Blocked in
// the place of Failed: nobody has tried.
const (
	AsRecorded change.State = "as recorded"
	Restored   change.State = "restored"
	Repaired   change.State = "repaired"
	ToRestore  change.State = "to restore"
	ToRepair   change.State = "to repair"
	// Waiting: a device of the host is not there, and may still come (Outcome.Problem).
	Waiting change.State = "waiting"
	Blocked change.State = "blocked"
	// SandboxGone: the network namespace is proven gone, and so nothing is to be
	// restored. It is no failure.
	SandboxGone change.State = "sandbox gone"
)

// dryRunState is what a dry run reports in the place of the state.
func (o Outcome) dryRunState() change.State {
	switch {
	case o.State == Restored:
		return ToRestore
	case o.State == Repaired:
		return ToRepair
	case o.State == change.Failed && o.Problem.Transient && o.Problem.Device != "":
		return Waiting
	case o.State == change.Failed:
		return Blocked
	}
	return o.State
}

// Outcome is what is reported of one attachment. Its Reason says why the state is not AsRecorded, or what is missing because of an interrupt.
type Outcome struct {
	change.Outcome
	// Record is the checkpoint as it was listed, nil for one that cannot be read.
	Record    *checkpoint.Record `json:"-"`
	Interface netstate.Interface `json:"interface,omitzero"`
	// Live is the interface as it was seen last: nil if it is gone or can't be looked at, which Reason says.
	Live *netstate.Interface `json:"-"`
	// Parent is the name of the device that the interface is on now.
	Parent string `json:"parent,omitempty"`
	// Steps are what was done. Of a dry run they are what a restore would do.
	Steps []Step `json:"steps,omitempty"`
	// ParentReason says what was wrong with the devices of the host.
	ParentReason string `json:"parentReason,omitempty"`
	// Announced says that the neighbours were told the addresses. AnnouncementOwed says that they
	// are not told yet.
	Announced        bool `json:"announced"`
	AnnouncementOwed bool `json:"announcementOwed,omitempty"`
	// NoCarrier is the device whose missing carrier cuts the attachment off: its parent, or the
	// interface itself. It is empty if nothing is missing.
	NoCarrier string `json:"noCarrier,omitempty"`
	// Worse says why a capture would not record how the interface is now, empty if it would. Only a dry run fills it in.
	Worse string `json:"-"`
	// Base is the name that the lowest device in the host has now. HostSteps are the steps in the host that the attachment needs. Problem
	// is why it failed. OwnLink says that NoCarrier is the interface itself.
	Base      string  `json:"-"`
	HostSteps []Step  `json:"-"`
	Problem   Problem `json:"-"`
	OwnLink   bool    `json:"-"`
}

// IsAsRecorded says that the attachment is as recorded now.
func (o Outcome) IsAsRecorded() bool {
	return o.State == AsRecorded || o.State == Restored || o.State == Repaired
}

// argument is what names the sandbox on a command line.
func (o Outcome) argument() string {
	return o.Pod.Or(o.Attachment.ContainerID)
}

// Differs says that something is wrong with the attachment: it is not as recorded, and its
// sandbox is not gone.
func (o Outcome) Differs() bool { return !o.IsAsRecorded() && o.State != SandboxGone }

// FullReason returns all reasons.
func (o Outcome) FullReason() string { return joinReasons(o.ParentReason, o.Reason) }

// Report is the whole of what a restore found and did. Its notes are such as the new name of a NIC.
type Report struct {
	change.Report[Outcome]
	// Parents are the steps in the host.
	Parents []Step `json:"parents"`
	// Devices are the parents that the records name, as they were seen last.
	Devices []DeviceState `json:"-"`
	// WaitDuration is how long the run waited for devices and carrier, in nanoseconds.
	WaitDuration time.Duration `json:"waitedNanoseconds"`
}

// Complete says that everything is as recorded. An attachment whose sandbox is gone does not count.
func (r Report) Complete() bool {
	return len(r.Problems) == 0 && !slices.ContainsFunc(r.Outcomes, Outcome.Differs)
}

// note adds what the operator should know.
func (r *Report) note(texts ...string) { addNew(&r.Notes, texts...) }

func (r *Report) problem(texts ...string) { addNew(&r.Problems, texts...) }

// addNew adds the texts that the list does not have. An empty text says nothing.
func addNew(list *[]string, texts ...string) {
	for _, text := range texts {
		if text != "" && !slices.Contains(*list, text) {
			*list = append(*list, text)
		}
	}
}

// addSteps adds what became of steps in the host.
func (r *Report) addSteps(steps []Step) {
	r.Parents = append(r.Parents, steps...)
	for _, s := range steps {
		r.problem(s.Error)
	}
}

// joinReasons joins two reasons, of which any can be empty.
func joinReasons(earlier, addition string) string {
	if earlier == "" || addition == "" {
		return earlier + addition
	}
	return earlier + "; " + addition
}
