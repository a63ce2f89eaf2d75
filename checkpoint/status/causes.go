package status

import (
	"cmp"
	"slices"
	"strings"

	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
)

// NoLink is the state of an attachment that is as recorded and cut off: its parent or the interface itself has no carrier.
const NoLink change.State = "no link"

// StateOf is the attachment's state.
func StateOf(o restore.Outcome) change.State {
	if o.State == restore.AsRecorded && o.NoCarrier != "" {
		return NoLink
	}
	return o.State
}

// Words is the state for people: it names the device that a waiting attachment needs.
func Words(o restore.Outcome) string {
	if o.State == restore.Waiting {
		return "waiting for " + o.Problem.Device
	}
	return string(StateOf(o))
}

// unreadable reports whether the outcome's checkpoint cannot be read. Then relink knows nothing of the interface.
func unreadable(o restore.Outcome) bool { return o.Interface.Link.Name == "" }

// CauseKind says what sort of thing keeps attachments from being as recorded.
type CauseKind string

// The kinds.
const (
	// CauseDevice: a device of the host that the attachments need can't be used. CauseWaiting: it is missing, and may still come.
	CauseDevice  CauseKind = "device"
	CauseWaiting CauseKind = "waiting"
	// CauseLost: the interfaces are gone, and what they were on is there or can be built.
	CauseLost CauseKind = "lost"
	// CauseHost: the interfaces are there, and a device of the host below them is to be repaired.
	CauseHost CauseKind = "host"
	// CauseDrift: the interfaces are there, and other than recorded. CauseChange: a capture would record that.
	CauseDrift  CauseKind = "drift"
	CauseChange CauseKind = "change"
	// CauseCarrier: the attachments have no carrier.
	CauseCarrier CauseKind = "carrier"
	// CauseUnannounced: the neighbours have yet to be told the addresses.
	CauseUnannounced CauseKind = "unannounced"
	// CauseUnreadable: the checkpoints cannot be read.
	CauseUnreadable CauseKind = "unreadable"
	// CauseFailure: something failed that is about no device of the host.
	CauseFailure CauseKind = "failure"
)

// Cause is one thing for which attachments are not as recorded.
type Cause struct {
	Kind CauseKind `json:"kind"`
	// Device is the device of the host that it is about, empty if it is about none.
	Device string `json:"device,omitempty"`
	// Reason says it for people.
	Reason string `json:"reason"`
	// Attachments are those that it concerns, in the order of the report. There is at least one.
	Attachments []attachment.Key `json:"attachments"`
	// Pods is the number of pods that these are of.
	Pods int `json:"pods"`
}

// causeKey is what attachments with one cause have in common.
type causeKey struct {
	kind   CauseKind
	device string
	// detail tells causes apart that are about no device of the host. It is their reason, except for drift: there it is the actions.
	detail string
}

// Causes returns why attachments are not as recorded. Each attachment that differs or is cut off is in
// exactly one cause. Attachments that need the same device of the host have one cause, whatever their
// interfaces are called. An attachment whose sandbox is gone has none. The cause that concerns most
// attachments comes first.
func Causes(report restore.Report) []Cause {
	groups := map[causeKey][]restore.Outcome{}
	for _, o := range report.Outcomes {
		if key, ok := keyOf(o); ok {
			groups[key] = append(groups[key], o)
		}
	}
	causes := make([]Cause, 0, len(groups))
	for key, outcomes := range groups {
		c := Cause{Kind: key.kind, Device: key.device, Reason: reasonOf(key, outcomes)}
		pods := map[string]bool{}
		for _, o := range outcomes {
			c.Attachments = append(c.Attachments, o.Attachment)
			pods[o.Attachment.ContainerID] = true
		}
		c.Pods = len(pods)
		causes = append(causes, c)
	}
	slices.SortFunc(causes, func(a, b Cause) int {
		return cmp.Or(len(b.Attachments)-len(a.Attachments), strings.Compare(a.Reason, b.Reason), strings.Compare(a.Attachments[0].String(), b.Attachments[0].String()))
	})
	return causes
}

// keyOf returns why the attachment is not as recorded. ok is false if it is as recorded or gone with its
// sandbox.
func keyOf(o restore.Outcome) (_ causeKey, ok bool) {
	device, reason := o.CutOff()
	switch {
	case unreadable(o):
		return causeKey{kind: CauseUnreadable}, true
	case o.State == restore.Waiting:
		return causeKey{kind: CauseWaiting, device: o.Problem.Device}, true
	case o.State == change.Failed || o.State == restore.Blocked || o.State == change.NotTried:
		if o.Problem.Device != "" {
			return causeKey{kind: CauseDevice, device: o.Problem.Device}, true
		}
		return causeKey{kind: CauseFailure, detail: cmp.Or(o.Problem.Cause, o.Reason)}, true
	case o.State == restore.ToRestore:
		return causeKey{kind: CauseLost, device: o.Base, detail: cmp.Or(o.Base, "a device of "+o.SandboxName())}, true
	case o.State == restore.ToRepair && len(o.Steps) == 0:
		return causeKey{kind: CauseHost, device: o.Base}, true
	case o.State == restore.ToRepair:
		return causeKey{kind: driftKind(o), detail: actionsOf(o)}, true
	case o.NoCarrier != "":
		return causeKey{kind: CauseCarrier, device: device, detail: reason}, o.IsAsRecorded()
	}
	return causeKey{kind: CauseUnannounced, device: device, detail: reason}, o.IsAsRecorded() && o.AnnouncementOwed
}

// driftKind says whether a capture would record how the interface is now.
func driftKind(o restore.Outcome) CauseKind {
	access := func(s restore.Step) bool { return s.Action == restore.RepairHostAccess }
	if o.Worse != "" || len(o.HostSteps) > 0 || slices.ContainsFunc(o.Steps, access) {
		return CauseDrift
	}
	return CauseChange
}

// actionsOf returns the actions of the steps, each once.
func actionsOf(o restore.Outcome) (actions string) {
	for _, s := range o.Steps {
		if text := string(s.Action) + " "; !strings.Contains(actions, text) {
			actions += text
		}
	}
	return actions
}

// reasonOf says the cause of the outcomes, of which there is at least one.
func reasonOf(key causeKey, outcomes []restore.Outcome) string {
	switch key.kind {
	case CauseLost:
		text := "the interfaces on " + key.detail + " are gone"
		if created := distinct(outcomes, createdBy); created != nil {
			text += ", with " + strings.Join(created, ", ")
		}
		return text
	case CauseHost:
		return strings.Join(distinct(outcomes, func(o restore.Outcome) []string {
			return texts(o.HostSteps, func(s restore.Step) string { return s.Device + ": " + s.Reason })
		}), "; ")
	case CauseDrift, CauseChange:
		reasons := distinct(outcomes, func(o restore.Outcome) []string {
			return []string{strings.Join(texts(o.Steps, func(s restore.Step) string { return s.Reason }), "; ")}
		})
		if len(reasons) > 1 {
			return "such as: " + reasons[0]
		}
		return reasons[0]
	case CauseDevice, CauseWaiting, CauseUnreadable:
		return outcomes[0].Reason
	}
	return key.detail
}

// createdBy returns the devices of the host that a restore of the attachment creates.
func createdBy(o restore.Outcome) (names []string) {
	for _, s := range o.HostSteps {
		if s.Action == restore.CreateVLAN || s.Action == restore.CreateBond {
			names = append(names, s.Device)
		}
	}
	return names
}

// distinct returns the texts of all outcomes, each once.
func distinct(outcomes []restore.Outcome, textsOf func(restore.Outcome) []string) (list []string) {
	for _, o := range outcomes {
		for _, text := range textsOf(o) {
			if !slices.Contains(list, text) {
				list = append(list, text)
			}
		}
	}
	return list
}

func texts(steps []restore.Step, text func(restore.Step) string) (list []string) {
	for _, s := range steps {
		list = append(list, text(s))
	}
	return list
}
