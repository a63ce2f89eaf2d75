package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

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
	// asks is what the store has asked for.
	asks map[askKey]ask
	// unmet are those who ask on a block for what this store cannot spare now, by the block's name. fenced are blocks from which this node was
	// fenced. Both change with the store's leases, and nobody else tells when.
	unmet  map[string][]demand
	fenced map[string]bool
	// seenSince is since when another party has asked without a change. passed counts the addresses of other blocks that it has got meanwhile.
	seenSince map[wantKey]time.Time
	passed    map[wantKey]int
	// handledVersions is the version of each block that this store has written, or in which it has answered all requests.
	handledVersions map[string]string
	// comparedUID is the UID of the block that this store has made last, and compared with the other pools since.
	comparedUID string
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
	sc.noteGranted(g)
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
func (s state) poolState(name string) lease.PoolState { return s.PoolState(name) }

// grant returns the store's part of the block, the zero Grant for none.
func (s state) grant(name string, index int64) pool.Grant { return s.PoolState(name).Grant(index) }

// grantedCount is how many addresses of the pool the store may give.
func grantedCount(p lease.PoolState) (n int) {
	for _, g := range p.Grants {
		n += p.Gives(g)
	}
	return n
}

// reconcileBlock reads the block, and brings the store and the API together. What others ask for on it can be free in other blocks: they get it
// there.
func (sc *storeController) reconcileBlock(ctx context.Context, name string, index int64) error {
	if err := sc.reconcileOne(ctx, name, index, 0); err != nil {
		return err
	}
	return sc.passOn(ctx, name)
}

// reconcileOne is reconcileBlock for this block only. surplus is how many of its addresses the node has too much.
func (sc *storeController) reconcileOne(ctx context.Context, name string, index int64, surplus int) error {
	return retry("AddressBlock "+pool.BlockName(name, index), func() error {
		b, err := sc.API.Block(ctx, pool.BlockName(name, index))
		if errors.Is(err, pool.ErrNotFound) {
			return sc.adoptDeletion(ctx, name, index)
		}
		if err == nil {
			_, err = sc.reconcile(ctx, b, surplus)
		}
		return err
	})
}

// reconcile does with a block that was just read, or that the API has just stored, what pool.Reconcile says, until there is nothing more to do. It
// returns the block as it is then. If the store has more than the API knows, reconcile declares the loss, and the grant stays. The error matches
// pool.ErrConflict or pool.ErrNotFound if the block must be read again.
func (sc *storeController) reconcile(ctx context.Context, b pool.Block, surplus int) (pool.Block, error) {
	for range maxTries {
		elsewhere := slices.DeleteFunc(sc.elsewhere(b.Spec.Pool, b.Metadata.Name), func(d demand) bool { return sc.isDead(ctx, d.Node) })
		o, err := sc.reconcileStore(ctx, b, elsewhere, surplus)
		switch {
		case err != nil:
			return b, err
		case !o.Write:
			return b, nil
		case o.Delete:
			failpoint.Here("before a block is deleted")
			if err := sc.API.DeleteBlock(ctx, b); err != nil {
				return b, err
			}
			failpoint.Here("block deleted")
			return pool.Block{}, sc.adoptDeletion(ctx, b.Spec.Pool, b.Spec.Index)
		}
		failpoint.Here("before a block is written")
		stored, err := sc.API.UpdateBlock(ctx, o.Block)
		if err != nil {
			return b, err
		}
		failpoint.Here("block written")
		for i, n := range o.Passed {
			sc.passed[elsewhere[i].key] += n
		}
		b, surplus = stored, 0
	}
	return b, fmt.Errorf("AddressBlock %s is never done", b.Metadata.Name)
}

// write asks the API to change the block, and reconciles what the API has made of it.
func (sc *storeController) write(ctx context.Context, b pool.Block) error {
	failpoint.Here("before a block is written")
	stored, err := sc.API.UpdateBlock(ctx, b)
	if err == nil {
		failpoint.Here("block written")
		_, err = sc.reconcile(ctx, stored, 0)
	}
	return err
}

// reconcileStore stores what follows from the block, and returns what is to be written.
func (sc *storeController) reconcileStore(ctx context.Context, b pool.Block, elsewhere []demand, surplus int) (o pool.Outcome, err error) {
	s, err := sc.state(ctx)
	if err != nil {
		return o, err
	}
	if !sc.concerns(s, b) {
		sc.forget(b.Metadata.Name)
		return o, nil
	}
	delete(sc.unmet, b.Metadata.Name)
	before := s.grant(b.Spec.Pool, b.Spec.Index)
	if err := errors.Join(sc.checkBlock(ctx, b, before), sc.checkOverlap(ctx, b, before, s.me)); err != nil {
		return o, err
	}
	layout, err := sc.layout(ctx, b.Spec.Pool)
	if err != nil {
		return o, err
	}
	local, err := sc.local(ctx, b, s)
	if err != nil {
		return o, err
	}
	local.Surplus = surplus
	for _, d := range elsewhere {
		local.Elsewhere = append(local.Elsewhere, d.Want)
	}
	o, err = sc.store.Reconcile(ctx, layout, b.Spec.Index, func(p lease.PoolState) (pool.Outcome, error) {
		local.Uses, local.Excluded = p.Uses(), p.Layout.Excluded
		local.Spare = freeCount(p, pool.GrantedChars) - sc.waitingCount(p.Name)
		local.Waits = func(w pool.Want) bool { return sc.waits(p, askKey{b.Metadata.Name, w.Address}) }
		return pool.Reconcile(b, p.Grant(b.Spec.Index), local)
	})
	if errors.Is(err, pool.ErrStale) || errors.Is(err, pool.ErrReplaced) {
		return o, sc.declareLoss(ctx, b.Spec.Pool, err)
	}
	if err != nil {
		return o, err
	}
	return o, sc.noteOutcome(ctx, b, before, o, s.me)
}

// noteOutcome notes what is left to do with a block.
func (sc *storeController) noteOutcome(ctx context.Context, b pool.Block, before pool.Grant, o pool.Outcome, me pool.Party) (err error) {
	name := b.Metadata.Name
	if o.Grant.Granted() > before.Granted() {
		sc.notifyWaiting()
	}
	key := askKey{block: name}
	if _, asked := sc.asks[key]; !asked && slices.ContainsFunc(o.Block.Status.Want, func(w pool.Want) bool { return w.SameParty(me) && !w.Address.IsValid() }) {
		sc.asks[key] = ask{} // An earlier process of this node has asked. Nobody else withdraws it.
	}
	delete(sc.unmet, name)
	for _, w := range o.Unmet {
		sc.unmet[name] = append(sc.unmet[name], demand{w, wantKeyOf(b, w)})
	}
	switch fenced := b.IsFenced(me); {
	case !fenced || o.Write:
		delete(sc.fenced, name)
	case !sc.fenced[name]:
		sc.fenced[name] = true
		if h, _ := b.Holder(me); len(o.Fenced) > 0 {
			sc.Log.Warn("this node was declared dead, and pods still have addresses that others may have by now", "block", name, "addresses", joined(o.Fenced), "why", h.Fenced)
		}
	}
	if !o.Write {
		sc.handledVersions[name] = b.Metadata.ResourceVersion
	}
	for _, w := range o.Disowned {
		err = errors.Join(err, sc.dropClaim(ctx, b.Spec.Pool, w, me))
	}
	return err
}

// local is what this node knows of itself when it looks at the block, without its leases.
func (sc *storeController) local(ctx context.Context, b pool.Block, s state) (pool.Local, error) {
	l := pool.Local{Me: s.me, Boot: s.Boot, Confirmed: s.Confirmed, Expired: sc.expired(ctx, b)}
	fenced := b.IsFenced(s.me)
	switch {
	case !fenced && sc.node().LeaveReason() == "", fenced && len(heldAddresses(s.poolState(b.Spec.Pool), b.Span())) > 0:
		return l, nil
	case fenced:
		if err := sc.checkNotDead(ctx); err != nil {
			sc.fenced[b.Metadata.Name] = true
			return l, err // It would be fenced from all that it takes.
		}
	}
	claims, err := sc.API.Claims(ctx, b.Spec.Pool)
	for _, c := range claims {
		if b.Offset(c.Status.Address) >= 0 {
			l.Claimed = append(l.Claimed, c.Status.Address)
		}
	}
	l.Leaves, l.MayLeave = !fenced, fenced
	return l, err
}

// forget drops what is known of a block that does not concern the store any more.
func (sc *storeController) forget(block string) {
	delete(sc.handledVersions, block)
	delete(sc.fenced, block)
	delete(sc.unmet, block)
	maps.DeleteFunc(sc.seenSince, func(k wantKey, _ time.Time) bool { return k.block == block })
	maps.DeleteFunc(sc.passed, func(k wantKey, _ int) bool { return k.block == block })
}

// adoptDeletion is reconcile for a block that the API itself does not have.
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
	sc.forget(g.Name())
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

// heldAddresses returns the addresses of the span that pods have here.
func heldAddresses(p lease.PoolState, span pool.Span) (addresses []netip.Addr) {
	for a, l := range p.Leased {
		if span.Contains(a) && l.State == lease.Held {
			addresses = append(addresses, a)
		}
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return addresses
}

// joined is the addresses as people read them.
func joined(addresses []netip.Addr) string {
	var texts []string
	for _, a := range addresses {
		texts = append(texts, a.String())
	}
	return strings.Join(texts, " ")
}
