package restore

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
)

// CauseKind says what sort of thing keeps attachments from being as recorded.
type CauseKind string

// The kinds.
const (
	// CauseDevice: a device of the host that the attachments need is missing or can't be used.
	CauseDevice CauseKind = "device"
	// CauseLost: the interfaces are gone, and what they were on is there or can be built.
	CauseLost CauseKind = "lost"
	// CauseHost: the interfaces are there, and a device of the host below them is to be repaired.
	CauseHost CauseKind = "host"
	// CauseDrift: the interfaces are there, and other than recorded.
	CauseDrift CauseKind = "drift"
	// CauseCarrier: the attachments have no carrier.
	CauseCarrier CauseKind = "carrier"
	// CauseUnannounced: the neighbours have yet to be told the addresses.
	CauseUnannounced CauseKind = "unannounced"
	// CauseUnreadable: the checkpoints cannot be read.
	CauseUnreadable CauseKind = "unreadable"
	// CauseKept: the network namespaces are not at their paths any more, and are not proven gone.
	CauseKept CauseKind = "kept"
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
func Causes(report Report) []Cause {
	groups, names := map[causeKey][]Outcome{}, sandboxNames(report.Attachments)
	for _, o := range report.Attachments {
		if key, ok := o.cause(); ok {
			groups[key] = append(groups[key], o)
		}
	}
	causes := make([]Cause, 0, len(groups))
	for key, outcomes := range groups {
		c := Cause{Kind: key.kind, Device: key.device, Reason: reasonOf(key, outcomes)}
		pods := map[string]bool{}
		for _, o := range outcomes {
			c.Attachments = append(c.Attachments, o.Attachment)
			pods[names[o.Attachment.ContainerID]] = true
		}
		c.Pods = len(pods)
		causes = append(causes, c)
	}
	slices.SortFunc(causes, func(a, b Cause) int {
		return cmp.Or(len(b.Attachments)-len(a.Attachments), strings.Compare(a.Reason, b.Reason), strings.Compare(a.Attachments[0].String(), b.Attachments[0].String()))
	})
	return causes
}

// sandboxNames names the sandboxes by their container IDs. A checkpoint that cannot be read may not tell the pod,
// while another one of its sandbox does.
func sandboxNames(outcomes []Outcome) map[string]string {
	names := map[string]string{}
	for _, o := range outcomes {
		if id := o.Attachment.ContainerID; names[id] == "" || o.Pod != (attachment.Pod{}) {
			names[id] = o.sandboxName()
		}
	}
	return names
}

// cause returns why the attachment is not as recorded. ok is false if it is as recorded or gone with its
// sandbox.
func (o Outcome) cause() (_ causeKey, ok bool) {
	switch {
	case o.State == Failed || o.State == Blocked || o.State == NotTried:
		return cmp.Or(o.failure, causeKey{kind: CauseFailure, detail: o.Reason}), true
	case o.State == ToRestore:
		return causeKey{kind: CauseLost, device: o.base, detail: cmp.Or(o.base, "a device of "+o.sandboxName())}, true
	case o.State == ToRepair && len(o.Steps) == 0:
		return causeKey{kind: CauseHost, device: o.base}, true
	case o.State == ToRepair:
		key := causeKey{kind: CauseDrift}
		for _, s := range o.Steps {
			if text := string(s.Action) + " "; !strings.Contains(key.detail, text) {
				key.detail += text
			}
		}
		return key, true
	}
	key := causeKey{kind: CauseCarrier, detail: o.cutOffCause()}
	if o.NoCarrier == "" {
		key.kind = CauseUnannounced
	}
	if !o.ownLink {
		key.device = cmp.Or(o.NoCarrier, o.Parent)
	}
	return key, o.IsAsRecorded() && (o.NoCarrier != "" || o.AnnouncementOwed)
}

// unreadableReason says why checkpoints cannot be read, without the path of one.
func unreadableReason(err error) string {
	for _, known := range []error{checkpoint.ErrTorn, checkpoint.ErrVersion, fs.ErrPermission} {
		if errors.Is(err, known) {
			err = known
		}
	}
	return fmt.Sprintf("checkpoints cannot be read: %v (relink capture --refresh CONTAINER-ID mends torn ones)", err)
}

// reasonOf says the cause of the outcomes, of which there is at least one.
func reasonOf(key causeKey, outcomes []Outcome) string {
	var steps, created []string
	for _, o := range outcomes {
		for _, s := range o.hostSteps {
			steps = appendNew(steps, stepReasons([]Step{s}))
			if s.Action == CreateVLAN || s.Action == CreateBond {
				created = appendNew(created, s.Device)
			}
		}
	}
	switch key.kind {
	case CauseLost:
		text := "the interfaces on " + key.detail + " are gone"
		if len(created) > 0 {
			text += ", with " + strings.Join(created, ", ")
		}
		return text
	case CauseHost:
		return strings.Join(steps, "; ")
	case CauseDrift:
		return driftReason(outcomes)
	case CauseDevice:
		return outcomes[0].Reason
	}
	return key.detail
}

// driftReason says how the first attachment differs. The others can have other values.
func driftReason(outcomes []Outcome) string {
	reasons := func(o Outcome) string {
		var texts []string
		for _, s := range o.Steps {
			texts = append(texts, s.Reason)
		}
		return strings.Join(texts, "; ")
	}
	text := reasons(outcomes[0])
	if slices.ContainsFunc(outcomes, func(o Outcome) bool { return reasons(o) != text }) {
		return "such as: " + text
	}
	return text
}
