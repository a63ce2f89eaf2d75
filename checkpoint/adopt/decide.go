package adopt

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/netfix"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/hostaccess"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// Writer is what the records of this package have as Writer.
const Writer = "relink capture"

// Found is an interface of a running sandbox. A checkpoint can hold it.
type Found struct {
	Owner
	Namespace attachment.Namespace
	Live      netstate.Interface
	// ReadAt is when Live was read, as a time since the boot.
	ReadAt time.Duration
	// ParentDown is the name of a parent that is down. It is empty if all are up.
	ParentDown string
	// Origin is who made it. Why is the reason for an Origin other than Attached.
	Origin Origin
	Why    string
	// Beside are all devices of the sandbox.
	Beside netstate.Devices
	// VF says why the interface, a VF of SR-IOV, gets no checkpoint. It is empty for any other interface.
	VF string
	// Unbroken says that what is missing now was taken away on purpose (Heard).
	Unbroken bool
	// access is the host access of an interface without a readable checkpoint, nil for none.
	access *hostaccess.Access
}

// Node is all that runs on the node and all that is remembered.
type Node struct {
	Found []Found
	// Alive are the namespaces that were looked into. Beside has the devices of each.
	Alive      []attachment.Namespace
	Beside     map[attachment.Namespace]netstate.Devices
	Records    []checkpoint.Record
	Unreadable []checkpoint.Unreadable
	// Evidence says whether the namespaces of Gone and of the unreadable checkpoints are there.
	Evidence map[attachment.Namespace]sandbox.Evidence
	// Gone are the records whose namespace a look at the node did not find.
	Gone []checkpoint.Record
}

// Verb is what to do about an interface.
type Verb string

// The verbs.
const (
	Capture Verb = "capture" // Write its first checkpoint.
	Refresh Verb = "refresh" // Write a checkpoint in place of the one that is there.
	Keep    Verb = "keep"    // Leave the checkpoint as it is, as asked for.
	Refuse  Verb = "refuse"  // Leave the checkpoint as it is, though asked for something else.
	Forget  Verb = "forget"  // Remove a checkpoint whose sandbox is gone.
	Leave   Verb = "leave"   // Write none: it is the pod's own.
)

// Action is what to do about one interface, and why.
type Action struct {
	Do         Verb
	Attachment attachment.Key
	Pod        attachment.Pod
	// owner is the pod's as far as a checkpoint has it.
	owner attachment.Owner
	// access is the pod's host access as far as a checkpoint has it.
	access    *hostaccess.Access
	Namespace attachment.Namespace
	// Interface is as it is now. If it is gone, it is as it was recorded.
	Interface netstate.Interface
	Reason    string
	cni       checkpoint.CNI
	// recorded is true if the attachment has a checkpoint, readable or not. torn is set if relink cannot read it.
	recorded bool
	torn     *checkpoint.Unreadable
	// on are the parents of an interface that is there. was is the interface as far as a checkpoint has it.
	on  []netstate.Device
	was *netstate.Interface
	// record is the checkpoint that a Forget removes, as it was read, unless torn is set.
	record checkpoint.Record
	// owed says that an announcement is owed. A refresh does not send it.
	owed bool
}

// Decide returns what to do about each interface that was found, in that order. More actions follow
// for checkpoints of other interfaces. It keeps an existing checkpoint unless refresh is set. Even
// then it keeps the checkpoint if the interface is in a worse state now.
func Decide(node Node, refresh bool) []Action {
	actions := decideLiving(node, refresh)
	if refresh {
		actions = append(actions, decideLeftover(node, actions)...)
	}
	for _, r := range node.Gone {
		if forgets(r) {
			actions = append(actions, decideGone(r, node.Evidence[r.Namespace]))
		}
	}
	return actions
}

// decideLiving is Decide for the sandboxes that were looked into.
func decideLiving(node Node, refresh bool) []Action {
	var actions []Action
	ofSandbox := recordsOf(node)
	records := slices.Concat(node.Records, leftovers(node.Unreadable, node.Records))
	for _, f := range node.Found {
		actions = append(actions, decide(f, ofSandbox[f.Namespace], records, node.Unreadable, refresh))
	}
	return append(actions, missing(node, ofSandbox, refresh)...)
}

// decideGone forgets a record only if its sandbox is proven gone. A path that vanished is no proof.
func decideGone(r checkpoint.Record, is sandbox.Evidence) Action {
	if is.State != sandbox.IsGone {
		return actionOn(r, Keep, "its sandbox was not found, but is not proven gone: "+is.Why)
	}
	a := actionOn(r, Forget, "its sandbox is gone, and no DEL forgets what relink did not attach")
	a.record = r
	return a
}

// forgets reports whether a capture may forget the record. No DEL ever will, because relink did not attach the
// interface.
func forgets(r checkpoint.Record) bool { return r.Writer == Writer || netfix.IsOurs(r) }

// missing refuses to refresh checkpoints whose interfaces were not found in a living sandbox. Without refresh, it keeps
// those whose interface is there and could not be looked at.
func missing(node Node, ofSandbox map[attachment.Namespace]matched, refresh bool) []Action {
	found := map[attachment.Key]bool{}
	for _, f := range node.Found {
		if r, ok := ofSandbox[f.Namespace].record(f); ok {
			found[r.Attachment] = true
		}
	}
	var actions []Action
	for _, namespace := range node.Alive {
		for _, r := range ofSandbox[namespace].records {
			if _, torn := ofSandbox[namespace].unreadable(r); torn || found[r.Attachment] {
				continue
			}
			_, there := ofSandbox[namespace].device(r)
			why := ofSandbox[namespace].why(r)
			switch {
			case !refresh && there:
				actions = append(actions, actionOn(r, Keep, hasOne))
			case refresh && why != "":
				actions = append(actions, actionOn(r, Refuse, why))
			}
		}
	}
	return actions
}

func actionOn(r checkpoint.Record, do Verb, reason string) Action {
	return Action{Do: do, Attachment: r.Attachment, Pod: r.Pod, Namespace: r.Namespace, Interface: r.Interface, Reason: reason, recorded: true, was: &r.Interface}
}

// decide is Decide for one interface. inside has the records of its sandbox. records have those that are left of torn
// checkpoints too. A temporary name is never recorded.
func decide(f Found, inside matched, records []checkpoint.Record, unreadable []checkpoint.Unreadable, refresh bool) Action {
	a := decideByCheckpoint(f, inside, records, unreadable, refresh)
	if name := f.Live.Link.Name; kernel.IsTemporaryName(name) && (a.Do == Capture || a.Do == Refresh) {
		a.Do, a.Reason = Refuse, fmt.Sprintf("it has the name %s for a moment: %v", name, checkpoint.ErrMoving)
	}
	return a
}

func decideByCheckpoint(f Found, inside matched, records []checkpoint.Record, unreadable []checkpoint.Unreadable, refresh bool) Action {
	a := Action{Attachment: f.Attachment, Pod: f.Pod, Namespace: f.Namespace, Interface: f.Live, cni: f.CNI, on: f.Live.Parents, access: f.access}
	if f.VF != "" {
		a.Do, a.Reason = Refuse, f.VF
		if r, ok := inside.record(f); ok {
			a = actionOn(r, Refuse, f.VF)
		}
		return a
	}
	if r, ok := inside.record(f); ok {
		return decideKnown(a, f, withoutDetached(r, f, records), refresh)
	}
	if u, torn := unreadableOf(f, inside, records, unreadable); torn {
		return decideTorn(a, f, u, records, refresh)
	}
	switch f.Origin {
	case PodsOwn:
		a.Do, a.Reason = Leave, f.Why
		return a
	case Unclear:
		a.Do, a.Reason = Refuse, f.Why
		return a
	}
	i := slices.IndexFunc(records, func(r checkpoint.Record) bool {
		return r.Attachment.ContainerID == f.Attachment.ContainerID && r.Attachment.IfName == f.Attachment.IfName
	})
	if i >= 0 {
		a.Do, a.Reason = Refuse, inside.namesake(records[i])
		return a
	}
	return decideNew(a, f)
}

// decideNew has no checkpoint to lose. It remembers the interface as it is, and reports if that
// looks bad. It refuses a link that is down: a plugin may be building it under a name for the
// moment.
func decideNew(a Action, f Found) Action {
	if err := a.Attachment.Validate(); err != nil {
		a.Do, a.Reason = Refuse, "it has no checkpoint, and "+impossible(err)
		return a
	}
	if !f.Live.Link.Up {
		a.Do, a.Reason = Refuse, "it has no checkpoint, and is down: set it up first, if no plugin is at work on it"
		return a
	}
	reasons := []string{"it has no checkpoint"}
	if f.Note != "" {
		reasons = append(reasons, f.Note)
	}
	if why := broken(f); why != "" {
		reasons = append(reasons, why)
	}
	a.Do, a.Reason = Capture, strings.Join(reasons, "; ")
	return a
}

// impossible says why no checkpoint can have the name of the attachment.
func impossible(err error) string {
	return fmt.Sprintf("none can be written: %v. Attach it under another name", err)
}

// hasOne is the reason to keep a checkpoint without --refresh.
const hasOne = "it has a checkpoint"

// decideKnown keeps the record's name and pod, because a DEL goes by them. It also keeps what the
// runtime gave and got.
func decideKnown(a Action, f Found, r checkpoint.Record, refresh bool) Action {
	a.Attachment, a.cni, a.owed, a.recorded, a.was = r.Attachment, r.CNI, r.AnnouncementOwed, true, &r.Interface
	if r.Pod.Name != "" {
		a.Pod, a.owner = r.Pod, r.Owner
	}
	a.access = r.HostAccess
	if !refresh {
		a.Do, a.Reason = Keep, hasOne
		return a
	}
	diffs := netstate.Diff(r.Interface.Unexpired(f.ReadAt), f.Live)
	was, is := r.Interface.Link.Name, f.Live.Link.Name
	why := worse(f, r, diffs)
	switch {
	case why != "" && was != is:
		a.Do, a.Reason = Refuse, fmt.Sprintf("it was renamed from %s to %s; %s: relink restore repairs it once it is renamed back", was, is, why)
	case why != "":
		a.Do, a.Reason = Refuse, why+": relink restore repairs it"
	default:
		a.Do, a.Reason = Refresh, changed(was, is, diffs)
	}
	return a
}

// changed says how the new checkpoint differs from the old one.
func changed(was, is string, diffs []netstate.Difference) string {
	var all []string
	if was != is {
		all = append(all, fmt.Sprintf("it was renamed from %s to %s", was, is))
	}
	if len(diffs) > 0 {
		all = append(all, list(diffs))
	}
	return cmp.Or(strings.Join(all, "; "), "as it was recorded")
}

// withoutDetached returns the record without its routes through interfaces that were detached. Such an interface is
// gone and has no checkpoint. The route went with it.
func withoutDetached(r checkpoint.Record, f Found, records []checkpoint.Record) checkpoint.Record {
	gone := func(name string) bool {
		_, there := f.Beside.ByName(name)
		return !there && !slices.ContainsFunc(records, func(other checkpoint.Record) bool {
			return other.Attachment.ContainerID == r.Attachment.ContainerID && other.Interface.Link.Name == name
		})
	}
	r.Interface.Routes = slices.DeleteFunc(slices.Clone(r.Interface.Routes), func(route netstate.Route) bool {
		return slices.ContainsFunc(route.Devices(), gone)
	})
	return r
}

// broken says what keeps an interface from working. It is empty if nothing is seen.
func broken(f Found) string {
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

// worse says why the present state must not replace the record. A link that went down has lost its
// routes. A link whose parent went away is another one now. diffs are the differences from the
// record. Where nobody can tell whether an address or a route was lost or was taken away on purpose,
// both count as lost. An interface that became the port of a bridge needs neither: there they do not
// count.
func worse(f Found, r checkpoint.Record, diffs []netstate.Difference) string {
	if why := broken(f); why != "" {
		return why
	}
	becamePort := f.Live.Master != nil && f.Live.Master.Kind == netstate.KindBridge && r.Interface.Master == nil
	var lost []netstate.Difference
	for _, d := range diffs {
		if (becamePort || f.Unbroken) && (d.Field == netstate.FieldAddress || d.Field == netstate.FieldRoute) {
			continue
		}
		if slices.Contains(essential, d.Field) && (d.Have == "" || d.Field == netstate.FieldKind || d.Field == netstate.FieldParent) {
			lost = append(lost, d)
		}
	}
	return list(lost)
}

func list(diffs []netstate.Difference) string {
	var all []string
	for _, d := range diffs {
		all = append(all, d.String())
	}
	return strings.Join(all, "; ")
}
