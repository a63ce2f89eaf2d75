package move

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/statefile"
)

// journal has what is needed to move attachments back to where they were.
type journal struct {
	Moves []journalEntry `json:"moves"`
}

// journalEntry is one attachment of a journal.
type journalEntry struct {
	Attachment attachment.Key    `json:"attachment"`
	OldParents []netstate.Device `json:"from"`
	NewParents []netstate.Device `json:"to"`
	// Index is the index that the interface had on OldParents.
	Index int `json:"index"`
}

// writeJournal writes what will be moved. When it returns, the journal is on the disk.
func (r *moveRun) writeJournal() error {
	if r.Journal == "" {
		return nil
	}
	var contents journal
	for _, j := range r.movableJobs() {
		contents.Moves = append(contents.Moves, journalEntry{
			Attachment: j.record.Attachment, OldParents: j.record.Interface.Parents, NewParents: j.target.Found, Index: j.record.Interface.Link.Index,
		})
	}
	if err := statefile.Save(r.Journal, contents); err != nil {
		return fmt.Errorf("journal of the move: %w", err)
	}
	return nil
}

// Revert moves the attachments of opts.Journal back to where they were before the move that wrote the journal. It ignores
// opts.From, To, Select and Force, and moves back what it can. It leaves out attachments that have ended or are already
// back. It brings back the parents as a restore does, including members of bonds. It can be run again.
func Revert(ctx context.Context, opts Options) (UplinkReport, error) {
	start := time.Now()
	entries, err := readJournal(opts.Journal)
	if err != nil {
		return UplinkReport{}, err
	}
	opts.Journal, opts.Force = "", true
	r, finish, err := beginRun(ctx, opts)
	if err != nil {
		return UplinkReport{}, err
	}
	defer finish()
	moves, notes := planRevert(entries, r.records)
	r.report.Notes = notes
	for _, p := range moves {
		r.moves = append(r.moves, &job{planned: p, outcome: newOutcome(p)})
	}
	return r.execute(ctx, start)
}

func readJournal(path string) ([]journalEntry, error) {
	var contents journal
	if err := statefile.Load(path, &contents); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("journal of the move: %w", err)
	} else if err != nil {
		return nil, fmt.Errorf("journal of the move: %w: %w", checkpoint.ErrTorn, err)
	}
	for _, e := range contents.Moves {
		if len(e.OldParents) == 0 || len(e.NewParents) == 0 {
			return nil, fmt.Errorf("journal of the move %s: %w", path, errors.Join(checkpoint.ErrTorn, errors.New("an attachment without parents")))
		}
	}
	return contents.Moves, nil
}

// planRevert is a pure function: it decides which of the records move back.
func planRevert(entries []journalEntry, records []checkpoint.Record) (moves []planned, notes []string) {
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
		moves = append(moves, planned{record: records[i], newParents: e.OldParents, index: e.Index})
	}
	return moves, notes
}
