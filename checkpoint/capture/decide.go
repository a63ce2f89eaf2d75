package capture

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/capture/netfix"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// Writer is what the records of this package have as Writer.
const Writer = "relink capture"

// LiveInterface is an interface of a running sandbox. A checkpoint can hold it.
type LiveInterface struct {
	Identity
	Namespace attachment.Namespace
	Live      netstate.Interface
	// ReadAt is when Live was read, as a time since the boot.
	ReadAt time.Duration
	// ParentDown is the name of a parent that is down. It is empty if all are up.
	ParentDown string
	// Origin is who made it. Reason is the reason for an Origin other than Attached.
	Origin Origin
	Reason string
	// Devices are all devices of the sandbox.
	Devices netstate.Devices
	// VFReason says why the interface, a VF of SR-IOV, gets no checkpoint. It is empty for any other interface.
	VFReason string
	// NeverDown says that what is missing now was taken away on purpose (LinkHistory).
	NeverDown bool
	// access is the host access of an interface without a readable checkpoint, nil for none.
	access *hostaccess.Access
}

// Node is all that runs on the node and all that is remembered.
type Node struct {
	Interfaces []LiveInterface
	// LiveNamespaces are the namespaces that were looked into. Devices has the devices of each.
	LiveNamespaces []attachment.Namespace
	Devices        map[attachment.Namespace]netstate.Devices
	Records        []checkpoint.Record
	Unreadable     []checkpoint.Unreadable
	// Evidence says whether the namespaces of Absent and of the unreadable checkpoints are there.
	Evidence map[attachment.Namespace]sandbox.Evidence
	// Absent are the records whose namespace a look at the node did not find.
	Absent []checkpoint.Record
}

// InterfaceAction is what to do about one interface, and why: State is what it comes to. Once it was carried out, State is
// what it came to.
type InterfaceAction struct {
	InterfaceOutcome
	// owner is the pod's as far as a checkpoint has it.
	owner attachment.Owner
	// access is the pod's host access as far as a checkpoint has it.
	access *hostaccess.Access
	cni    checkpoint.CNI
	// hasCheckpoint is true if the attachment has a checkpoint, readable or not. torn is set if relink cannot read it.
	hasCheckpoint bool
	torn          *checkpoint.Unreadable
	// parents are the parents of an interface that is there. recordedInterface is the interface as far as a checkpoint has it.
	parents           []netstate.Device
	recordedInterface *netstate.Interface
	// record is the checkpoint that is to be forgotten, as it was read, unless torn is set.
	record checkpoint.Record
	// announcementOwed says that an announcement is owed. A refresh does not send it.
	announcementOwed bool
}

// decided returns the action with what it comes to, and why.
func (a InterfaceAction) decided(state InterfaceState, reason string) InterfaceAction {
	a.State, a.Reason = state, reason
	return a
}

// changesCheckpoint says that the action writes or forgets a checkpoint.
func (a InterfaceAction) changesCheckpoint() bool { return plannedStates[a.State] != "" }

// Decide returns what to do about each interface that was found, in that order. More actions follow
// for checkpoints of other interfaces. It keeps an existing checkpoint unless refresh is set. Even
// then it keeps the checkpoint if the interface is in a worse state now.
func Decide(node Node, refresh bool) []InterfaceAction {
	actions := decideLive(node, refresh)
	if refresh {
		actions = append(actions, decideUnmatched(node, actions)...)
	}
	for _, r := range node.Absent {
		if mayForget(r) {
			actions = append(actions, decideGone(r, node.Evidence[r.Namespace]))
		}
	}
	return actions
}

// decideLive is Decide for the sandboxes that were looked into.
func decideLive(node Node, refresh bool) []InterfaceAction {
	var actions []InterfaceAction
	ofSandbox := matchSandboxes(node)
	records := slices.Concat(node.Records, partialRecords(node.Unreadable, node.Records))
	for _, f := range node.Interfaces {
		actions = append(actions, decide(f, ofSandbox[f.Namespace], records, node.Unreadable, refresh))
	}
	return append(actions, decideMissing(node, ofSandbox, refresh)...)
}

// decideGone forgets a record only if its sandbox is proven gone. A path that vanished is no proof.
func decideGone(r checkpoint.Record, evidence sandbox.Evidence) InterfaceAction {
	if evidence.Verdict != sandbox.VerdictGone {
		return recordAction(r, Kept, "its sandbox was not found, but is not proven gone: "+evidence.Reason)
	}
	a := recordAction(r, Forgotten, "its sandbox is gone, and no DEL forgets what relink did not attach")
	a.record = r
	return a
}

// mayForget reports whether a capture may forget the record. No DEL ever will, because relink did not attach the
// interface.
func mayForget(r checkpoint.Record) bool { return r.Writer == Writer || netfix.IsImported(r) }

// decideMissing refuses to refresh checkpoints whose interfaces were not found in a living sandbox. Without refresh, it keeps
// those whose interface is there and could not be looked at.
func decideMissing(node Node, ofSandbox map[attachment.Namespace]matchedRecords, refresh bool) []InterfaceAction {
	found := map[attachment.Key]bool{}
	for _, f := range node.Interfaces {
		if r, ok := ofSandbox[f.Namespace].record(f); ok {
			found[r.Attachment] = true
		}
	}
	var actions []InterfaceAction
	for _, namespace := range node.LiveNamespaces {
		for _, r := range ofSandbox[namespace].records {
			if _, torn := ofSandbox[namespace].unreadable(r); torn || found[r.Attachment] {
				continue
			}
			_, exists := ofSandbox[namespace].device(r)
			reason := ofSandbox[namespace].missingReason(r)
			switch {
			case !refresh && exists:
				actions = append(actions, recordAction(r, Kept, reasonRecorded))
			case refresh && reason != "":
				actions = append(actions, recordAction(r, Refused, reason))
			}
		}
	}
	return actions
}

func recordAction(r checkpoint.Record, state InterfaceState, reason string) InterfaceAction {
	o := InterfaceOutcome{Attachment: r.Attachment, Pod: r.Pod, Namespace: r.Namespace, Interface: r.Interface, State: state, Reason: reason}
	return InterfaceAction{InterfaceOutcome: o, hasCheckpoint: true, recordedInterface: &r.Interface}
}

// decide is Decide for one interface. inside has the records of its sandbox. records have those that are left of torn
// checkpoints too. A temporary name is never recorded.
func decide(f LiveInterface, inside matchedRecords, records []checkpoint.Record, unreadable []checkpoint.Unreadable, refresh bool) InterfaceAction {
	a := decideByCheckpoint(f, inside, records, unreadable, refresh)
	if name := f.Live.Link.Name; kernel.IsTemporaryName(name) && a.changesCheckpoint() {
		return a.decided(Refused, fmt.Sprintf("it has the name %s for a moment: %v", name, checkpoint.ErrUnfinishedMove))
	}
	return a
}

func decideByCheckpoint(f LiveInterface, inside matchedRecords, records []checkpoint.Record, unreadable []checkpoint.Unreadable, refresh bool) InterfaceAction {
	o := InterfaceOutcome{Attachment: f.Attachment, Pod: f.Pod, Namespace: f.Namespace, Interface: f.Live}
	a := InterfaceAction{InterfaceOutcome: o, cni: f.CNI, parents: f.Live.Parents, access: f.access}
	switch r, ok := inside.record(f); {
	case f.VFReason != "" && ok:
		return recordAction(r, Refused, f.VFReason)
	case f.VFReason != "":
		return a.decided(Refused, f.VFReason)
	case ok:
		return decideRecorded(a, f, withoutDetachedRoutes(r, f, records), refresh)
	}
	if u, torn := findUnreadable(f, inside, records, unreadable); torn {
		return decideTorn(a, f, u, records, refresh)
	}
	switch f.Origin {
	case PodMade:
		return a.decided(Skipped, f.Reason)
	case Unclear:
		return a.decided(Refused, f.Reason)
	}
	if i := slices.IndexFunc(records, func(r checkpoint.Record) bool { return r.Attachment.SameInterface(f.Attachment) }); i >= 0 {
		return a.decided(Refused, inside.nameConflictReason(records[i]))
	}
	return decideNew(a, f)
}

// decideNew has no checkpoint to lose. It remembers the interface as it is, and reports if that
// looks bad. It refuses a link that is down: a plugin may be building it under a name for the
// moment.
func decideNew(a InterfaceAction, f LiveInterface) InterfaceAction {
	if err := a.Attachment.Validate(); err != nil {
		return a.decided(Refused, "it has no checkpoint, and "+invalidNameReason(err))
	}
	if !f.Live.Link.Up {
		return a.decided(Refused, "it has no checkpoint, and is down: set it up first, if no plugin is at work on it")
	}
	reasons := []string{"it has no checkpoint"}
	if f.Note != "" {
		reasons = append(reasons, f.Note)
	}
	if reason := downReason(f); reason != "" {
		reasons = append(reasons, reason)
	}
	return a.decided(Captured, strings.Join(reasons, "; "))
}

// invalidNameReason says why no checkpoint can have the name of the attachment.
func invalidNameReason(err error) string {
	return fmt.Sprintf("none can be written: %v. Attach it under another name", err)
}

// reasonRecorded is the reason to keep a checkpoint without --refresh.
const reasonRecorded = "it has a checkpoint"

// decideRecorded keeps the record's name and pod, because a DEL goes by them. It also keeps what the
// runtime gave and got.
func decideRecorded(a InterfaceAction, f LiveInterface, r checkpoint.Record, refresh bool) InterfaceAction {
	a.Attachment, a.cni, a.announcementOwed, a.hasCheckpoint, a.recordedInterface = r.Attachment, r.CNI, r.AnnouncementOwed || r.HasOldParent(f.Live.Parents), true, &r.Interface
	if r.Pod.Name != "" {
		a.Pod, a.owner = r.Pod, r.Owner
	}
	a.access = r.HostAccess
	if !refresh {
		return a.decided(Kept, reasonRecorded)
	}
	diffs := netstate.Diff(r.Interface.Unexpired(f.ReadAt), f.Live)
	oldName, newName := r.Interface.Link.Name, f.Live.Link.Name
	reason := worseReason(f, r, diffs)
	switch {
	case reason != "" && oldName != newName:
		return a.decided(Refused, fmt.Sprintf("it was renamed from %s to %s; %s: relink restore repairs it once it is renamed back", oldName, newName, reason))
	case reason != "":
		return a.decided(Refused, reason+": relink restore repairs it")
	}
	a.Interface.Routes = keepFirst(r.Interface.Routes, f.Live.Routes)
	return a.decided(Refreshed, changeReason(oldName, newName, diffs))
}

// keepFirst returns the live routes. One whose rivals are gone stays the first of its slot if it was recorded so: the rivals can be those of
// an interface that is lost, and come back.
func keepFirst(recorded, live []netstate.Route) []netstate.Route {
	live = slices.Clone(live)
	for i := range live {
		if live[i].Uncontested {
			live[i].First = slices.ContainsFunc(recorded, func(r netstate.Route) bool { return r.First && r.Equal(live[i]) })
		}
	}
	return live
}

// changeReason says how the new checkpoint differs from the old one.
func changeReason(oldName, newName string, diffs []netstate.Difference) string {
	var reasons []string
	if oldName != newName {
		reasons = append(reasons, fmt.Sprintf("it was renamed from %s to %s", oldName, newName))
	}
	if len(diffs) > 0 {
		reasons = append(reasons, joinDifferences(diffs))
	}
	return cmp.Or(strings.Join(reasons, "; "), "as it was recorded")
}

// withoutDetachedRoutes returns the record without its routes through interfaces that were detached. Such an interface is
// gone and has no checkpoint. The route went with it.
func withoutDetachedRoutes(r checkpoint.Record, f LiveInterface, records []checkpoint.Record) checkpoint.Record {
	detached := func(name string) bool {
		_, exists := f.Devices.ByName(name)
		return !exists && !slices.ContainsFunc(records, func(record checkpoint.Record) bool {
			return record.Attachment.ContainerID == r.Attachment.ContainerID && record.Interface.Link.Name == name
		})
	}
	r.Interface.Routes = slices.DeleteFunc(slices.Clone(r.Interface.Routes), func(route netstate.Route) bool {
		return slices.ContainsFunc(route.Devices(), detached)
	})
	return r
}

// downReason says what keeps an interface from working. It is empty if nothing is seen.
func downReason(f LiveInterface) string {
	switch {
	case !f.Live.Link.Up:
		return f.Live.Link.Name + " is down"
	case f.ParentDown != "":
		return "its parent " + f.ParentDown + " is down"
	}
	return ""
}

// essential are the fields that make an interface what it is.
var essential = []netstate.Field{
	netstate.FieldKind, netstate.FieldParent, netstate.FieldMaster, netstate.FieldAddress, netstate.FieldRoute,
}

// worseReason says why the present state must not replace the record. A link that went down has lost its
// routes. A link whose parent went away is another one now. diffs are the differences from the
// record. Where nobody can tell whether an address or a route was lost or was taken away on purpose,
// both count as lost. An interface that became the port of a bridge needs neither: there they do not
// count.
func worseReason(f LiveInterface, r checkpoint.Record, diffs []netstate.Difference) string {
	if reason := downReason(f); reason != "" {
		return reason
	}
	becamePort := f.Live.Master != nil && f.Live.Master.Kind == netstate.KindBridge && r.Interface.Master == nil
	var lost []netstate.Difference
	for _, d := range diffs {
		if (becamePort || f.NeverDown) && (d.Field == netstate.FieldAddress || d.Field == netstate.FieldRoute) {
			continue
		}
		if slices.Contains(essential, d.Field) && (d.Live == "" || d.Field == netstate.FieldKind || d.Field == netstate.FieldParent) {
			lost = append(lost, d)
		}
	}
	return joinDifferences(lost)
}

func joinDifferences(diffs []netstate.Difference) string {
	var texts []string
	for _, d := range diffs {
		texts = append(texts, d.String())
	}
	return strings.Join(texts, "; ")
}
