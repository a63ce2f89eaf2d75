package capture

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// unreadableNamespace returns the namespace of a checkpoint that cannot be read: its own if that can
// still be read, else the one that all other checkpoints of its container have. It is empty
// if nothing tells the namespace.
func unreadableNamespace(u checkpoint.Unreadable, records []checkpoint.Record) attachment.Namespace {
	namespace := u.Partial.Namespace
	if namespace != (attachment.Namespace{}) {
		return namespace
	}
	for _, r := range records {
		switch {
		case r.Attachment.ContainerID != u.ContainerID:
		case namespace == attachment.Namespace{}:
			namespace = r.Namespace
		case r.Namespace.Same(namespace) != nil:
			return attachment.Namespace{}
		}
	}
	return namespace
}

// partialRecords returns what can be read of the torn checkpoints as records, as far as their
// namespaces are known. So an interface of such a checkpoint is known to be attached.
func partialRecords(unreadable []checkpoint.Unreadable, records []checkpoint.Record) []checkpoint.Record {
	var result []checkpoint.Record
	for _, u := range unreadable {
		r := u.Partial
		if r.Namespace = unreadableNamespace(u, records); u.IfName == "" || r.Namespace == (attachment.Namespace{}) {
			continue
		}
		r.Attachment = u.Attachment()
		r.Interface.Link.Name = cmp.Or(r.Interface.Link.Name, u.IfName)
		result = append(result, r)
	}
	return result
}

// findUnreadable returns the checkpoint of the interface, or the directory that it would be in, if that cannot be read.
// It goes by the name only if nothing tells the checkpoint's namespace. The name comes from a cache, and the cache can
// be of a container that is gone: another container has its path now.
func findUnreadable(f LiveInterface, inside matchedRecords, records []checkpoint.Record, unreadable []checkpoint.Unreadable) (checkpoint.Unreadable, bool) {
	if u, torn := inside.unreadable(inside.byIndex[f.Live.Link.Index]); torn {
		return u, true
	}
	for _, u := range unreadable {
		if u.ContainerID != f.Attachment.ContainerID {
			continue
		}
		if u.IfName == "" || u.IfName == f.Attachment.IfName && unreadableNamespace(u, records) == (attachment.Namespace{}) {
			return u, true
		}
	}
	return checkpoint.Unreadable{}, false
}

// decideTorn decides about an interface whose checkpoint cannot be read. Only a torn one is
// written anew, and only if asked for. What can still be read of it must be there: the new
// checkpoint would be worse otherwise.
func decideTorn(a InterfaceAction, f LiveInterface, u checkpoint.Unreadable, records []checkpoint.Record, refresh bool) InterfaceAction {
	a.hasCheckpoint, a.torn, a.recordedInterface = true, &u, &u.Partial.Interface
	if u.IfName != "" {
		a.applyPartial(u) // Refused or not, the action is on this checkpoint.
	}
	if !refresh || u.IfName == "" || !errors.Is(u.Err, checkpoint.ErrTorn) {
		return a.decided(Refused, fmt.Sprintf("its checkpoint cannot be read: %v", u.Err))
	}
	r := checkpoint.Record{Attachment: a.Attachment, Interface: overlayPartial(u.Partial.Interface, f.Live)}
	r = withoutDetachedRoutes(r, f, records)
	if reason := worseReason(f, r, netstate.Diff(r.Interface.Unexpired(f.ReadAt), f.Live)); reason != "" {
		return a.decided(Refused, fmt.Sprintf("its checkpoint is torn, and what can be read of it is not there: %s. Put that right by hand and capture again. "+
			"To capture it as it is: relink forget %s --force drops every checkpoint of this container ID, then relink capture writes them anew", reason, u.ContainerID))
	}
	return a.decided(Captured, "its checkpoint was torn: it is written anew")
}

// applyPartial gives the action the name of the torn checkpoint, which a DEL goes by, and what else
// of it can be read.
func (a *InterfaceAction) applyPartial(u checkpoint.Unreadable) {
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
}

// overlayPartial returns the interface as it was recorded, as far as that can be read, and for the
// rest as it is.
func overlayPartial(partial, live netstate.Interface) netstate.Interface {
	if partial.Link.Kind != "" {
		live.Link.Kind = partial.Link.Kind
	}
	if partial.Master != nil {
		live.Master = partial.Master
	}
	if len(partial.Parents) > 0 {
		live.Parents = partial.Parents
	}
	if len(partial.Addresses) > 0 {
		live.Addresses = partial.Addresses
	}
	if len(partial.Routes) > 0 {
		live.Routes = partial.Routes
	}
	return live
}

// decideUnmatched decides about the unreadable checkpoints that no action is about. Their interfaces were not found.
func decideUnmatched(node Node, actions []InterfaceAction) []InterfaceAction {
	var added []InterfaceAction
	for _, u := range node.Unreadable {
		if slices.ContainsFunc(actions, func(a InterfaceAction) bool {
			return a.torn != nil && a.Attachment.SameInterface(u.Attachment()) || u.IfName == "" && a.Attachment.ContainerID == u.ContainerID
		}) {
			continue
		}
		o := InterfaceOutcome{Namespace: unreadableNamespace(u, node.Records), Interface: u.Partial.Interface}
		a := InterfaceAction{InterfaceOutcome: o, hasCheckpoint: true, torn: &u, recordedInterface: &u.Partial.Interface}
		a.applyPartial(u)
		added = append(added, a.decided(decideUnmatchedTorn(u, a.Namespace, node.Evidence[a.Namespace])))
	}
	return added
}

func decideUnmatchedTorn(u checkpoint.Unreadable, n attachment.Namespace, evidence sandbox.Evidence) (InterfaceState, string) {
	forget := fmt.Sprintf("relink forget %s --force drops it, with every other checkpoint of this container ID", u.ContainerID)
	switch {
	case u.IfName == "" || !errors.Is(u.Err, checkpoint.ErrTorn):
		return Refused, fmt.Sprintf("its checkpoint cannot be read: %v", u.Err)
	case n == attachment.Namespace{}:
		return Refused, "its checkpoint is torn, and nothing tells which sandbox it is of: " + forget
	case evidence.Verdict == sandbox.VerdictGone:
		return Forgotten, "its checkpoint is torn, and its sandbox is gone: " + evidence.Reason
	case evidence.Verdict == sandbox.VerdictAlive:
		return Refused, "its checkpoint is torn, and no interface of the sandbox is found for it: nothing can bring that back. " + forget
	}
	return Refused, fmt.Sprintf("its checkpoint is torn, and nobody knows whether its sandbox is gone (%s): %s", evidence.Reason, forget)
}
