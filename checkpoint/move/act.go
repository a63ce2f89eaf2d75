package move

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
)

// sandboxes moves the attachments. It moves those of one sandbox one after the other, and different sandboxes at the
// same time. After an interrupt, moves that are under way still finish.
func (r *run) sandboxes(ctx context.Context) {
	groups := bySandbox(r.movable())
	group := workers()
	var mu sync.Mutex
	done := 0
	for _, jobs := range groups {
		group.Go(func() error {
			r.sandbox(ctx, jobs)
			mu.Lock()
			defer mu.Unlock()
			if done++; r.Progress != nil {
				r.Progress(done, len(groups))
			}
			return nil
		})
	}
	_ = group.Wait() // The outcomes have the errors.
}

func bySandbox(jobs []*job) (groups [][]*job) {
	place := map[string]int{}
	for _, j := range jobs {
		at, known := place[containerID(j)]
		if !known {
			at = len(groups)
			place[containerID(j)], groups = at, append(groups, nil)
		}
		groups[at] = append(groups[at], j)
	}
	return groups
}

// sandbox moves the attachments of one sandbox under its lock.
func (r *run) sandbox(ctx context.Context, jobs []*job) {
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	unlock, err := r.Store.Lock(waiting, containerID(jobs[0]))
	if err != nil {
		for _, j := range jobs {
			j.fail(err)
		}
		return
	}
	defer unlock()
	for _, j := range jobs {
		if ctx.Err() != nil {
			j.fail(errors.New("interrupted before it was moved"))
			continue
		}
		if err := r.move(j); err != nil {
			j.fail(err)
		}
	}
}

// fail sets the state to Failed.
func (j *job) fail(err error) {
	j.outcome.State, j.outcome.Reason = Failed, printable.Joined(err)
}

// errDetached means that the attachment was detached before its move.
var errDetached = errors.New("it was detached in the meantime")

// move moves one attachment. The caller holds the sandbox's lock. If the move fails before the new interface has taken
// the old one's place, the old interface goes on as before.
func (r *run) move(j *job) error {
	record, err := r.Store.Reload(j.record)
	switch {
	case errors.Is(err, checkpoint.ErrNone):
		return errDetached
	case err != nil:
		return err
	case !sameParents(record.Interface.Parents, j.record.Interface.Parents):
		return fmt.Errorf("it was moved to %s in the meantime", nearest(record.Interface.Parents))
	}
	sandbox, err := openSandbox(record.Namespace)
	if err != nil {
		return err
	}
	defer sandbox.Close()
	live, err := r.inspectIn(sandbox, record)
	if err != nil {
		return err
	}
	note := checkpoint.Moving{
		Attachment: record.Attachment, Namespace: record.Namespace, State: checkpoint.MoveBegun, Name: record.Interface.Link.Name,
		From: record.Interface.Parents, To: j.target.Now, Index: live.Link.Index,
	}
	if err := r.Store.SaveMoving(note); err != nil {
		return err
	}
	return r.replace(j, note, record, sandbox, live)
}

// replace builds the new interface and lets it take the old one's place. Then it saves where the attachment is.
func (r *run) replace(j *job, note checkpoint.Moving, record checkpoint.Record, sandbox *kernel.Namespace, live netstate.Interface) error {
	live.Link.Index = j.index
	replacement, err := kernel.BuildReplacement(r.host, sandbox, j.target.Parent.Index, note.Index, live)
	if err != nil {
		return errors.Join(err, r.Store.ForgetMoving(note.Attachment.ContainerID, note.Attachment.IfName))
	}
	start := time.Now()
	switched, err := replacement.TakePlace()
	if !switched {
		return errors.Join(err, r.Store.ForgetMoving(note.Attachment.ContainerID, note.Attachment.IfName))
	}
	failpoint.Here("switched")
	record.Interface.Parents, record.Interface.Link.Index = note.To, replacement.New
	if record.Interface.Link.SharesMAC() {
		record.Interface.Link.MAC = j.target.Parent.MAC
	}
	// The record may have an earlier end of an address's lifetime, and no expired address is announced.
	announced := record.Interface
	announced.Addresses = live.Addresses
	// Announce before the old interface goes down, and once more afterwards: until it is down, it may have answered a
	// neighbour.
	first := r.announcer.Announce(j.target.Parent.Index, announced)
	changes, readErr := sandbox.CarrierChanges(replacement.New)
	err = errors.Join(err, replacement.Retire())
	j.complete, j.carrierChanges = err == nil && readErr == nil, changes
	record.AnnouncementOwed = errors.Join(first, r.announcer.Announce(j.target.Parent.Index, announced)) != nil
	j.outcome.Switched = time.Since(start)
	if saveErr := r.Store.Save(record); saveErr != nil {
		return errors.Join(err, saveErr) // The note stays: Settle saves it.
	}
	note.State = checkpoint.MoveSwitched
	j.outcome.State = Moved
	return errors.Join(err, r.Store.SaveMoving(note))
}
