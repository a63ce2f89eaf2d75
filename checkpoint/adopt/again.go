package adopt

import (
	"context"
	"errors"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/printable"
)

// lookAgain looks a second time at interfaces that were refused or have failed, and at sandboxes that the first look
// could not see. It drops outcomes that are settled now: an ADD has written the checkpoint, or a DEL has removed the
// interface and the checkpoint. It decides again about sandboxes that the first look could not see, and carries that
// out. If the second look fails, the report of the first look counts.
func (r *run) lookAgain(ctx context.Context, actions []Action) {
	failed, some := filesOf(r.problems), filesOf(r.problems)
	for i, o := range r.outcomes {
		if isDoubtful(o) {
			some[fileOf(actions[i].Namespace)] = true
		}
	}
	if len(some) == 0 || settle(ctx) != nil {
		return
	}
	second := newRun(r.Options)
	node, err := second.lookInto(some)
	if err != nil {
		r.problems = append(r.problems, Problem{Text: "the second look at what was not captured failed: " + printable.Joined(err)})
		return
	}
	defer second.look.close()
	now := decideLiving(node, r.Refresh)
	chosen, problems, err := choose(now, second.problems, slices.Concat(second.things(now), r.seen), r.Select)
	if err != nil {
		r.problems = append(r.problems, Problem{Text: printable.Joined(err)})
		return
	}
	later := slices.DeleteFunc(slices.Clone(chosen), func(a Action) bool { return !failed[fileOf(a.Namespace)] || r.isDone(a, actions) })
	r.outcomes = r.left(actions, now, later, filesOf(second.problems))
	second.carryOut(ctx, later)
	r.outcomes, r.problems = append(r.outcomes, second.outcomes...), problems
}

func isDoubtful(o Outcome) bool { return o.State == Refused || o.State == Failed }

// isDone reports whether the run has already done something about the action's interface.
func (r *run) isDone(a Action, actions []Action) bool {
	for i, o := range r.outcomes {
		if !isDoubtful(o) && isSame(actions[i], a) {
			return true
		}
	}
	return false
}

// isSame reports whether both actions are about one checkpoint or one interface.
func isSame(a, b Action) bool {
	if a.recorded && b.recorded {
		return a.Attachment.ContainerID == b.Attachment.ContainerID && a.Attachment.IfName == b.Attachment.IfName
	}
	return a.place() == b.place()
}

func (a Action) place() interfaceAt { return at(a.Namespace, a.Interface.Link.Index) }

// left returns the outcomes that still count after the second look. now are the actions that the second look has
// decided. later are those of them that will be carried out. failed are the sandboxes that the second look could not
// see.
func (r *run) left(actions, now, later []Action, failed map[file]bool) (left []Outcome) {
	without := map[interfaceAt]bool{}
	for _, a := range now {
		without[a.place()] = without[a.place()] || !a.recorded
	}
	for i, o := range r.outcomes {
		isAbout := func(a Action) bool { return isSame(a, actions[i]) }
		if isDoubtful(o) && (slices.ContainsFunc(later, isAbout) || r.isNothing(actions[i], without, failed)) {
			continue
		}
		left = append(left, o)
	}
	return left
}

// isNothing reports whether the second look shows that a refused or failed action is settled. without are the
// interfaces without a checkpoint at that time.
func (r *run) isNothing(a Action, without map[interfaceAt]bool, failed map[file]bool) bool {
	if a.recorded {
		if a.Attachment.IfName == "" {
			return false // The action is about a directory that cannot be read.
		}
		_, err := r.Store.Load(a.Attachment.ContainerID, a.Attachment.IfName)
		return errors.Is(err, checkpoint.ErrNone)
	}
	return !failed[fileOf(a.Namespace)] && !without[a.place()]
}
