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
