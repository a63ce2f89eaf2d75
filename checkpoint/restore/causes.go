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
	// detail tells causes apart that are about no device of the host.
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
	failed := o.State == Failed || o.State == Blocked
	switch {
	case failed && o.unreadable != nil:
		return causeKey{kind: CauseUnreadable, detail: unreadableReason(o.unreadable)}, true
	case failed && o.absence != "":
		return causeKey{kind: CauseKept, detail: string(o.absence)}, true
	case failed && o.blocked != "":
		return causeKey{kind: CauseDevice, device: o.blocked}, true
	case failed:
		return causeKey{kind: CauseFailure, detail: o.Reason}, true
	case o.State == ToRestore && o.base != "":
		return causeKey{kind: CauseLost, device: o.base}, true
	case o.State == ToRestore: // On something in its own sandbox.
		return causeKey{kind: CauseLost, detail: o.Attachment.ContainerID}, true
	case o.State == ToRepair && len(o.Steps) == 0:
		return causeKey{kind: CauseHost, device: o.base}, true
	case o.State == ToRepair:
		return causeKey{kind: CauseDrift, detail: strings.Join(changedParts(o.Steps), ", ")}, true
	case !o.IsAsRecorded():
		return causeKey{}, false
	case o.NoCarrier != "" && o.ownLink:
		return causeKey{kind: CauseCarrier, detail: o.Attachment.ContainerID + "/" + o.NoCarrier}, true
	case o.NoCarrier != "":
		return causeKey{kind: CauseCarrier, device: o.NoCarrier}, true
	case o.AnnouncementOwed && o.Parent == "": // A NIC of the sandbox's own.
		return causeKey{kind: CauseUnannounced, detail: o.Attachment.ContainerID + "/" + o.Attachment.IfName}, true
	case o.AnnouncementOwed:
		return causeKey{kind: CauseUnannounced, device: o.Parent}, true
	}
	return causeKey{}, false
}

// unreadableReason says in short why a checkpoint cannot be read, without its path.
func unreadableReason(err error) string {
	var path *fs.PathError
	switch {
	case errors.Is(err, checkpoint.ErrTorn):
		return "torn"
	case errors.Is(err, checkpoint.ErrVersion):
		return "of a newer relink"
	case errors.As(err, &path):
		return path.Err.Error()
	}
	return err.Error()
}

// sharedReason says for several attachments what their own reasons say with a path or an ID each.
func sharedReason(key causeKey, number int) string {
	switch {
	case key.kind == CauseUnreadable && key.detail == "torn":
		return fmt.Sprintf("%d checkpoints are torn: relink capture --refresh CONTAINER-ID mends those of a sandbox", number)
	case key.kind == CauseUnreadable:
		return fmt.Sprintf("%d checkpoints cannot be read: %s", number, key.detail)
	case key.detail == string(namespaceKept):
		return fmt.Sprintf("the sandboxes of %d attachments are not at their paths any more, but something keeps their network namespaces: "+
			"nothing is restored in them. If the pod is gone: relink forget CONTAINER-ID --force", number)
	}
	return fmt.Sprintf("the sandboxes of %d attachments are not at their paths any more, and nobody knows whether they are gone", number)
}

// reasonOf says the cause of the outcomes, of which there is at least one.
func reasonOf(key causeKey, outcomes []Outcome) string {
	switch key.kind {
	case CauseLost:
		return lostReason(key.device, outcomes)
	case CauseHost:
		return stepReasons(distinctSteps(outcomes, func(o Outcome) []Step { return o.hostSteps }))
	case CauseDrift:
		return driftReason(key.detail, outcomes)
	case CauseCarrier, CauseUnannounced:
		return outcomes[0].cutOffCause()
	case CauseUnreadable, CauseKept:
		if len(outcomes) > 1 {
			return sharedReason(key, len(outcomes))
		}
	case CauseDevice, CauseFailure:
	}
	return outcomes[0].Reason
}

// lostReason names the base, and the devices that have gone with the interfaces.
func lostReason(base string, outcomes []Outcome) string {
	device := cmp.Or(base, "a device of "+outcomes[0].sandboxName())
	text := "the interfaces on " + device + " are gone"
	if len(outcomes) == 1 {
		text = "the interface on " + device + " is gone"
	}
	var devices []string
	for _, step := range distinctSteps(outcomes, func(o Outcome) []Step { return o.hostSteps }) {
		if step.Action == CreateVLAN || step.Action == CreateBond {
			devices = appendNew(devices, step.Device)
		}
	}
	switch len(devices) {
	case 0:
		return text
	case 1:
		return text + ", and so is " + devices[0]
	}
	return text + ", and so are " + strings.Join(devices, ", ")
}

// driftReason says what differs. If the attachments differ in other ways, it names only the things.
func driftReason(things string, outcomes []Outcome) string {
	stepReasonsOf := func(o Outcome) (texts []string) {
		for _, s := range o.Steps {
			texts = append(texts, s.Reason)
		}
		return texts
	}
	first := stepReasonsOf(outcomes[0])
	for _, o := range outcomes[1:] {
		if !slices.Equal(stepReasonsOf(o), first) {
			return "not as recorded: " + things
		}
	}
	return strings.Join(first, "; ")
}

// distinctSteps returns the steps of all outcomes, each once.
func distinctSteps(outcomes []Outcome, list func(Outcome) []Step) (steps []Step) {
	type said struct{ text, reason string }
	listed := map[said]bool{}
	for _, o := range outcomes {
		for _, s := range list(o) {
			if key := (said{s.String(), s.Reason}); !listed[key] {
				listed[key] = true
				steps = append(steps, s)
			}
		}
	}
	return steps
}

// partNames are what steps in a sandbox change, in the words of an operator.
var partNames = map[Action]string{
	SetMTU: "MTU", SetMAC: "MAC", SetKind: "mode and options", SetAttributes: "attributes", SetMaster: "master", SetSetting: "settings",
	SetUp: "state", AddAddress: "addresses", AddRoute: "routes", AddRule: "rules",
	AddNeighbour: "neighbours", AddQdisc: "qdiscs",
	RaiseMTU: "MTU of a device below", CreateVLAN: "a device below", CreateBond: "a device below", Enslave: "a device below",
}

// changedParts names what the steps change, each once, in their order.
func changedParts(steps []Step) (parts []string) {
	for _, s := range steps {
		parts = appendNew(parts, cmp.Or(partNames[s.Action], string(s.Action)))
	}
	return parts
}
