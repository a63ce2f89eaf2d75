package capture

import (
	"context"
	"errors"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/printable"
)

// recheck looks a second time at interfaces that were refused or have failed, and at sandboxes that the first look
// could not see. It drops outcomes that are settled now: an ADD has written the checkpoint, or a DEL has removed the
// interface and the checkpoint. It decides again about sandboxes that the first look could not see, and carries that
// out. If the second look fails, the report of the first look counts.
func (r *captureRun) recheck(ctx context.Context) {
	failed, doubtful := problemNamespaces(r.problems), problemNamespaces(r.problems)
	for _, a := range r.actions {
		if a.isUnresolved() {
			doubtful[a.Namespace.File()] = true
		}
	}
	if len(doubtful) == 0 || waitSettleDelay(ctx) != nil {
		return
	}
	second := newRun(r.Options)
	node, err := second.readSandboxes(doubtful, false)
	if err != nil {
		r.problems = append(r.problems, InspectionProblem{Text: "the second look at what was not captured failed: " + printable.Joined(err)})
		return
	}
	defer second.inspector.close()
	redecided := decideLive(node, r.Refresh)
	chosen, problems, err := selectActions(redecided, second.problems, slices.Concat(second.candidates(redecided), r.firstCandidates), r.Select)
	if err != nil {
		r.problems = append(r.problems, InspectionProblem{Text: printable.Joined(err)})
		return
	}
	later := slices.DeleteFunc(slices.Clone(chosen), func(a InterfaceAction) bool {
		return !failed[a.Namespace.File()] || slices.ContainsFunc(r.actions, func(first InterfaceAction) bool { return !first.isUnresolved() && isSameSubject(first, a) })
	})
	unseen, unrecorded := problemNamespaces(second.problems), map[interfaceKey]bool{}
	for _, a := range redecided {
		unrecorded[a.key()] = unrecorded[a.key()] || !a.hasCheckpoint
	}
	r.actions = slices.DeleteFunc(r.actions, func(first InterfaceAction) bool {
		decidedAnew := slices.ContainsFunc(later, func(a InterfaceAction) bool { return isSameSubject(a, first) })
		return first.isUnresolved() && (decidedAnew || r.isResolved(first, unrecorded, unseen))
	})
	second.execute(ctx, later)
	r.actions, r.problems = append(r.actions, second.actions...), problems
}

func (a InterfaceAction) isUnresolved() bool { return a.State == Refused || a.State == Failed }

// isSameSubject reports whether both actions are about one checkpoint or one interface.
func isSameSubject(a, b InterfaceAction) bool {
	if a.hasCheckpoint && b.hasCheckpoint {
		return a.Attachment.SameInterface(b.Attachment)
	}
	return a.key() == b.key()
}

func (a InterfaceAction) key() interfaceKey {
	return interfaceKeyOf(a.Namespace, a.Interface.Link.Index)
}

// isResolved reports whether the second look shows that a refused or failed action is settled. unrecorded are the
// interfaces without a checkpoint at that time, unseen the sandboxes that it could not see.
func (r *captureRun) isResolved(a InterfaceAction, unrecorded map[interfaceKey]bool, unseen map[attachment.NamespaceFile]bool) bool {
	if a.hasCheckpoint {
		if a.Attachment.IfName == "" {
			return false // The action is about a directory that cannot be read.
		}
		_, err := r.Store.Load(a.Attachment.ContainerID, a.Attachment.IfName)
		return errors.Is(err, checkpoint.ErrNoCheckpoint)
	}
	return !unseen[a.Namespace.File()] && !unrecorded[a.key()]
}
