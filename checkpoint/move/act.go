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

// moveSandboxes moves the attachments. It moves those of one sandbox one after the other, and different sandboxes at the
// same time. After an interrupt, moves that are under way still finish.
func (r *moveRun) moveSandboxes(ctx context.Context) {
	groups := groupBySandbox(r.movableJobs())
	group := workers()
	var mu sync.Mutex
	count := 0
	for _, jobs := range groups {
		group.Go(func() error {
			r.moveSandbox(ctx, jobs)
			mu.Lock()
			defer mu.Unlock()
			if count++; r.Progress != nil {
				r.Progress(count, len(groups))
			}
			return nil
		})
	}
	_ = group.Wait() // The outcomes have the errors.
}

func groupBySandbox(jobs []*job) (groups [][]*job) {
	place := map[string]int{}
	for _, j := range jobs {
		index, ok := place[containerID(j)]
		if !ok {
			index = len(groups)
			place[containerID(j)], groups = index, append(groups, nil)
		}
		groups[index] = append(groups[index], j)
	}
	return groups
}

// moveSandbox moves the attachments of one sandbox under its lock.
func (r *moveRun) moveSandbox(ctx context.Context, jobs []*job) {
	unlock, err := r.Store.Lock(ctx, containerID(jobs[0]))
	if err != nil {
		for _, j := range jobs {
			j.setFailed(err)
		}
		return
	}
	defer unlock()
	for _, j := range jobs {
		if ctx.Err() != nil {
			j.setFailed(errors.New("interrupted before it was moved"))
			continue
		}
		if err := r.moveAttachment(j); err != nil {
			j.setFailed(err)
		}
	}
}

// setFailed sets the state to Failed.
func (j *job) setFailed(err error) {
	j.outcome.State, j.outcome.Reason = Failed, printable.Joined(err)
}

// errDetached means that the attachment was detached before its move.
var errDetached = errors.New("it was detached in the meantime")

// moveAttachment moves one attachment. The caller holds the sandbox's lock. If the move fails before the new interface has taken
// the old one's place, the old interface goes on as before.
func (r *moveRun) moveAttachment(j *job) error {
	err := r.Store.OpenSandbox(j.record, func(s *checkpoint.Sandbox) error { return r.moveIn(j, s.Record, s.Namespace) })
	if errors.Is(err, checkpoint.ErrNoCheckpoint) {
		return errDetached
	}
	return err
}

func (r *moveRun) moveIn(j *job, record checkpoint.Record, sandbox *kernel.Namespace) error {
	if !sameParents(record.Interface.Parents, j.record.Interface.Parents) {
		return fmt.Errorf("it was moved to %s in the meantime", nearestParent(record.Interface.Parents))
	}
	live, err := r.inspectIn(sandbox, record)
	if err != nil {
		return err
	}
	note := checkpoint.Move{
		Attachment: record.Attachment, Namespace: record.Namespace, State: checkpoint.MoveBegun, Name: record.Interface.Link.Name,
		OldParents: record.Interface.Parents, NewParents: j.target.Found, Index: live.Link.Index,
	}
	if err := r.Store.SaveMove(note); err != nil {
		return err
	}
	return r.replaceInterface(j, note, record, sandbox, live)
}

// replaceInterface builds the new interface and lets it take the old one's place. Then it saves where the attachment is.
func (r *moveRun) replaceInterface(j *job, note checkpoint.Move, record checkpoint.Record, sandbox *kernel.Namespace, live netstate.Interface) error {
	live.Link.Index = j.index
	replacement, err := kernel.BuildReplacement(r.host, sandbox, j.target.Parent.Index, note.Index, live)
	if err != nil {
		return errors.Join(err, r.Store.ForgetMove(note.Attachment.ContainerID, note.Attachment.IfName))
	}
	start := time.Now()
	switched, err := replacement.Swap()
	if !switched {
		return errors.Join(err, r.Store.ForgetMove(note.Attachment.ContainerID, note.Attachment.IfName))
	}
	failpoint.Here("switched")
	record.Interface.Parents, record.Interface.Link.Index = note.NewParents, replacement.New
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
	err = errors.Join(err, replacement.SetOldDown())
	j.complete, j.carrierChanges = err == nil && readErr == nil, changes
	record.AnnouncementOwed = errors.Join(first, r.announcer.Announce(j.target.Parent.Index, announced)) != nil
	j.outcome.SwitchDuration = time.Since(start)
	if saveErr := r.Store.Save(record); saveErr != nil {
		return errors.Join(err, saveErr) // The note stays: FinishKilled saves it.
	}
	note.State = checkpoint.MoveSwitched
	j.outcome.State = Moved
	return errors.Join(err, r.Store.SaveMove(note))
}
