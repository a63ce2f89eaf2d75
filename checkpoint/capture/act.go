package capture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/kernel"
)

// writeActions carries the actions out. It decides each of them again under the sandbox's lock, from what is
// there then: an ADD or a DEL may have come in between.
func (r *captureRun) writeActions(ctx context.Context) {
	var named, unnamed []*InterfaceAction
	var ids []string
	for i := range r.actions {
		switch a := &r.actions[i]; {
		case !a.changesCheckpoint():
		case a.Attachment.ContainerID == checkpoint.UnnamedID(a.Namespace):
			unnamed = append(unnamed, a)
		default:
			named, ids = append(named, a), append(ids, a.Attachment.ContainerID)
		}
	}
	r.Store.EachSandbox(ctx, ids, func(i int, err error) {
		if err == nil {
			err = r.writeNamed(ctx, named[i])
		}
		if err != nil {
			named[i].setFailed(wrapBusy(err))
		}
	})
	// All ADDs of the node wait meanwhile, so a batch must be short.
	const atOnce = 200
	for batch := range slices.Chunk(unnamed, atOnce) {
		r.writeUnnamed(ctx, batch)
	}
}

// writeNamed writes the checkpoint of an attachment whose container ID is known. The caller has taken the
// sandbox's lock.
func (r *captureRun) writeNamed(ctx context.Context, a *InterfaceAction) error {
	shared, err := r.Store.LockParents(ctx)
	if err != nil {
		return err
	}
	defer shared.Release()
	return r.write(a, r.node.Records)
}

// writeUnnamed writes checkpoints of interfaces whose container ID is not known. Nobody can take the lock
// of such a sandbox. So it makes sure in another way that no ADD and no DEL of relink works on them.
//
// It keeps all ADDs of the node off until it is done. It reads the checkpoints, and then makes
// sure that nobody holds a lock. If a DEL begins later, writeUnnamed has read the checkpoint of its attachment.
func (r *captureRun) writeUnnamed(ctx context.Context, batch []*InterfaceAction) {
	ctx, cancel := context.WithTimeout(ctx, flock.DefaultTimeout)
	defer cancel()
	for len(batch) > 0 {
		records, release, err := r.lockQuietNode(ctx)
		if err != nil {
			for _, a := range batch {
				a.setFailed(err)
			}
			return
		}
		// If somebody works on one of them now, it has to wait for the next round, so that ADDs can go
		// on.
		batch = slices.DeleteFunc(batch, func(a *InterfaceAction) bool { return r.tryWrite(a, records) })
		release()
	}
}

// tryWrite writes the checkpoint under the sandbox's lock. It returns false if somebody else holds
// that lock.
func (r *captureRun) tryWrite(a *InterfaceAction, records []checkpoint.Record) bool {
	unlock, err := r.Store.TryLock(a.Attachment.ContainerID)
	if errors.Is(err, checkpoint.ErrBusy) {
		return false
	}
	if err == nil {
		defer unlock()
		err = r.write(a, records)
	}
	if err != nil {
		a.setFailed(err)
	}
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

// write decides anew and does what it decides.
func (r *captureRun) write(a *InterfaceAction, records []checkpoint.Record) error {
	if a.State == Forgotten {
		return r.forget(a)
	}
	if err := r.Store.CheckNoMove(a.Attachment.ContainerID); err != nil {
		return err
	}
	f, err := r.reinspect(*a)
	if err != nil {
		return err
	}
	current, err := r.currentAction(*a, f, records)
	if err != nil {
		return err
	}
	switch {
	case current.State == Captured && r.Store.Detaching(current.Namespace, current.Attachment.IfName):
		current = current.decided(Kept, "it is being detached")
	case current.Attachment != a.Attachment:
		// An ADD has given it another container ID, whose lock is not held.
		current = current.decided(Kept, "it was given a checkpoint meanwhile")
	}
	if *a = current; !a.changesCheckpoint() {
		return nil
	}
	return r.Store.Save(recordOf(*a))
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
	siblings := slices.DeleteFunc(slices.Clone(records), func(r checkpoint.Record) bool { return r.Attachment.SameInterface(key) })
	unreadable := slices.DeleteFunc(slices.Clone(r.node.Unreadable), func(u checkpoint.Unreadable) bool {
		return u.Attachment().SameInterface(key) || slices.ContainsFunc(siblings, func(r checkpoint.Record) bool { return u.Attachment().SameInterface(r.Attachment) })
	})
	record, err := r.Store.Load(key.ContainerID, key.IfName)
	switch {
	case errors.Is(err, checkpoint.ErrNoCheckpoint) && decided.State == Refreshed:
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

// forget removes the checkpoint if it is still the one that was read.
func (r *captureRun) forget(a *InterfaceAction) error {
	err := r.Store.ForgetListed(a.record, a.torn)
	if errors.Is(err, checkpoint.ErrWrittenAnew) {
		*a = a.decided(Kept, err.Error())
		return nil
	}
	return err
}
