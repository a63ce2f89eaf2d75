package adopt

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
)

// lookAgain takes a second look at what was refused, has failed or could not be looked at, under no lock. It
// drops what is nothing any more: an ADD has given the interface its checkpoint meanwhile, or a DEL took both.
func (r *run) lookAgain(ctx context.Context, actions []Action) error {
	some := filesOf(r.problems)
	failed := filesOf(r.problems)
	doubtful := false
	for i, o := range r.outcomes {
		if o.State == Refused || o.State == Failed {
			some[fileOf(actions[i].Namespace)], doubtful = true, true
		}
	}
	if !doubtful && len(r.problems) == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil // The report of the first look counts.
	case <-time.After(changing):
	}
	now, err := r.onceMore(some)
	if err != nil {
		return err
	}
	var left []Outcome
	for i, o := range r.outcomes {
		if o.State != Refused && o.State != Failed || !r.isNothing(actions[i], now) {
			left = append(left, o)
		}
	}
	r.outcomes = left
	r.problems = slices.DeleteFunc(now.problems, func(p Problem) bool { return !failed[fileOf(p.Namespace)] })
	return nil
}

// secondLook is what a second look has found.
type secondLook struct {
	// without are the interfaces that have no checkpoint.
	without  map[interfaceAt]bool
	problems []Problem
	// failed are the sandboxes with problems.
	failed map[file]bool
}

func (r *run) onceMore(some map[file]bool) (secondLook, error) {
	records, unreadable, err := r.Store.List()
	if err != nil {
		return secondLook{}, err
	}
	l, _, err := newLook(r.Options, slices.Concat(records, leftovers(unreadable, records)), true)
	if err != nil {
		return secondLook{}, err
	}
	defer l.close()
	node, problems, err := l.all(some)
	if err != nil {
		return secondLook{}, err
	}
	now := secondLook{without: map[interfaceAt]bool{}, problems: problems, failed: filesOf(problems)}
	for _, f := range node.Found {
		now.without[placeOf(f)] = true
	}
	return now, nil
}

// isNothing says that there is nothing to report of what was refused or has failed.
func (r *run) isNothing(a Action, now secondLook) bool {
	if a.recorded {
		if a.Attachment.IfName == "" {
			return false // It is a directory that cannot be read.
		}
		_, err := r.Store.Load(a.Attachment.ContainerID, a.Attachment.IfName)
		return errors.Is(err, checkpoint.ErrNone)
	}
	return !now.failed[fileOf(a.Namespace)] && !now.without[interfaceAt{a.Namespace, a.Interface.Link.Index}]
}
