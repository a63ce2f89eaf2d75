package fence

import (
	"context"
	"errors"
	"fmt"

	"github.com/relink-cni/relink/pkg/pool"
)

// mostTries bounds how often a block is read again that other nodes change at the same time.
const mostTries = 8

// errAlive says that the node has changed a block since it was read.
var errAlive = errors.New("the node lives")

// Run fences what Look has found. A failure of one block does not stop the others. A node that shows that it lives does.
func (p Plan) Run(ctx context.Context) Report {
	r := p.report.clone()
	for _, b := range p.blocks {
		state, why := Left, "it was not tried, because the node lives"
		if r.Alive == "" {
			err := p.fence(ctx, b)
			state, why = outcome(err)
			if errors.Is(err, errAlive) {
				r.Alive = why
			}
		}
		for i, part := range r.Parts {
			if part.Block == b.Metadata.Name && part.State == ToFence {
				r.Parts[i].State, r.Parts[i].Reason = state, why
			}
		}
	}
	return r
}

// outcome is what becomes of a block by the error.
func outcome(err error) (State, string) {
	switch {
	case err == nil:
		return Fenced, ""
	case errors.Is(err, errAlive):
		return Left, err.Error()
	}
	return Failed, err.Error()
}

// fence fences the node in one block. The block may have changed since it was read, but not by the node.
func (p Plan) fence(ctx context.Context, was pool.Block) error {
	if err := was.Check(); err != nil {
		return err
	}
	now := was
	for range mostTries {
		next, changed := now.Fence(p.dead, p.Why)
		if !changed {
			return nil // Somebody else has done it.
		}
		_, err := p.API.UpdateBlock(ctx, next)
		if !errors.Is(err, pool.ErrConflict) && !errors.Is(err, pool.ErrNotThere) {
			return err
		}
		if now, err = p.again(ctx, was); err != nil {
			return err
		}
	}
	return fmt.Errorf("AddressBlock %s changes all the time: try again", was.Metadata.Name)
}

// again reads a block that somebody has changed. The error matches errAlive if the node has. A block without holders is one of which
// nobody has anything any more.
func (p Plan) again(ctx context.Context, was pool.Block) (pool.Block, error) {
	now, err := p.API.Block(ctx, was.Metadata.Name)
	if err != nil && !errors.Is(err, pool.ErrNotThere) {
		return now, err
	}
	if err != nil || now.Metadata.UID != was.Metadata.UID {
		now = pool.Block{} // Only who has an address can delete the block, or has been the last one to give it back.
	} else if err := now.Check(); err != nil {
		return now, err
	}
	for _, h := range was.Spec.Holders {
		if !p.dead(h.Party) {
			continue
		}
		if sign := was.SignOfLife(now, h.Party); sign != "" {
			return now, p.alive(was, sign)
		}
	}
	for _, w := range now.Spec.Want {
		if !p.dead(w.Party) {
			continue
		}
		if sign := was.SignOfLife(now, w.Party); sign != "" {
			return now, p.alive(was, sign)
		}
	}
	return now, nil
}

func (p Plan) alive(b pool.Block, sign string) error {
	return fmt.Errorf("%w: %s of AddressBlock %s while this command ran", errAlive, sign, b.Metadata.Name)
}
