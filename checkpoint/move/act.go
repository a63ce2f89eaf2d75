package move

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// moveSandboxes moves the attachments. After an interrupt, moves that are under way still finish. If the move of one fails before the new
// interface has taken the old one's place, the old interface goes on as before.
func (r *moveRun) moveSandboxes(ctx context.Context) {
	runner := change.NewRunner(r.Store)
	runner.Progress = r.Progress
	jobs := r.jobsThat((*job).isMovable)
	for i, err := range runner.Run(ctx, targetsOf(jobs), func(i int) error {
		return r.Store.OpenSandbox(jobs[i].record, func(s *checkpoint.Sandbox) error { return r.moveIn(jobs[i], s.Record, s.Namespace) })
	}) {
		if err != nil {
			jobs[i].fail(err)
		}
	}
}

func (r *moveRun) moveIn(j *job, record checkpoint.Record, sandbox *kernel.Namespace) error {
	if !sameParents(record.Interface.Parents, j.record.Interface.Parents) {
		return fmt.Errorf("it was moved to %s in the meantime", nearestParent(record.Interface.Parents))
	}
	live, err := r.inspectIn(sandbox, record)
	if err != nil {
		return err
	}
	note := j.note(record)
	note.Index = live.Link.Index
	if err := r.Store.SaveMove(note); err != nil {
		return err
	}
	return r.replaceInterface(j, note, record, sandbox, live)
}

// note says what is to be done, before anything is.
func (j *job) note(record checkpoint.Record) checkpoint.Move {
	return checkpoint.Move{
		Attachment: record.Attachment, Namespace: record.Namespace, State: checkpoint.MoveBegun, Name: record.Interface.Link.Name,
		OldParents: record.Interface.Parents, NewParents: j.target.Found, Index: record.Interface.Link.Index,
	}
}

// replaceInterface builds the new interface and lets it take the old one's place. Then it saves where the attachment is.
func (r *moveRun) replaceInterface(j *job, note checkpoint.Move, record checkpoint.Record, sandbox *kernel.Namespace, live netstate.Interface) error {
	live.Link.Index = j.index
	replacement, err := kernel.BuildReplacement(r.host, sandbox, j.target.Parent.Index, note.Index, live)
	start, switched := time.Now(), false
	if err == nil {
		switched, err = replacement.Swap()
	}
	if !switched {
		return errors.Join(err, r.Store.ForgetMove(note.Attachment))
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
	device, readErr := sandbox.Device(replacement.New)
	err = errors.Join(err, replacement.SetOldDown())
	j.complete, j.carrierChanges = err == nil && readErr == nil, device.CarrierChanges
	record.AnnouncementOwed = errors.Join(first, r.announcer.Announce(j.target.Parent.Index, announced)) != nil
	j.outcome.SwitchDuration = time.Since(start)
	if saveErr := r.Store.Save(record); saveErr != nil {
		return errors.Join(err, saveErr) // The note stays: FinishKilled saves it.
	}
	note.State = checkpoint.MoveSwitched
	j.outcome.State = Moved
	return errors.Join(err, r.Store.SaveMove(note))
}
