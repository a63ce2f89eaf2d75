package keeper

import (
	"context"
	"errors"
	"fmt"

	"github.com/relink-cni/relink/pkg/pool"
)

// errMadeUp says that a block is not one that the pool is cut into, and that this node has nothing of it. Somebody has made it up, and
// can have made this node one of its holders: nothing of it counts, and everything else goes on.
var errMadeUp = errors.New("is no block of the pool")

// fits returns an error if the block is not one that the pool is cut into. was is what this node has of it: a person can have made
// another pool of the same name meanwhile.
func (m *member) fits(ctx context.Context, b pool.Block, was pool.Grant) error {
	if err := b.Check(); err != nil {
		return madeUp(was, err)
	}
	l, err := m.layout(ctx, b.Spec.Pool)
	if err == nil && l.UID != b.Spec.PoolUID { // It can be another pool by now.
		l, err = m.pool(ctx, b.Spec.Pool)
	}
	if errors.Is(err, pool.ErrUnknown) {
		return errors.Join(err, madeUp(was, err))
	}
	if err != nil {
		return err
	}
	if isOf(l, b) || !was.Empty() && was.Block == b.Metadata.UID {
		return nil
	}
	return madeUp(was, fmt.Errorf("AddressBlock %s has the addresses %s, and the pool has others there: delete it if no pod has any of them", b.Metadata.Name, b.Span()))
}

// errOverlaps says that a block shares addresses with another pool, and that this node has given none of it. Nothing of it counts, and
// everything else goes on.
var errOverlaps = errors.New("another AddressPool has addresses of it")

// compare returns an error if the store has made a block, has not noted it so far, and another pool has its addresses: the agent has ended
// after it made the block, and before it looked at the other pools. The block stays: it is not known for sure that no pod has any of it.
func (m *member) compare(ctx context.Context, b pool.Block, was pool.Grant, me pool.Party) error {
	h, is := b.Holder(me)
	if !is || h.Fenced != "" || h.Epoch != 1 || b.Spec.Node != m.Node || !was.Empty() || was.Block == b.Metadata.UID || m.compared == b.Metadata.UID {
		return nil
	}
	switch v, err := m.view(ctx, b.Spec.Pool); {
	case errors.Is(err, pool.ErrUnknown):
		return madeUp(was, err)
	case err != nil:
		return err
	case v.stopped != "" || !v.apart(b.Span()):
		return unavailable(fmt.Errorf("AddressBlock %s: %w: delete it if no pod has any of it", b.Metadata.Name, errOverlaps))
	}
	return nil
}

// isOf says whether the pool is cut into blocks of which this is one.
func isOf(l pool.Layout, b pool.Block) bool {
	span, ok := l.Block(b.Spec.Index)
	return ok && span == b.Span()
}

// madeUp makes the error match errMadeUp, if the node has nothing of the block.
func madeUp(was pool.Grant, err error) error {
	if was.Empty() {
		err = fmt.Errorf("%w: it %w", err, errMadeUp)
	}
	return unavailable(err)
}
