package adopt

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

// namespaceOf returns the namespace of a checkpoint that cannot be read: its own if that can
// still be read, else the one that all other checkpoints of its container have. It is empty
// if nothing tells the namespace.
func namespaceOf(u checkpoint.Unreadable, records []checkpoint.Record) attachment.Namespace {
	is := u.Left.Namespace
	if is != (attachment.Namespace{}) {
		return is
	}
	for _, r := range records {
		switch {
		case r.Attachment.ContainerID != u.ContainerID:
		case is == attachment.Namespace{}:
			is = r.Namespace
		case r.Namespace.Same(is) != nil:
			return attachment.Namespace{}
		}
	}
	return is
}

// leftovers returns what can be read of the torn checkpoints as records, as far as their
// namespaces are known. So an interface of such a checkpoint is known to be attached.
func leftovers(unreadable []checkpoint.Unreadable, records []checkpoint.Record) []checkpoint.Record {
	var left []checkpoint.Record
	for _, u := range unreadable {
		r := u.Left
		if r.Namespace = namespaceOf(u, records); u.IfName == "" || r.Namespace == (attachment.Namespace{}) {
			continue
		}
		r.Attachment = attachment.Key{Network: cmp.Or(r.Attachment.Network, checkpoint.NetworkUnknown), ContainerID: u.ContainerID, IfName: u.IfName}
		r.Interface.Link.Name = cmp.Or(r.Interface.Link.Name, u.IfName)
		left = append(left, r)
	}
	return left
}

// unreadableOf returns the checkpoint of the interface, or the directory that it would be in, if that cannot be read.
// It goes by the name only if nothing tells the checkpoint's namespace. The name comes from a cache, and the cache can
// be of a container that is gone: another container has its path now.
func unreadableOf(f Found, inside matched, records []checkpoint.Record, unreadable []checkpoint.Unreadable) (checkpoint.Unreadable, bool) {
	if u, torn := inside.unreadable(inside.of[f.Live.Link.Index]); torn {
		return u, true
	}
	for _, u := range unreadable {
		if u.ContainerID != f.Attachment.ContainerID {
			continue
		}
		if u.IfName == "" || u.IfName == f.Attachment.IfName && namespaceOf(u, records) == (attachment.Namespace{}) {
			return u, true
		}
	}
	return checkpoint.Unreadable{}, false
}

// decideTorn decides about an interface whose checkpoint cannot be read. Only a torn one is
// written anew, and only if asked for. What can still be read of it must be there: the new
// checkpoint would be worse otherwise.
func decideTorn(a Action, f Found, u checkpoint.Unreadable, records []checkpoint.Record, refresh bool) Action {
	a.recorded, a.torn, a.was = true, &u, &u.Left.Interface
	if u.IfName != "" {
		a.takeOver(u) // Refused or not, the action is on this checkpoint.
	}
	if !refresh || u.IfName == "" || !errors.Is(u.Err, checkpoint.ErrTorn) {
		a.Do, a.Reason = Refuse, fmt.Sprintf("its checkpoint cannot be read: %v", u.Err)
		return a
	}
	r := checkpoint.Record{Attachment: a.Attachment, Interface: asFarAsLeft(u.Left.Interface, f.Live)}
	r = withoutDetached(r, f, records)
	if why := worse(f, r, netstate.Diff(r.Interface.Unexpired(f.ReadAt), f.Live)); why != "" {
		a.Do = Refuse
		a.Reason = fmt.Sprintf("its checkpoint is torn, and what can be read of it is not there: %s. Put that right by hand and capture again. "+
			"To capture it as it is: relink forget %s --force drops every checkpoint of this container ID, then relink capture writes them anew", why, u.ContainerID)
		return a
	}
	a.Do, a.Reason = Capture, "its checkpoint was torn: it is written anew"
	return a
}

// takeOver gives the action the name of the torn checkpoint, which a DEL goes by, and what else
// of it can be read.
func (a *Action) takeOver(u checkpoint.Unreadable) {
	if a.Attachment.ContainerID != u.ContainerID || a.Attachment.IfName != u.IfName {
		a.Attachment = attachment.Key{Network: checkpoint.NetworkUnknown, ContainerID: u.ContainerID, IfName: u.IfName}
		a.Pod, a.cni = attachment.Pod{}, checkpoint.CNI{}
	}
	if network := u.Left.Attachment.Network; a.Attachment.Network == checkpoint.NetworkUnknown && network != "" {
		a.Attachment.Network = network
	}
	if u.Left.Pod.Name != "" {
		a.Pod, a.owner = u.Left.Pod, u.Left.Owner
	}
	if u.Left.HostAccess != nil && u.Left.HostAccess.Validate() == nil {
		a.access = u.Left.HostAccess
	}
	if u.Left.CNI.Config != nil {
		a.cni = u.Left.CNI
	}
}

// asFarAsLeft returns the interface as it was recorded, as far as that can be read, and for the
// rest as it is.
func asFarAsLeft(left, is netstate.Interface) netstate.Interface {
	if left.Link.Kind != "" {
		is.Link.Kind = left.Link.Kind
	}
	if left.Master != nil {
		is.Master = left.Master
	}
	if len(left.Parents) > 0 {
		is.Parents = left.Parents
	}
	if len(left.Addresses) > 0 {
		is.Addresses = left.Addresses
	}
	if len(left.Routes) > 0 {
		is.Routes = left.Routes
	}
	return is
}

// decideLeftover decides about the unreadable checkpoints that no action is about. Their interfaces were not found.
func decideLeftover(node Node, actions []Action) []Action {
	taken := map[name]bool{}
	for _, a := range actions {
		if a.torn != nil {
			taken[nameOf(a.Attachment)] = true
		}
	}
	var more []Action
	for _, u := range node.Unreadable {
		directory := slices.ContainsFunc(actions, func(a Action) bool { return u.IfName == "" && a.Attachment.ContainerID == u.ContainerID })
		if taken[name{u.ContainerID, u.IfName}] || directory {
			continue
		}
		a := Action{Namespace: namespaceOf(u, node.Records), Interface: u.Left.Interface, recorded: true, torn: &u, was: &u.Left.Interface}
		a.takeOver(u)
		a.Do, a.Reason = leftover(u, a.Namespace, node.Evidence[a.Namespace])
		more = append(more, a)
	}
	return more
}

func leftover(u checkpoint.Unreadable, n attachment.Namespace, is sandbox.Evidence) (Verb, string) {
	forget := fmt.Sprintf("relink forget %s --force drops it, with every other checkpoint of this container ID", u.ContainerID)
	switch {
	case u.IfName == "" || !errors.Is(u.Err, checkpoint.ErrTorn):
		return Refuse, fmt.Sprintf("its checkpoint cannot be read: %v", u.Err)
	case n == attachment.Namespace{}:
		return Refuse, "its checkpoint is torn, and nothing tells which sandbox it is of: " + forget
	case is.State == sandbox.IsGone:
		return Forget, "its checkpoint is torn, and its sandbox is gone: " + is.Why
	case is.State == sandbox.IsAlive:
		return Refuse, "its checkpoint is torn, and no interface of the sandbox is found for it: nothing can bring that back. " + forget
	}
	return Refuse, fmt.Sprintf("its checkpoint is torn, and nobody knows whether its sandbox is gone (%s): %s", is.Why, forget)
}
