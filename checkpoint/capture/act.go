package capture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/kernel"
)

// writeActions carries the actions out. It decides each of them again under the sandbox's lock, from what is
// there then: an ADD or a DEL may have come in between.
func (r *captureRun) writeActions(ctx context.Context, actions []InterfaceAction) {
	var named, unnamed []int
	var ids []string
	for i, a := range actions {
		switch {
		case a.Verb == Keep || a.Verb == Refuse || a.Verb == Skip:
			r.outcomes[i] = outcomeOf(a, finalStates[a.Verb])
		case a.Attachment.ContainerID == checkpoint.UnnamedID(a.Namespace):
			unnamed = append(unnamed, i)
		default:
			named, ids = append(named, i), append(ids, a.Attachment.ContainerID)
		}
	}
	r.Store.EachSandbox(ctx, ids, func(i int, err error) {
		r.outcomes[named[i]] = r.writeNamed(ctx, actions[named[i]], err)
	})
	// All ADDs of the node wait meanwhile, so a batch must be short.
	const atOnce = 200
	for batch := range slices.Chunk(unnamed, atOnce) {
		r.writeUnnamed(ctx, actions, batch)
	}
}

// writeNamed writes the checkpoint of an attachment whose container ID is known. The caller has taken the
// sandbox's lock. err is why the caller could not take it.
func (r *captureRun) writeNamed(ctx context.Context, a InterfaceAction, err error) InterfaceOutcome {
	o := outcomeOf(a, finalStates[a.Verb])
	if err != nil {
		o.setFailed(wrapBusy(err))
		return o
	}
	shared, err := r.Store.LockParents(ctx)
	if err != nil {
		o.setFailed(wrapBusy(err))
		return o
	}
	defer shared.Release()
	return r.redecide(a, r.node.Records)
}

// writeUnnamed writes checkpoints of interfaces whose container ID is not known. Nobody can take the lock
// of such a sandbox. So it makes sure in another way that no ADD and no DEL of relink works on them.
//
// It keeps all ADDs of the node off until it is done. It reads the checkpoints, and then makes
// sure that nobody holds a lock. If a DEL begins later, writeUnnamed has read the checkpoint of its attachment.
func (r *captureRun) writeUnnamed(ctx context.Context, actions []InterfaceAction, batch []int) {
	ctx, cancel := context.WithTimeout(ctx, flock.DefaultTimeout)
	defer cancel()
	for len(batch) > 0 {
		records, release, err := r.lockQuietNode(ctx)
		if err != nil {
			for _, i := range batch {
				r.outcomes[i] = outcomeOf(actions[i], Failed)
				r.outcomes[i].setFailed(err)
			}
			return
		}
		// If somebody works on one of them now, it has to wait for the next round, so that ADDs can go
		// on.
		batch = slices.DeleteFunc(batch, func(i int) bool { return r.tryWrite(i, actions[i], records) })
		release()
	}
}

// tryWrite writes the checkpoint under the sandbox's lock. It returns false if somebody else holds
// that lock.
func (r *captureRun) tryWrite(i int, a InterfaceAction, records []checkpoint.Record) bool {
	unlock, err := r.Store.TryLock(a.Attachment.ContainerID)
	if errors.Is(err, checkpoint.ErrBusy) {
		return false
	}
	if err != nil {
		r.outcomes[i] = outcomeOf(a, Failed)
		r.outcomes[i].setFailed(err)
		return true
	}
	defer unlock()
	r.outcomes[i] = r.redecide(a, records)
	return true
}

// lockQuietNode waits for a moment without any ADD or DEL, at most until ctx is done. It keeps ADDs off
// until release is called. records are all records of that moment.
func (r *captureRun) lockQuietNode(ctx context.Context) (records []checkpoint.Record, release func(), err error) {
	const interval = 20 * time.Millisecond
	for ; ; time.Sleep(interval) {
		if err := ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
			return nil, nil, errNodeBusy
		} else if err != nil {
			return nil, nil, err
		}
		shared, err := r.Store.LockParents(ctx)
		if err != nil {
			return nil, nil, wrapBusy(err)
		}
		if !shared.TryExclusive() {
			shared.Release()
			continue
		}
		records, _, err := r.Store.List()
		quiet := false
		if err == nil {
			quiet, err = r.Store.NoSandboxLocked()
		}
		if err == nil && quiet {
			return records, shared.Release, nil
		}
		// An ADD that already has its sandbox's lock waits for this one.
		shared.Release()
		if err != nil {
			return nil, nil, err
		}
	}
}

// redecide decides anew and does what it decides.
func (r *captureRun) redecide(decided InterfaceAction, records []checkpoint.Record) InterfaceOutcome {
	if decided.Verb == Forget {
		return r.forget(decided)
	}
	o := outcomeOf(decided, Failed)
	if err := r.Store.CheckNoMove(decided.Attachment.ContainerID); err != nil {
		o.setFailed(err)
		return o
	}
	f, err := r.reinspect(decided)
	if err != nil {
		o.setFailed(err)
		return o
	}
	action, err := r.currentAction(decided, f, records)
	if err != nil {
		o.setFailed(err)
		return o
	}
	switch {
	case action.Verb == Capture && r.Store.Detaching(action.Namespace, action.Attachment.IfName):
		action.Verb, action.Reason = Keep, "it is being detached"
	case action.Attachment != decided.Attachment:
		// An ADD has given it another container ID, whose lock is not held.
		action.Verb, action.Reason = Keep, "it was given a checkpoint meanwhile"
	}
	o = outcomeOf(action, finalStates[action.Verb])
	if action.Verb == Capture || action.Verb == Refresh {
		if err := r.Store.Save(recordOf(action)); err != nil {
			o.setFailed(err)
		}
	}
	return o
}

// reinspect looks at the interface as it is now.
func (r *captureRun) reinspect(decided InterfaceAction) (*LiveInterface, error) {
	namespace, err := kernel.OpenSame(decided.Namespace)
	if err != nil {
		return nil, err
	}
	defer namespace.Close()
	room, err := r.inspector.openInspector(namespace)
	if err != nil {
		return nil, err
	}
	name := decided.Interface.Link.Name
	f, err := room.inspect(name)
	if err == nil && f == nil {
		err = fmt.Errorf("%s is gone from the sandbox meanwhile", name)
	}
	return f, err
}

// currentAction decides by the interface and by its checkpoint as they are now.
func (r *captureRun) currentAction(decided InterfaceAction, f *LiveInterface, records []checkpoint.Record) (InterfaceAction, error) {
	key := decided.Attachment
	f.Attachment, f.Pod, f.CNI = key, decided.Pod, decided.cni
	siblings := slices.DeleteFunc(slices.Clone(records), func(r checkpoint.Record) bool {
		return r.Attachment.ContainerID == key.ContainerID && r.Attachment.IfName == key.IfName
	})
	unreadable := slices.DeleteFunc(slices.Clone(r.node.Unreadable), func(u checkpoint.Unreadable) bool {
		return isSameCheckpoint(u, key) || slices.ContainsFunc(siblings, func(r checkpoint.Record) bool { return isSameCheckpoint(u, r.Attachment) })
	})
	record, err := r.Store.Load(key.ContainerID, key.IfName)
	switch {
	case errors.Is(err, checkpoint.ErrNoCheckpoint) && decided.Verb == Refresh:
		return InterfaceAction{}, errors.New("it was detached meanwhile")
	case errors.Is(err, checkpoint.ErrNoCheckpoint):
	case errors.Is(err, checkpoint.ErrTorn), errors.Is(err, checkpoint.ErrVersion):
		unreadable = append(unreadable, r.Store.Unreadable(key.ContainerID, key.IfName, err))
	case err != nil:
		return InterfaceAction{}, err
	default:
		siblings = append([]checkpoint.Record{record}, siblings...)
	}
	inside := indexRecords(siblings, unreadable).match(f.Namespace, withDevice(f.Devices, *f))
	return decide(*f, inside, slices.Concat(siblings, partialRecords(unreadable, siblings)), unreadable, r.Refresh), nil
}

func isSameCheckpoint(u checkpoint.Unreadable, k attachment.Key) bool {
	return u.ContainerID == k.ContainerID && u.IfName == k.IfName
}

// forget removes the checkpoint if it is still the one that was read.
func (r *captureRun) forget(decided InterfaceAction) InterfaceOutcome {
	o := outcomeOf(decided, Forgotten)
	forgotten, err := false, error(nil)
	if decided.torn != nil {
		forgotten, err = r.Store.ForgetUnreadable(*decided.torn)
	} else {
		forgotten, err = r.Store.ForgetRecord(decided.record)
	}
	switch {
	case err != nil:
		o.setFailed(err)
	case !forgotten:
		o.State, o.Reason = Kept, "it was written anew meanwhile"
	}
	return o
}
