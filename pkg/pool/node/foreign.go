package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/relink-cni/relink/pkg/pool"
)

// errForeignBlock says that the block is no block of the pool, and that this node has nothing of it. Somebody has made it by hand, and can have
// named this node as a holder. The node ignores the block, and everything else goes on.
var errForeignBlock = errors.New("is no block of the pool")

// checkBlock returns an error if the block is no block of the pool. before is this node's grant of it: a person can have made another pool of the
// same name since.
func (sc *storeController) checkBlock(ctx context.Context, b pool.Block, before pool.Grant) error {
	if err := b.Check(); err != nil {
		return foreignBlock(before, err)
	}
	l, err := sc.layout(ctx, b.Spec.Pool)
	if err == nil && l.UID != b.Spec.PoolUID { // It can be another pool by now.
		l, err = sc.readPool(ctx, b.Spec.Pool)
	}
	if errors.Is(err, pool.ErrUnknown) {
		return foreignBlock(before, err)
	}
	if err != nil {
		return err
	}
	if l.HasBlock(b) || !before.Empty() && before.Block == b.Metadata.UID {
		return nil
	}
	return foreignBlock(before, fmt.Errorf("AddressBlock %s has the addresses %s, and the pool has others there: delete it if no pod has any of them", b.Metadata.Name, b.Span()))
}

// errOverlaps says that a block shares addresses with another pool, and that this node has given none of it. The node ignores the block, and
// everything else goes on.
var errOverlaps = errors.New("another AddressPool has addresses of it")

// checkOverlap returns an error if this store has made the block, has no grant of it yet, and another pool has its addresses. Then the agent ended
// after it made the block, and before it looked at the other pools. The block stays: a pod may have an address of it.
func (sc *storeController) checkOverlap(ctx context.Context, b pool.Block, before pool.Grant, me pool.Party) error {
	h, found := b.Holder(me)
	if !found || h.Fenced != "" || h.Epoch != 1 || b.Spec.Node != sc.Node || !before.Empty() || before.Block == b.Metadata.UID || sc.comparedUID == b.Metadata.UID {
		return nil
	}
	switch v, err := sc.readView(ctx, b.Spec.Pool); {
	case errors.Is(err, pool.ErrUnknown):
		return foreignBlock(before, err)
	case err != nil:
		return err
	case v.overlapReason != "" || !v.unshared(b.Span()):
		return fmt.Errorf("AddressBlock %s: %w: delete it if no pod has any of it", b.Metadata.Name, errOverlaps)
	}
	return nil
}

// foreignBlock makes the error match errForeignBlock, if the node has nothing of the block.
func foreignBlock(before pool.Grant, err error) error {
	if before.Empty() {
		return fmt.Errorf("%w: it %w", err, errForeignBlock)
	}
	return err
}
