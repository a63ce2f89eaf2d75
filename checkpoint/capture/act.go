package capture

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/kernel"
)

// writeActions carries the actions out. It decides each of them again under the sandbox's lock, from what is
// there then: an ADD or a DEL may have come in between.
func (r *captureRun) writeActions(ctx context.Context) {
	var named, unnamed []*InterfaceAction
	for i := range r.actions {
		switch a := &r.actions[i]; {
		case !a.changesCheckpoint():
		case a.Attachment.ContainerID == checkpoint.UnnamedID(a.Namespace):
			unnamed = append(unnamed, a)
		default:
			named = append(named, a)
		}
	}
	var targets []checkpoint.Record
	for _, a := range named {
		targets = append(targets, a.target())
	}
	for i, err := range change.NewRunner(r.Store).Run(ctx, targets, func(i int) error { return r.writeNamed(ctx, named[i]) }) {
		if err != nil {
			named[i].Fail(err)
		}
	}
	// All ADDs of the node wait meanwhile, so a batch must be short.
	const atOnce = 200
	for batch := range slices.Chunk(unnamed, atOnce) {
		if err := r.writeUnnamed(ctx, batch); err != nil {
			for _, a := range batch {
				a.Fail(err)
			}
		}
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
	return r.write(a, r.inspector.records)
}

// writeUnnamed writes checkpoints of interfaces whose container ID is not known. Nobody can take the lock
// of such a sandbox. So it makes sure in another way that no ADD and no DEL of relink works on them.
//
// It keeps all ADDs of the node off until it is done. It reads the checkpoints, and then makes
// sure that nobody holds a lock. If a DEL begins later, writeUnnamed has read the checkpoint of its attachment.
func (r *captureRun) writeUnnamed(ctx context.Context, batch []*InterfaceAction) error {
	ctx, cancel := context.WithTimeout(ctx, flock.DefaultTimeout)
	defer cancel()
	records, release, err := r.lockQuietNode(ctx)
	if err != nil {
		return err
	}
	defer release()
	for _, a := range batch {
		if err := r.tryWrite(a, records); err != nil {
			a.Fail(err)
		}
	}
	return nil
}

// tryWrite writes the checkpoint under the sandbox's lock. It does not wait for that lock: all ADDs wait meanwhile, and the second look
// tries again.
func (r *captureRun) tryWrite(a *InterfaceAction, records recordIndex) error {
	unlock, err := r.Store.TryLock(a.Attachment.ContainerID)
	if err != nil {
		return err
	}
	defer unlock()
	return r.write(a, records)
}

// lockQuietNode waits for a moment without any ADD or DEL, at most until ctx is done. It keeps ADDs off
// until release is called. records are all records of that moment.
func (r *captureRun) lockQuietNode(ctx context.Context) (records recordIndex, release func(), err error) {
	const interval = 20 * time.Millisecond
	for ; ; time.Sleep(interval) {
		if err := ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
			return records, nil, errors.New("too many pods are changing to tell whose interface this is: try again")
		} else if err != nil {
			return records, nil, err
		}
		shared, err := r.Store.LockParents(ctx)
		if err != nil {
			return records, nil, err
		}
		if !shared.TryExclusive() {
			shared.Release()
			continue
		}
		readable, unreadable, err := r.Store.List()
		quiet := false
		if err == nil {
			quiet, err = r.Store.NoSandboxLocked()
		}
		if err == nil && quiet {
			return indexRecords(readable, unreadable), shared.Release, nil
		}
		// An ADD that already has its sandbox's lock waits for this one.
		shared.Release()
		if err != nil {
			return records, nil, err
		}
	}
}

// write decides anew and does what it decides. records are all other checkpoints.
func (r *captureRun) write(a *InterfaceAction, records recordIndex) error {
	current, err := r.redecide(*a, records)
	if err != nil {
		return err
	}
	switch {
	case current.State == Captured && r.Store.Detaching(current.Namespace, current.Attachment.IfName):
		current = current.decided(change.Kept, "it is being detached")
	case current.Attachment != a.Attachment:
		// An ADD has given it another container ID, whose lock is not held.
		current = current.decided(change.Kept, "it was given a checkpoint meanwhile")
	}
	if *a = current; !a.changesCheckpoint() {
		return nil
	}
	writer := Writer
	switch {
	case a.State == Refreshed && a.torn == nil:
		writer = a.recorded.Writer // Who has attached it has not changed.
	case r.byAgent:
		writer = AgentWriter
	}
	return r.Store.Save(recordOf(*a, writer))
}

// redecide decides by the interface and its checkpoint as they are now.
func (r *captureRun) redecide(a InterfaceAction, records recordIndex) (InterfaceAction, error) {
	if err := r.Store.CheckNoMove(a.Attachment.ContainerID); err != nil {
		return a, err
	}
	namespace, err := kernel.OpenSame(a.Namespace)
	if err != nil {
		return a, err
	}
	defer namespace.Close()
	inspector, err := r.inspector.openInspector(namespace)
	if err != nil {
		return a, err
	}
	name := a.Interface.Link.Name
	f, err := inspector.inspect(name)
	if err != nil {
		return a, err
	}
	if f != nil && r.byAgent {
		if err := inspector.checkStillUp(*f); err != nil { // Nobody has asked for a checkpoint of what goes at this moment.
			return a, err
		}
	}
	records = r.reload(a, records)
	if a.State == Refreshed && !slices.ContainsFunc(records.readable, func(r checkpoint.Record) bool { return r.Attachment == a.Attachment }) {
		return a, errors.New("it was detached meanwhile")
	}
	inside := records.match(namespace.Identity(), inspector.sandboxDevices)
	switch {
	case a.file != nil:
		return inside.decideFile(*a.file, f), nil
	case f == nil:
		return a, fmt.Errorf("%s is gone from the sandbox meanwhile", name)
	}
	f.Attachment, f.Pod, f.CNI = a.Attachment, a.Pod, a.cni
	return inside.decide(*f, r.Refresh), nil
}

// reload returns the records with those of the action's container ID as they are now, and of the one that a capture gives a sandbox that
// nobody knows.
func (r *captureRun) reload(a InterfaceAction, records recordIndex) recordIndex {
	ids := slices.Compact([]string{a.Attachment.ContainerID, checkpoint.UnnamedID(a.Namespace)})
	readable := slices.DeleteFunc(slices.Clone(records.readable), func(r checkpoint.Record) bool { return slices.Contains(ids, r.Attachment.ContainerID) })
	unreadable := slices.DeleteFunc(slices.Clone(records.unreadable), func(u checkpoint.Unreadable) bool { return slices.Contains(ids, u.ContainerID) })
	present, torn := r.Store.ListSandboxes(ids)
	return indexRecords(append(readable, present...), append(unreadable, torn...))
}
