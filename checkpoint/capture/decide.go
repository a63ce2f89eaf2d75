package capture

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// What the records of this package have as Writer.
const (
	Writer       = "relink capture"
	ImportWriter = "relink import"
	AgentWriter  = "relink-agent"
)

// LiveInterface is an interface of a running sandbox. A checkpoint can hold it, unless Settled says otherwise.
type LiveInterface struct {
	Identity
	Namespace attachment.Namespace
	// Live is the interface. What could not be looked at has its name and index only, or nothing for a whole sandbox.
	Live netstate.Interface
	// ReadAt is when Live was read, as a time since the boot.
	ReadAt time.Duration
	// ParentDown is the name of a parent that is down. It is empty if all are up.
	ParentDown string
	// Settled is what the look alone decides, with its Reason: Skipped for the pod's own interface, Refused if nobody can tell whether it was
	// attached or for a VF of SR-IOV, Failed for what could not be looked at.
	Settled change.State
	Reason  string
	// isVF says that it is a VF of SR-IOV.
	isVF bool
	// NeverDown says that what is missing now was taken away on purpose (LinkHistory).
	NeverDown bool
	// access is the host access of an interface without a readable checkpoint, nil for none.
	access *hostaccess.Access
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
	// recorded is the attachment's checkpoint, as far as it can be read, nil for none. torn is set if relink cannot read it.
	recorded *checkpoint.Record
	torn     *checkpoint.Unreadable
	// isVF says that it is a VF of SR-IOV, which relink does not bring back.
	isVF bool
	// parents are the parents of an interface that is there.
	parents []netstate.Device
	// readAt is when the interface was read, as a time since the boot.
	readAt time.Duration
	// file is what an import reads, nil for a capture.
	file *importFile
	// announcementOwed says that an announcement is owed. A refresh does not send it.
	announcementOwed bool
}

// target returns the attachment's record as it was listed, as far as it can be read.
func (a *InterfaceAction) target() checkpoint.Record {
	if a.recorded != nil && a.torn == nil {
		return *a.recorded
	}
	return checkpoint.Record{Attachment: a.Attachment}
}

// decided returns the action with what it comes to, and why.
func (a InterfaceAction) decided(state change.State, reason string) InterfaceAction {
	a.State, a.Reason = state, reason
	return a
}

// changesCheckpoint says that the action writes a checkpoint.
func (a InterfaceAction) changesCheckpoint() bool { return plannedStates[a.State] != "" }

// decideSandbox is a pure function: it returns what to do about each interface that was found in the sandbox. It keeps an existing checkpoint
// unless refresh is set. Even then it keeps the checkpoint if the interface is in a worse state now. It refuses to refresh checkpoints
// whose interfaces were not found.
func (m matchedRecords) decideSandbox(interfaces []LiveInterface, refresh bool) (actions []InterfaceAction) {
	found := map[attachment.Key]bool{}
	for _, f := range interfaces {
		found[m.byIndex[f.Live.Link.Index].Attachment] = true
		actions = append(actions, m.decide(f, refresh))
	}
	for _, r := range m.records {
		if !refresh || found[r.Attachment] || m.isTorn(r) {
			continue
		}
		if reason := m.missingReason(r); reason != "" {
			actions = append(actions, recordAction(r, change.Refused, reason))
		}
	}
	return actions
}

func recordAction(r checkpoint.Record, state change.State, reason string) InterfaceAction {
	common := change.Outcome{Attachment: r.Attachment, Pod: r.Pod, State: state, Reason: reason}
	return InterfaceAction{InterfaceOutcome: InterfaceOutcome{Outcome: common, Namespace: r.Namespace, Interface: r.Interface}, recorded: &r}
}

// decide decides about one interface of the sandbox. A temporary name is never recorded.
func (m matchedRecords) decide(f LiveInterface, refresh bool) InterfaceAction {
	a := m.decideByCheckpoint(f, refresh)
	if name := f.Live.Link.Name; kernel.IsTemporaryName(name) && a.changesCheckpoint() {
		return a.decided(change.Refused, temporaryReason(name))
	}
	return a
}

func temporaryReason(name string) string {
	return fmt.Sprintf("it has the name %s for a moment: %v", name, checkpoint.ErrUnfinishedMove)
}

func (m matchedRecords) decideByCheckpoint(f LiveInterface, refresh bool) InterfaceAction {
	o := InterfaceOutcome{Outcome: change.Outcome{Attachment: f.Attachment, Pod: f.Pod}, Namespace: f.Namespace, Interface: f.Live}
	a := InterfaceAction{InterfaceOutcome: o, cni: f.CNI, parents: f.Live.Parents, access: f.access, readAt: f.ReadAt}
	r, recorded := m.record(f)
	switch {
	case f.Settled != "" && recorded:
		return recordAction(r, f.Settled, f.Reason)
	case f.Settled != "":
		a.isVF = f.isVF
		return a.decided(f.Settled, f.Reason)
	case recorded:
		a.recorded = &r
		return decideRecorded(a, f, m.withoutDetachedRoutes(r), refresh)
	}
	if u, torn := m.findUnreadable(f); torn {
		return a.decideTorn(f, u, refresh)
	}
	if i := slices.IndexFunc(m.node.records, func(r checkpoint.Record) bool { return r.Attachment.SameInterface(f.Attachment) }); i >= 0 {
		return a.decided(change.Refused, m.nameConflictReason(m.node.records[i]))
	}
	return decideNew(a, f)
}

// decideNew has no checkpoint to lose. It remembers the interface as it is, and reports if that
// looks bad. It refuses a link that is down: a plugin may be building it under a name for the
// moment.
func decideNew(a InterfaceAction, f LiveInterface) InterfaceAction {
	if err := a.Attachment.Validate(); err != nil {
		return a.decided(change.Refused, fmt.Sprintf("none can be written: %v. Attach it under another name", err))
	}
	if !f.Live.Link.Up {
		return a.decided(change.Refused, "it is down. The DEL of a killed ADD takes it away; if no plugin is at work on it, set it up first")
	}
	reasons := []string{"it has no checkpoint"}
	if f.Note != "" {
		reasons = append(reasons, f.Note)
	}
	if reason := netstate.DownReason(f.Live, f.ParentDown); reason != "" {
		reasons = append(reasons, reason)
	}
	return a.decided(Captured, strings.Join(reasons, "; "))
}

// decideRecorded keeps the record's name and pod, because a DEL goes by them. It also keeps what the
// runtime gave and got.
func decideRecorded(a InterfaceAction, f LiveInterface, r checkpoint.Record, refresh bool) InterfaceAction {
	a.Attachment, a.cni, a.announcementOwed = r.Attachment, r.CNI, r.AnnouncementOwed || r.HasOldParent(f.Live.Parents)
	if r.Pod.Name != "" {
		a.Pod, a.owner = r.Pod, r.Owner
	}
	a.access = r.HostAccess
	if !refresh {
		return a.decided(change.Kept, "it has a checkpoint")
	}
	diffs := netstate.Diff(r.Interface.Unexpired(f.ReadAt), f.Live)
	oldName, newName := r.Interface.Link.Name, f.Live.Link.Name
	reason := netstate.WorseReason(r.Interface, f.Live, f.ParentDown, diffs, f.NeverDown)
	switch {
	case reason != "" && oldName != newName:
		return a.decided(change.Refused, fmt.Sprintf("it was renamed from %s to %s; %s: relink restore repairs it once it is renamed back", oldName, newName, reason))
	case reason != "":
		return a.decided(change.Refused, reason+": relink restore repairs it")
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
		reasons = append(reasons, netstate.JoinDifferences(diffs))
	}
	return cmp.Or(strings.Join(reasons, "; "), "as it was recorded")
}

// withoutDetachedRoutes returns the record without its routes through interfaces that were detached. Such an interface is
// gone and has no checkpoint. The route went with it.
func (m matchedRecords) withoutDetachedRoutes(r checkpoint.Record) checkpoint.Record {
	detached := func(name string) bool {
		_, exists := m.devices.ByName(name)
		return !exists && !slices.ContainsFunc(m.node.records, func(record checkpoint.Record) bool {
			return record.Attachment.ContainerID == r.Attachment.ContainerID && record.Interface.Link.Name == name
		})
	}
	r.Interface.Routes = slices.DeleteFunc(slices.Clone(r.Interface.Routes), func(route netstate.Route) bool {
		return slices.ContainsFunc(route.Devices(), detached)
	})
	return r
}

// decideTorn decides about an interface whose checkpoint cannot be read. Only a torn one is
// written anew, and only if asked for.
func (a InterfaceAction) decideTorn(f LiveInterface, u checkpoint.Unreadable, refresh bool) InterfaceAction {
	a = a.tornBy(u) // Refused or not, the action is on this checkpoint.
	if !refresh || u.IfName == "" || !errors.Is(u.Err, checkpoint.ErrTorn) {
		return a.decided(change.Refused, fmt.Sprintf("its checkpoint cannot be read: %v", u.Err))
	}
	if a = decideNew(a, f); a.State == Captured {
		a.Reason = "its checkpoint was torn: it is written anew"
	}
	return a
}

// tornBy gives the action the name of the torn checkpoint, which a DEL goes by, and what else of it can be read. A directory that cannot be
// read has no name.
func (a InterfaceAction) tornBy(u checkpoint.Unreadable) InterfaceAction {
	a.torn, a.recorded = &u, &u.Partial
	if u.IfName == "" && a.Attachment.ContainerID != "" {
		return a
	}
	if !a.Attachment.SameInterface(u.Attachment()) {
		a.Pod, a.cni = attachment.Pod{}, checkpoint.CNI{}
		a.Attachment.Network = checkpoint.NetworkUnknown
	}
	if a.Attachment.Network == checkpoint.NetworkUnknown {
		a.Attachment = u.Attachment()
	}
	if u.Partial.Pod.Name != "" {
		a.Pod, a.owner = u.Partial.Pod, u.Partial.Owner
	}
	if u.Partial.HostAccess != nil && u.Partial.HostAccess.Validate() == nil {
		a.access = u.Partial.HostAccess
	}
	if u.Partial.CNI.Config != nil {
		a.cni = u.Partial.CNI
	}
	return a
}

// decideUnmatched refuses the unreadable checkpoints that no action is about. Their interfaces were not found.
func decideUnmatched(unreadable []checkpoint.Unreadable, actions []InterfaceAction) (added []InterfaceAction) {
	for _, u := range unreadable {
		if slices.ContainsFunc(actions, func(a InterfaceAction) bool {
			return a.torn != nil && a.Attachment.SameInterface(u.Attachment()) || u.IfName == "" && a.Attachment.ContainerID == u.ContainerID
		}) {
			continue
		}
		reason := fmt.Sprintf("its checkpoint is torn, and no interface of the sandbox is found for it: nothing can bring that back. "+
			"relink forget %s --force drops it, with every other checkpoint of this container ID", u.ContainerID)
		if u.IfName == "" || !errors.Is(u.Err, checkpoint.ErrTorn) {
			reason = fmt.Sprintf("its checkpoint cannot be read: %v", u.Err)
		}
		a := InterfaceAction{InterfaceOutcome: InterfaceOutcome{Namespace: u.Partial.Namespace, Interface: u.Partial.Interface}}
		added = append(added, a.tornBy(u).decided(change.Refused, reason))
	}
	return added
}
