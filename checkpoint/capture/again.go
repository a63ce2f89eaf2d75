package capture

import (
	"context"
	"errors"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/printable"
)

// recheck looks a second time at interfaces that were refused or have failed, and at sandboxes that the first look
// could not see. It drops outcomes that are settled now: an ADD has written the checkpoint, or a DEL has removed the
// interface and the checkpoint. It decides again about sandboxes that the first look could not see, and carries that
// out. If the second look fails, the report of the first look counts.
func (r *captureRun) recheck(ctx context.Context, actions []InterfaceAction) {
	failed, doubtful := problemNamespaces(r.problems), problemNamespaces(r.problems)
	for i, o := range r.outcomes {
		if isUnresolved(o) {
			doubtful[namespaceFileOf(actions[i].Namespace)] = true
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
	later := slices.DeleteFunc(slices.Clone(chosen), func(a InterfaceAction) bool { return !failed[namespaceFileOf(a.Namespace)] || r.isHandled(a, actions) })
	r.outcomes = r.remainingOutcomes(actions, redecided, later, problemNamespaces(second.problems))
	second.execute(ctx, later)
	r.outcomes, r.problems = append(r.outcomes, second.outcomes...), problems
}

func isUnresolved(o InterfaceOutcome) bool { return o.State == Refused || o.State == Failed }

// isHandled reports whether the run has already done something about the action's interface.
func (r *captureRun) isHandled(a InterfaceAction, actions []InterfaceAction) bool {
	for i, o := range r.outcomes {
		if !isUnresolved(o) && isSameSubject(actions[i], a) {
			return true
		}
	}
	return false
}

// isSameSubject reports whether both actions are about one checkpoint or one interface.
func isSameSubject(a, b InterfaceAction) bool {
	if a.hasCheckpoint && b.hasCheckpoint {
		return a.Attachment.ContainerID == b.Attachment.ContainerID && a.Attachment.IfName == b.Attachment.IfName
	}
	return a.key() == b.key()
}

func (a InterfaceAction) key() interfaceKey {
	return interfaceKeyOf(a.Namespace, a.Interface.Link.Index)
}

// remainingOutcomes returns the outcomes that still count after the second look. redecided are the actions that the second look has
// decided. later are those of them that will be carried out. failed are the sandboxes that the second look could not
// see.
func (r *captureRun) remainingOutcomes(actions, redecided, later []InterfaceAction, failed map[namespaceFile]bool) (remaining []InterfaceOutcome) {
	unrecorded := map[interfaceKey]bool{}
	for _, a := range redecided {
		unrecorded[a.key()] = unrecorded[a.key()] || !a.hasCheckpoint
	}
	for i, o := range r.outcomes {
		isAbout := func(a InterfaceAction) bool { return isSameSubject(a, actions[i]) }
		if isUnresolved(o) && (slices.ContainsFunc(later, isAbout) || r.isResolved(actions[i], unrecorded, failed)) {
			continue
		}
		remaining = append(remaining, o)
	}
	return remaining
}

// isResolved reports whether the second look shows that a refused or failed action is settled. unrecorded are the
// interfaces without a checkpoint at that time.
func (r *captureRun) isResolved(a InterfaceAction, unrecorded map[interfaceKey]bool, failed map[namespaceFile]bool) bool {
	if a.hasCheckpoint {
		if a.Attachment.IfName == "" {
			return false // The action is about a directory that cannot be read.
		}
		_, err := r.Store.Load(a.Attachment.ContainerID, a.Attachment.IfName)
		return errors.Is(err, checkpoint.ErrNoCheckpoint)
	}
	return !failed[namespaceFileOf(a.Namespace)] && !unrecorded[a.key()]
}
