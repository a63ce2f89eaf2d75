package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// storeController works for one store of the node. It does one thing at a time: the holder of the turn reads a block, and uses that read once.
type storeController struct {
	*Controller
	store   *lease.Store
	network string
	turn    chan struct{}
	// arrivals is closed and made anew when the store has got addresses. waiting is how many ADDs wait for an address of a pool.
	// Controller.mu guards both.
	arrivals chan struct{}
	waiting  map[string]int

	// Only the holder of the turn uses the rest.

	// surplusSince is since when the store has more of a pool than it needs.
	surplusSince map[string]time.Time
	// exhaustedAt is when no block of the pool was left.
	exhaustedAt map[string]time.Time
	// filledAt is when somebody last looked for addresses of the pool.
	filledAt map[string]time.Time
	// requestedBlocks are blocks of which other parties want something.
	requestedBlocks map[string]pool.BlockSpec
	// handedOver counts the addresses of other blocks that a party has got since it asked.
	handedOver map[handOverKey]int
	// requested is what the store has asked for.
	requested map[string]addressRequest
	// fenced are blocks from which this node was fenced, and of which pods still have addresses.
	fenced map[string]pool.BlockSpec
	// handledVersions is the version of each block that this store has written, or in which it has answered all requests.
	handledVersions map[string]string
	// comparedUID is the UID of the block that this store has made last, and compared with the other pools since.
	comparedUID string
}

// addressRequest is what the store has asked for on a block.
type addressRequest struct {
	block string
	want  pool.Want
	// owner is who gets the address, nobody for any address.
	owner       attachment.Owner
	requestedAt time.Time
}

// key is the key of storeController.requested.
func (a addressRequest) key() string {
	if !a.want.Address.IsValid() {
		return a.block
	}
	return a.block + " " + a.want.Address.String()
}

// takeTurn waits for the turn. release gives it back.
func (sc *storeController) takeTurn(ctx context.Context) (release func(), err error) {
	select {
	case sc.turn <- struct{}{}:
		return func() { <-sc.turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("the agent is busy with network %s: %w", sc.network, ctx.Err())
	}
}

// state is the store's part of the pools.
type state struct {
	lease.Granted
	me pool.Party
}

// state reads the store.
func (sc *storeController) state(ctx context.Context) (state, error) {
	g, err := sc.store.Granted(ctx)
	if err != nil && !errors.Is(err, lease.ErrForeign) {
		return state{}, err
	}
	uid := sc.nodeUID(ctx)
	if err != nil || g.ID != "" && (g.Node != sc.Node || uid != "" && g.NodeUID != uid) {
		// What is another node's neither takes part in the pools, nor raises the alarm. If the node has its name back, all is well.
		if err = sc.store.SetNode(ctx, sc.Node, uid); err != nil {
			return state{}, err
		}
		if g, err = sc.store.Granted(ctx); err != nil {
			return state{}, err
		}
	}
	return state{g, pool.Party{Node: sc.Node, NodeUID: uid, Network: sc.network, Store: g.ID}}, nil
}

// readyState is state for a store that gives addresses of the pool. It makes the store if there is none, and reads the API once in each boot.
func (sc *storeController) readyState(ctx context.Context, name string) (state, error) {
	s, err := sc.state(ctx)
	if errors.Is(err, lease.ErrNotLeased) || err == nil && s.ID == "" {
		if err := sc.store.SetPools(ctx, []string{name}); err != nil {
			return s, err
		}
		s, err = sc.state(ctx)
	}
	if err != nil || s.Confirmed {
		return s, err
	}
	if err := sc.sync(ctx); err != nil {
		return s, err
	}
	return sc.state(ctx)
}

// poolState returns what the store has of the pool.
func (s state) poolState(name string) lease.PoolState {
	for _, p := range s.Pools {
		if p.Name == name {
			return p
		}
	}
	return lease.PoolState{Name: name}
}

// confirm notes in the block that this store still has its part in this boot. A store does so in each block until it is confirmed.
func (s state) confirm(b pool.Block) (_ pool.Block, changed bool) {
	if s.Confirmed {
		return b, false
	}
	return b.Confirm(s.me, s.Boot)
}

// grant returns the store's part of the block, the zero Grant for none.
func (s state) grant(name string, index int64) pool.Grant {
	p := s.poolState(name)
	if i := slices.IndexFunc(p.Grants, func(g pool.Grant) bool { return g.Index == index }); i >= 0 {
		return p.Grants[i]
	}
	return pool.Grant{Pool: name, Index: index}
}

// grantedCount is how many addresses of the pool the store may give.
func grantedCount(p lease.PoolState) (n int) {
	for _, g := range p.Grants {
		n += p.Gives(g)
	}
	return n
}

// reconcileBlock reads the block, and brings the store and the API together.
func (sc *storeController) reconcileBlock(ctx context.Context, name string, index int64) error {
	return retry("AddressBlock "+pool.BlockName(name, index), func() error {
		b, err := sc.API.Block(ctx, pool.BlockName(name, index))
		if errors.Is(err, pool.ErrNotFound) {
			return sc.adoptDeletion(ctx, name, index)
		}
		if err != nil {
			return err
		}
		return sc.reconcileRead(ctx, b)
	})
}

// reconcileRead brings the store and a block together that was just read. The error matches pool.ErrConflict or pool.ErrNotFound if
// the block must be read again.
func (sc *storeController) reconcileRead(ctx context.Context, b pool.Block) error {
	s, err := sc.state(ctx)
	if err != nil {
		return err
	}
	if !sc.concerns(s, b) {
		delete(sc.fenced, b.Metadata.Name)
		delete(sc.requestedBlocks, b.Metadata.Name)
		return nil
	}
	s, g, err := sc.adopt(ctx, b)
	if err != nil {
		return err
	}
	if h, found := b.Holder(s.me); found && h.Fenced != "" {
		return sc.unfence(ctx, b, s)
	}
	delete(sc.fenced, b.Metadata.Name)
	b, updated := s.confirm(b)
	if g, err = sc.handOver(ctx, b, s, g); err != nil {
		return err
	}
	next, changed, remove := g.ReleaseMarked(b, s.me)
	switch {
	case !changed && !updated:
		sc.handledVersions[b.Metadata.Name] = b.Metadata.ResourceVersion
		return nil
	case remove:
		return sc.deleteBlock(ctx, b)
	}
	return sc.writeBlock(ctx, next)
}

// writeBlock asks the API to change the block, and adopts what the API has made of it.
func (sc *storeController) writeBlock(ctx context.Context, b pool.Block) error {
	failpoint.Here("before a block is written")
	stored, err := sc.API.UpdateBlock(ctx, b)
	if err != nil {
		return err
	}
	failpoint.Here("block written")
	s, _, err := sc.adopt(ctx, stored)
	if err == nil && !slices.ContainsFunc(stored.Spec.Want, func(w pool.Want) bool { return !w.SameParty(s.me) }) {
		sc.handledVersions[stored.Metadata.Name] = stored.Metadata.ResourceVersion
	}
	return err
}

// deleteBlock deletes a block of which nobody has anything.
func (sc *storeController) deleteBlock(ctx context.Context, b pool.Block) error {
	failpoint.Here("before a block is deleted")
	if err := sc.API.DeleteBlock(ctx, b); err != nil {
		return err
	}
	failpoint.Here("block deleted")
	return sc.adoptDeletion(ctx, b.Spec.Pool, b.Spec.Index)
}

// adopt brings the grant in the store to what the API has just answered. If the store has more than the API knows, adopt declares the loss,
// and the grant stays.
func (sc *storeController) adopt(ctx context.Context, b pool.Block) (state, pool.Grant, error) {
	s, err := sc.state(ctx)
	if err != nil {
		return s, pool.Grant{}, err
	}
	before := s.grant(b.Spec.Pool, b.Spec.Index)
	if err := sc.checkBlock(ctx, b, before); err != nil {
		return s, pool.Grant{}, err
	}
	if err := sc.checkOverlap(ctx, b, before, s.me); err != nil {
		return s, pool.Grant{}, err
	}
	g, lost, err := before.Adopt(b, s.me)
	if h, found := b.Holder(s.me); len(lost) > 0 && (!found || h.Fenced == "") {
		err = fmt.Errorf("AddressBlock %s: %w: this node has %d addresses that are not its own there", g.Name(), pool.ErrStale, len(lost))
	}
	if err != nil {
		return s, before, sc.declareLoss(ctx, b.Spec.Pool, err)
	}
	return s, g, sc.storeGrant(ctx, before, g)
}

// adoptDeletion is adopt for a block that the API itself does not have.
func (sc *storeController) adoptDeletion(ctx context.Context, name string, index int64) error {
	s, err := sc.state(ctx)
	if err != nil {
		return err
	}
	before := s.grant(name, index)
	g, lost := before.BlockDeleted()
	if len(lost) > 0 {
		return sc.declareLoss(ctx, name, fmt.Errorf("AddressBlock %s: %w: it does not exist, and this node has %d addresses of it", g.Name(), pool.ErrStale, len(lost)))
	}
	delete(sc.handledVersions, g.Name())
	delete(sc.fenced, g.Name())
	return sc.storeGrant(ctx, before, g)
}

// storeGrant stores a grant that has changed.
func (sc *storeController) storeGrant(ctx context.Context, before, g pool.Grant) error {
	if before == g {
		return nil
	}
	l, err := sc.layout(ctx, g.Pool)
	if err != nil {
		return err
	}
	failpoint.Here("before a grant is stored")
	if err := sc.store.PutGrants(ctx, l, []pool.Grant{g}); err != nil {
		return err
	}
	failpoint.Here("grant stored")
	if g.Granted() > before.Granted() {
		sc.notifyWaiting()
	}
	return nil
}

// notifyWaiting wakes all that wait for addresses.
func (sc *storeController) notifyWaiting() {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	close(sc.arrivals)
	sc.arrivals = make(chan struct{})
}
