package move

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/google/renameio/v2"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// journal has what is needed to move attachments back to where they were.
type journal struct {
	Moves []journaled `json:"moves"`
}

// journaled is one attachment of a journal.
type journaled struct {
	Attachment attachment.Key    `json:"attachment"`
	From       []netstate.Device `json:"from"`
	To         []netstate.Device `json:"to"`
	// Index is the index that the interface had on From.
	Index int `json:"index"`
}

// writeJournal writes what will be moved. When it returns, the journal is on the disk.
func (r *run) writeJournal() error {
	if r.Journal == "" {
		return nil
	}
	var all journal
	for _, j := range r.movable() {
		all.Moves = append(all.Moves, journaled{
			Attachment: j.record.Attachment, From: j.record.Interface.Parents, To: j.target.Now, Index: j.record.Interface.Link.Index,
		})
	}
	b, err := json.MarshalIndent(all, "", "  ")
	if err == nil {
		err = renameio.WriteFile(r.Journal, append(b, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("journal of the move: %w", err)
	}
	return nil
}

// Back moves the attachments of opts.Journal back to where they were before the move that wrote the journal. It ignores
// opts.From, To, Select and Force, and moves back what it can. It leaves out attachments that have ended or are already
// back. It brings back the parents as a restore does, including members of bonds. It can be run again.
func Back(ctx context.Context, opts Options) (Report, error) {
	start := time.Now()
	entries, err := readJournal(opts.Journal)
	if err != nil {
		return Report{}, err
	}
	opts.Journal, opts.Force = "", true
	r, finish, err := begin(ctx, opts)
	if err != nil {
		return Report{}, err
	}
	defer finish()
	moves, notes := planBack(entries, r.all)
	r.report.Notes = notes
	for _, p := range moves {
		r.moves = append(r.moves, &job{planned: p, outcome: outcomeOf(p)})
	}
	return r.carryOut(ctx, start)
}

func readJournal(path string) ([]journaled, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("journal of the move: %w", err)
	}
	var all journal
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, fmt.Errorf("journal of the move %s: %w: %w", path, checkpoint.ErrTorn, err)
	}
	for _, e := range all.Moves {
		if len(e.From) == 0 || len(e.To) == 0 {
			return nil, fmt.Errorf("journal of the move %s: %w", path, errors.Join(checkpoint.ErrTorn, errors.New("an attachment without parents")))
		}
	}
	return all.Moves, nil
}

// planBack is a pure function: it decides which of the records move back.
func planBack(entries []journaled, records []checkpoint.Record) (all []planned, notes []string) {
	for _, e := range entries {
		i := slices.IndexFunc(records, func(r checkpoint.Record) bool { return r.Attachment == e.Attachment })
		if i < 0 || sameParents(records[i].Interface.Parents, e.From) {
			continue // The attachment has ended, or is already back.
		}
		if !sameParents(records[i].Interface.Parents, e.To) {
			notes = append(notes, fmt.Sprintf("%s of %s stays on %s: it was moved to %s, and somebody has moved it on",
				e.Attachment.IfName, podOf(records[i]), nearest(records[i].Interface.Parents), nearest(e.To)))
			continue
		}
		all = append(all, planned{record: records[i], to: e.From, index: e.Index})
	}
	return all, notes
}
