package adopt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/kernel"
)

// act carries the actions out. It decides each of them again under the sandbox's lock, from what is
// there then: an ADD or a DEL may have come in between.
func (r *run) act(ctx context.Context, actions []Action) {
	var unnamed []int
	var waiting sync.WaitGroup
	defer waiting.Wait()
	for i, a := range actions {
		switch {
		case a.Do == Keep || a.Do == Refuse || a.Do == Leave:
			r.outcomes[i] = outcomeOf(a, done[a.Do])
		case a.Attachment.ContainerID == checkpoint.UnnamedID(a.Namespace):
			unnamed = append(unnamed, i)
		default:
			unlock, err := r.Store.TryLock(a.Attachment.ContainerID)
			if errors.Is(err, checkpoint.ErrBusy) {
				// The others do not wait while somebody works on this sandbox.
				waiting.Go(func() {
					unlock, err := r.lock(ctx, a.Attachment.ContainerID)
					r.outcomes[i] = r.named(ctx, a, unlock, err)
				})
				continue
			}
			r.outcomes[i] = r.named(ctx, a, unlock, err)
		}
	}
	// All ADDs of the node wait meanwhile, so a batch must be short.
	const atOnce = 200
	for batch := range slices.Chunk(unnamed, atOnce) {
		r.unnamed(ctx, actions, batch)
	}
}

// named writes the checkpoint of an attachment whose container ID is known. The caller has taken the
// sandbox's lock, which ends by unlock. err is why the caller could not take it.
func (r *run) named(ctx context.Context, a Action, unlock func(), err error) Outcome {
	o := outcomeOf(a, done[a.Do])
	if err != nil {
		o.fail(err)
		return o
	}
	defer unlock()
	ctx, cancel := context.WithTimeout(ctx, flock.Patience)
	defer cancel()
	shared, err := r.Store.ShareParents(ctx)
	if err != nil {
		o.fail(wrapBusy(err))
		return o
	}
	defer shared.Release()
	return r.again(a, r.node.Records)
}

// unnamed writes checkpoints of interfaces whose container ID is not known. Nobody can take the lock
// of such a sandbox. So it makes sure in another way that no ADD and no DEL of relink works on them.
//
// It keeps all ADDs of the node off until it is done. It reads the checkpoints, and then makes
// sure that nobody holds a lock. If a DEL begins later, unnamed has read the checkpoint of its attachment.
func (r *run) unnamed(ctx context.Context, actions []Action, batch []int) {
	ctx, cancel := context.WithTimeout(ctx, flock.Patience)
	defer cancel()
	for len(batch) > 0 {
		records, release, err := r.still(ctx)
		if err != nil {
			for _, i := range batch {
				r.outcomes[i] = outcomeOf(actions[i], Failed)
				r.outcomes[i].fail(err)
			}
			return
		}
		// If somebody works on one of them now, it has to wait for the next round, so that ADDs can go
		// on.
		batch = slices.DeleteFunc(batch, func(i int) bool { return r.underLock(i, actions[i], records) })
		release()
	}
}

// underLock writes the checkpoint under the sandbox's lock. It returns false if somebody else holds
// that lock.
func (r *run) underLock(i int, a Action, records []checkpoint.Record) bool {
	unlock, err := r.Store.TryLock(a.Attachment.ContainerID)
	if errors.Is(err, checkpoint.ErrBusy) {
		return false
	}
	if err != nil {
		r.outcomes[i] = outcomeOf(a, Failed)
		r.outcomes[i].fail(err)
		return true
	}
	defer unlock()
	r.outcomes[i] = r.again(a, records)
	return true
}

// still waits for a moment without any ADD or DEL, at most until ctx is done. It keeps ADDs off
// until release is called. records are all records of that moment.
func (r *run) still(ctx context.Context) (records []checkpoint.Record, release func(), err error) {
	const interval = 20 * time.Millisecond
	for ; ; time.Sleep(interval) {
		if err := ctx.Err(); errors.Is(err, context.DeadlineExceeded) {
			return nil, nil, errBusy
		} else if err != nil {
			return nil, nil, err
		}
		shared, err := r.Store.ShareParents(ctx)
		if err != nil {
			return nil, nil, wrapBusy(err)
		}
		if !shared.Alone() {
			shared.Release()
			continue
		}
		records, _, err := r.Store.List()
		quiet := false
		if err == nil {
			quiet, err = r.Store.Quiet()
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

func (r *run) lock(ctx context.Context, containerID string) (func(), error) {
	ctx, cancel := context.WithTimeout(ctx, flock.Patience)
	defer cancel()
	unlock, err := r.Store.Lock(ctx, containerID)
	return unlock, wrapBusy(err)
}

// again decides anew and does what it decides.
func (r *run) again(was Action, records []checkpoint.Record) Outcome {
	if was.Do == Forget {
		return r.forget(was)
	}
	o := outcomeOf(was, Failed)
	if err := r.Store.IsMoving(was.Attachment.ContainerID); err != nil {
		o.fail(err)
		return o
	}
	f, err := r.fresh(was)
	if err != nil {
		o.fail(err)
		return o
	}
	now, err := r.current(was, f, records)
	if err != nil {
		o.fail(err)
		return o
	}
	switch {
	case now.Do == Capture && r.Store.Detaching(now.Namespace, now.Attachment.IfName):
		now.Do, now.Reason = Keep, "it is being detached"
	case now.Attachment != was.Attachment:
		// An ADD has given it another container ID, whose lock is not held.
		now.Do, now.Reason = Keep, "it was given a checkpoint meanwhile"
	}
	o = outcomeOf(now, done[now.Do])
	if now.Do == Capture || now.Do == Refresh {
		if err := r.Store.Save(recordOf(now)); err != nil {
			o.fail(err)
		}
	}
	return o
}

// fresh looks at the interface as it is now.
func (r *run) fresh(was Action) (*Found, error) {
	namespace, err := kernel.OpenSame(was.Namespace)
	if err != nil {
		return nil, err
	}
	defer namespace.Close()
	room, err := r.look.enter(namespace)
	if err != nil {
		return nil, err
	}
	name := was.Interface.Link.Name
	f, err := room.at(name)
	if err == nil && f == nil {
		err = fmt.Errorf("%s is gone from the sandbox meanwhile", name)
	}
	return f, err
}

// current decides by the interface and by its checkpoint as they are now.
func (r *run) current(was Action, f *Found, records []checkpoint.Record) (Action, error) {
	key := was.Attachment
	f.Attachment, f.Pod, f.CNI = key, was.Pod, was.cni
	others := slices.DeleteFunc(slices.Clone(records), func(r checkpoint.Record) bool {
		return r.Attachment.ContainerID == key.ContainerID && r.Attachment.IfName == key.IfName
	})
	unreadable := slices.DeleteFunc(slices.Clone(r.node.Unreadable), func(u checkpoint.Unreadable) bool {
		return isOf(u, key) || slices.ContainsFunc(others, func(r checkpoint.Record) bool { return isOf(u, r.Attachment) })
	})
	record, err := r.Store.Load(key.ContainerID, key.IfName)
	switch {
	case errors.Is(err, checkpoint.ErrNone) && was.Do == Refresh:
		return Action{}, errors.New("it was detached meanwhile")
	case errors.Is(err, checkpoint.ErrNone):
	case errors.Is(err, checkpoint.ErrTorn), errors.Is(err, checkpoint.ErrVersion):
		unreadable = append(unreadable, r.Store.Unreadable(key.ContainerID, key.IfName, err))
	case err != nil:
		return Action{}, err
	default:
		others = append([]checkpoint.Record{record}, others...)
	}
	inside := bySandbox(others, unreadable).in(f.Namespace, with(f.Beside, *f))
	return decide(*f, inside, slices.Concat(others, leftovers(unreadable, others)), unreadable, r.Refresh), nil
}

func isOf(u checkpoint.Unreadable, k attachment.Key) bool {
	return u.ContainerID == k.ContainerID && u.IfName == k.IfName
}

// forget removes the checkpoint if it is still the one that was read.
func (r *run) forget(was Action) Outcome {
	o := outcomeOf(was, Forgotten)
	forgotten, err := false, error(nil)
	if was.torn != nil {
		forgotten, err = r.Store.ForgetUnreadable(*was.torn)
	} else {
		forgotten, err = r.Store.ForgetRead(was.record)
	}
	switch {
	case err != nil:
		o.fail(err)
	case !forgotten:
		o.State, o.Reason = Kept, "it was written anew meanwhile"
	}
	return o
}
