package move

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/statefile"
)

// writeJournal writes the notes of what will be moved, so that Revert can move it back. When it returns, the journal is on the disk.
func (r *moveRun) writeJournal() error {
	if r.Journal == "" {
		return nil
	}
	var moves []checkpoint.Move
	for _, j := range r.jobsThat((*job).isMovable) {
		moves = append(moves, j.note(j.record))
	}
	if err := statefile.Save(r.Journal, moves); err != nil {
		return fmt.Errorf("journal of the move: %w", err)
	}
	return nil
}

// Revert moves the attachments of opts.Journal back to where they were before the move that wrote the journal. It ignores
// opts.Source, Target, Select and Force, and moves back what it can. It leaves out attachments that have ended or are already
// back. It brings back the parents as a restore does, including members of bonds. It can be run again.
func Revert(ctx context.Context, opts Options) (UplinkReport, error) {
	var entries []checkpoint.Move
	if err := statefile.Load(opts.Journal, &entries); errors.Is(err, fs.ErrNotExist) {
		return UplinkReport{}, fmt.Errorf("journal of the move: %w", err)
	} else if err != nil {
		return UplinkReport{}, fmt.Errorf("journal of the move: %w: %w", checkpoint.ErrTorn, err)
	}
	opts.Journal, opts.Force = "", true
	return run(ctx, opts, func(r *moveRun) error {
		r.moves, r.report.Notes = planRevert(entries, r.records)
		return nil
	})
}

// planRevert is a pure function: it decides which of the records move back.
func planRevert(entries []checkpoint.Move, records []checkpoint.Record) (moves []*job, notes []string) {
	for _, e := range entries {
		i := slices.IndexFunc(records, func(r checkpoint.Record) bool { return r.Attachment == e.Attachment })
		if i < 0 || sameParents(records[i].Interface.Parents, e.OldParents) {
			continue // The attachment has ended, or is already back.
		}
		if !sameParents(records[i].Interface.Parents, e.NewParents) {
			notes = append(notes, fmt.Sprintf("%s of %s stays on %s: it was moved to %s, and somebody has moved it on",
				e.Attachment.IfName, podName(records[i]), nearestParent(records[i].Interface.Parents), nearestParent(e.NewParents)))
			continue
		}
		moves = append(moves, newJob(records[i], e.OldParents, e.Index, ""))
	}
	return moves, notes
}
