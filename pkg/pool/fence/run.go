package fence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/relink-cni/relink/pkg/pool"
)

// maxTries bounds how often a block is read again that other nodes change at the same time.
const maxTries = 8

// errAlive says that the node has changed a block since it was read.
var errAlive = errors.New("the node lives")

// Run fences what NewPlan has found, and what the node has got since then. A failure of one block does not stop the others. A node that shows that
// it lives does.
func (p Plan) Run(ctx context.Context) Result {
	r := p.result
	r.Parts = slices.Clone(r.Parts)
	for _, b := range p.blocks {
		r.try(b, func() error { return p.fence(ctx, b) })
	}
	later, err := NewPlan(ctx, p.Target)
	if err != nil {
		if !errors.Is(err, ErrNoMatch) {
			r.Parts = append(r.Parts, Part{Block: "what it has got since", State: Failed, Reason: err.Error()})
		}
		return r
	}
	for _, part := range later.result.Parts {
		reported := func(o Part) bool { return o.Block == part.Block && (o.State == Failed || o.State == Skipped) }
		if part.State == ToFence && !slices.ContainsFunc(r.Parts, reported) {
			r.Parts = append(r.Parts, part)
		}
	}
	for _, b := range later.blocks {
		var original pool.Block
		if i := slices.IndexFunc(p.blocks, func(o pool.Block) bool { return o.Metadata.UID == b.Metadata.UID }); i >= 0 {
			original = p.blocks[i]
		}
		r.try(b, func() error {
			if err := p.checkDead(original, b); err != nil {
				return err
			}
			return p.fence(ctx, b)
		})
	}
	return r
}

// try fences the parts of the block that are to be fenced, unless the node lives, and notes what became of them.
func (r *Result) try(b pool.Block, fence func() error) {
	pending := func(part Part) bool { return part.Block == b.Metadata.Name && part.State == ToFence }
	if !slices.ContainsFunc(r.Parts, pending) {
		return
	}
	state, reason := Skipped, "it was not tried, because the node lives"
	if r.Alive == "" {
		switch err := fence(); {
		case err == nil:
			state, reason = Fenced, ""
		case errors.Is(err, errAlive):
			reason, r.Alive = err.Error(), err.Error()
		default:
			state, reason = Failed, err.Error()
		}
	}
	for i, part := range r.Parts {
		if pending(part) {
			r.Parts[i].State, r.Parts[i].Reason = state, reason
		}
	}
}

// fence fences the node in one block. The block may have changed since it was read, but not by the node.
func (p Plan) fence(ctx context.Context, original pool.Block) error {
	if err := original.Check(); err != nil {
		return err
	}
	current := original
	for range maxTries {
		next, changed := current.Fence(p.isTarget, p.Reason)
		if !changed {
			return nil // Somebody else has done it.
		}
		_, err := p.API.UpdateBlock(ctx, next)
		if !errors.Is(err, pool.ErrConflict) && !errors.Is(err, pool.ErrNotFound) {
			return err
		}
		if current, err = p.reread(ctx, original); err != nil {
			return err
		}
	}
	return fmt.Errorf("AddressBlock %s changes all the time: try again", original.Metadata.Name)
}

// reread reads a block that somebody has changed. The error matches errAlive if the node has. A block without holders is one of which
// nobody has anything any more.
func (p Plan) reread(ctx context.Context, original pool.Block) (pool.Block, error) {
	current, err := p.API.Block(ctx, original.Metadata.Name)
	if err != nil && !errors.Is(err, pool.ErrNotFound) {
		return current, err
	}
	if err != nil || current.Metadata.UID != original.Metadata.UID {
		current = pool.Block{} // Only who has an address can delete the block, or has been the last one to give it back.
	} else if err := current.Check(); err != nil {
		return current, err
	}
	return current, p.checkDead(original, current)
}

// checkDead fails if the node has done something with the block since original was read. The error matches errAlive.
func (p Plan) checkDead(original, current pool.Block) error {
	var parties []pool.Party
	for _, h := range slices.Concat(original.Status.Holders, current.Status.Holders) {
		parties = append(parties, h.Party)
	}
	for _, w := range current.Status.Want {
		parties = append(parties, w.Party)
	}
	for _, party := range parties {
		if sign := original.SignOfLife(current, party); sign != "" && p.isTarget(party) {
			return fmt.Errorf("%w: %s of AddressBlock %s while this command ran", errAlive, sign, cmp.Or(current.Metadata.Name, original.Metadata.Name))
		}
	}
	return nil
}
