package move

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/sandbox"
	"github.com/relink-cni/relink/pkg/selection"
)

// verifyMoved compares the moved interfaces with the records, and repairs differences. Then it deletes the old interfaces,
// and compares once more: a route of another interface can lose its source address with an old interface. An interrupt
// does not stop verify.
func (r *moveRun) verifyMoved(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	r.repair(ctx)
	r.deleteOldInterfaces(ctx)
	r.repair(ctx)
}

// repair runs a restore of the sandboxes in which an interface has switched and lacks something.
func (r *moveRun) repair(ctx context.Context) {
	r.markDeleted(ctx)
	switched := slices.DeleteFunc(r.jobsThat((*job).hasSwitched), func(j *job) bool { return j.outcome.State == Deleted })
	report, err := restoreSandboxes(ctx, r.Store, r.differing(ctx, switched))
	if err != nil {
		r.report.Problems = append(r.report.Problems, printable.Joined(err))
		return
	}
	for _, o := range report.Outcomes {
		place := slices.IndexFunc(switched, func(j *job) bool { return j.record.Attachment == o.Attachment })
		if place < 0 {
			continue
		}
		j := switched[place]
		switch {
		case o.IsAsRecorded():
			j.outcome.State, j.outcome.Reason = Moved, ""
		case o.Differs():
			j.outcome.State, j.outcome.Reason = change.Failed, "it is on "+j.outcome.NewParent+": "+o.FullReason()
		}
	}
}

// markDeleted finds out which attachments were deleted since the move began. Pods come and go during a move. One whose
// checkpoint alone has vanished is not deleted: nobody can verify it.
func (r *moveRun) markDeleted(ctx context.Context) {
	for _, j := range r.moves {
		if j.outcome.State == Deleted {
			continue
		}
		_, err := r.Store.Load(j.containerID(), j.record.Attachment.IfName)
		vanished := errors.Is(err, checkpoint.ErrNoCheckpoint)
		switch {
		case !vanished && kernel.CheckNamespace(j.record.Namespace) == nil:
		case r.isDeleted(ctx, j.record, vanished):
			j.outcome.State, j.outcome.Reason = Deleted, "it was deleted during the move"
		case vanished && j.outcome.State != change.Refused: // What cannot be moved stays so.
			j.fail(errors.New("its checkpoint has vanished, and it is not proven gone: relink capture writes one"))
		}
	}
}

// isDeleted says that the sandbox of the record is proven gone, or that it lacks an interface without a checkpoint.
func (r *moveRun) isDeleted(ctx context.Context, record checkpoint.Record, vanished bool) bool {
	if vanished { // A DEL forgets the checkpoint first. It may still be at work.
		_ = r.Store.WithLock(ctx, record.Attachment.ContainerID, func() error { return nil })
	}
	namespace, err := kernel.OpenSame(record.Namespace)
	if err != nil {
		return sandbox.ProvenGone(ctx, sandbox.SeesAllProcesses(), record.Namespace)[record.Namespace]
	}
	defer namespace.Close()
	exists, err := namespace.Exists(record.Interface.Link.Name)
	return vanished && err == nil && !exists
}

// restoreSandboxes restores the sandboxes. It leaves out those that have no checkpoint any more.
func restoreSandboxes(ctx context.Context, store *checkpoint.Store, ids []string) (report restore.Report, err error) {
	for {
		ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
			records, unreadable := store.ListSandbox(id)
			return len(records)+len(unreadable) == 0
		})
		if len(ids) == 0 {
			return restore.Report{}, nil
		}
		if report, err = restore.Run(ctx, restore.Options{Store: store, Select: selection.Selection{Names: ids}}); !errors.Is(err, selection.ErrNothing) {
			return report, err
		}
	}
}

// deleteOldInterfaces deletes the replaced interfaces. It comes after all switches: a deletion holds the kernel's lock, and
// other interfaces would wait to switch.
func (r *moveRun) deleteOldInterfaces(ctx context.Context) {
	jobs := r.jobsThat((*job).hasSwitched)
	for i, err := range finishMoves(ctx, r.Store, r.host, targetsOf(jobs)) {
		if o := &jobs[i].outcome; err != nil {
			o.Fail(fmt.Errorf("it is on %s, but the old interface is still there: %w", o.NewParent, err))
		}
	}
}

// FinishKilled finishes what killed moves have left, and restores their sandboxes. After that, each checkpoint names the
// parents that its interface is on, and nothing is left of the other interface. FinishKilled leaves out a sandbox that
// another process still works on after the wait of Store.Lock. It does nothing while a move is under way: that one has
// finished the killed ones first.
func FinishKilled(ctx context.Context, store *checkpoint.Store) error {
	notes, err := unfinishedMoves(store)
	if len(notes) == 0 {
		return err
	}
	impatient, cancel := context.WithCancel(ctx)
	cancel()
	unlock, err := store.LockMoves(impatient)
	if errors.Is(err, checkpoint.ErrBusy) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	return finishKilled(ctx, store)
}

// HasUnfinished says that a move is under way, or was killed.
func HasUnfinished(store *checkpoint.Store) bool {
	notes, err := unfinishedMoves(store)
	return err == nil && len(notes) > 0
}

// unfinishedMoves returns the notes of moves that did not end. It leaves out sandboxes that are not found: there is nothing to
// finish.
func unfinishedMoves(store *checkpoint.Store) ([]checkpoint.Move, error) {
	notes, err := store.Moves()
	return slices.DeleteFunc(notes, func(m checkpoint.Move) bool {
		record, err := store.Load(m.Attachment.ContainerID, m.Attachment.IfName)
		if errors.Is(err, checkpoint.ErrNoCheckpoint) {
			return false
		}
		return m.State == checkpoint.MoveDone || err == nil && kernel.NotFound(record.Namespace)
	}), err
}

// finishKilled is FinishKilled for a caller who holds the lock of the moves.
func finishKilled(ctx context.Context, store *checkpoint.Store) error {
	notes, err := unfinishedMoves(store)
	if len(notes) == 0 {
		return err
	}
	errs := []error{err}
	host, err := kernel.OpenHost()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	defer host.Close()
	var begun []string
	var targets []checkpoint.Record
	for _, m := range notes {
		targets = append(targets, checkpoint.Record{Attachment: m.Attachment})
	}
	finished := finishMoves(ctx, store, host, targets)
	for i, m := range notes {
		if err := finished[i]; err != nil && !errors.Is(err, checkpoint.ErrBusy) && !errors.Is(err, change.ErrNotTried) {
			errs = append(errs, fmt.Errorf("finish the move of %s: %w", m.Attachment, err))
		}
		_, loadErr := store.Load(m.Attachment.ContainerID, m.Attachment.IfName)
		if m.State == checkpoint.MoveBegun && loadErr == nil && !slices.Contains(begun, m.Attachment.ContainerID) {
			begun = append(begun, m.Attachment.ContainerID)
		}
	}
	if len(begun) > 0 { // The kill may have come while an interface was down.
		_, err := restoreSandboxes(ctx, store, begun)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// finishMoves finishes the moves of the attachments.
func finishMoves(ctx context.Context, store *checkpoint.Store, host *kernel.Namespace, targets []checkpoint.Record) []error {
	return change.NewRunner(store).Run(ctx, targets, func(i int) error { return finishMove(store, host, targets[i].Attachment) })
}

// finishMove finishes the move of one attachment. The caller holds its sandbox's lock.
func finishMove(store *checkpoint.Store, host *kernel.Namespace, key attachment.Key) error {
	note, err := store.LoadMove(key)
	if errors.Is(err, checkpoint.ErrNoCheckpoint) {
		return nil // Another process has finished the move.
	}
	if err != nil {
		return err
	}
	err = store.OpenSandbox(checkpoint.Record{Attachment: key}, func(s *checkpoint.Sandbox) error {
		return finishIn(store, host, s, note)
	})
	switch {
	case errors.Is(err, checkpoint.ErrNoCheckpoint):
		return forgetMove(store, note)
	case kernel.IsMissing(err):
		return nil // The sandbox has ended: a restore reports that.
	}
	return err
}

func finishIn(store *checkpoint.Store, host *kernel.Namespace, s *checkpoint.Sandbox, note checkpoint.Move) (err error) {
	if note.State == checkpoint.MoveBegun {
		if note, err = resolveMove(store, host, s.Namespace, note, s.Record); err != nil || note.State == checkpoint.MoveBegun {
			return err
		}
	}
	if _, err := s.Namespace.DeleteRetired(note.Index, note.Name); err != nil {
		return err
	}
	note.State = checkpoint.MoveDone
	return store.SaveMove(note)
}

// forgetMove deletes what a killed move has left of an attachment that was detached meanwhile. The pod may live on.
func forgetMove(store *checkpoint.Store, note checkpoint.Move) error {
	sandbox, err := kernel.OpenSame(note.Namespace)
	if err == nil {
		defer sandbox.Close()
		_, err := sandbox.DeleteRetired(note.Index, note.Name)
		if err := errors.Join(err, kernel.DeleteUnfinished(sandbox)); err != nil {
			return err
		}
	}
	return store.ForgetMove(note.Attachment)
}

// resolveMove finds out whether the new interface has taken the old one's place, and corrects the record. If it has not,
// resolveMove removes the new interface and the note. Then the returned note still says MoveBegun.
func resolveMove(store *checkpoint.Store, host, sandbox *kernel.Namespace, note checkpoint.Move, record checkpoint.Record) (checkpoint.Move, error) {
	devices, err := host.Devices()
	if err != nil {
		return note, err
	}
	live, err := kernel.Capture(host, sandbox, devices, note.Name, kernel.Extent{})
	if err != nil && !errors.Is(err, kernel.ErrNoDevice) && !errors.Is(err, kernel.ErrUnsupported) {
		return note, err
	}
	if err == nil && live.Link.Index != note.Index && sameParents(live.Parents, note.NewParents) {
		record.Interface.Parents, record.Interface.Link.Index, record.AnnouncementOwed = note.NewParents, live.Link.Index, true
		if record.Interface.Link.SharesMAC() {
			record.Interface.Link.MAC = live.Link.MAC
		}
		if err := store.Save(record); err != nil {
			return note, err
		}
		note.State = checkpoint.MoveSwitched
		return note, store.SaveMove(note)
	}
	// A kill between two renames leaves the old interface without its name, and nothing under that name.
	if err := sandbox.RestoreName(note.Index, note.Name, record.Interface.Addresses); err != nil {
		return note, err
	}
	if err := kernel.DeleteUnfinished(sandbox); err != nil {
		return note, err
	}
	return note, store.ForgetMove(note.Attachment)
}
