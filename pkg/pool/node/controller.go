package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// Config are what a Controller needs.
type Config struct {
	API pool.API
	// Node is the node's name in Kubernetes.
	Node string
	// Dir is the directory of the stores.
	Dir string
	Log *slog.Logger
	// Surplus is how long a node keeps more than it needs; 0 for DefaultSurplus.
	Surplus time.Duration
	// Settling is how long the controller has seen the API before it takes anything new; 0 for 5 s.
	Settling time.Duration
	// Watch tells the handler what changes in the API until the context ends, as kube.Pools.Watch does.
	Watch func(context.Context, pool.Handler)
	// Open opens the store of a network; nil for lease.Open.
	Open func(network string) (*lease.Store, error)
}

// DefaultSurplus is how long a node keeps more addresses than it needs.
const DefaultSurplus = 5 * time.Minute

// Controller implements pool.Agent. Its methods may be called at any time.
type Controller struct {
	Config
	// poolsUsed is closed when a network of this node has a pool.
	poolsUsed chan struct{}
	usedOnce  sync.Once
	mu        sync.Mutex
	stores    map[string]*storeController
	// self is what the API last said of this node.
	self    pool.Node
	layouts map[string]pool.Layout
	// known is what was last read of each store, and versions are those of the blocks that the watch shows.
	known    map[string]knownStore
	versions map[string]string
	// loggedErrors are the errors that the log has, by what was done.
	loggedErrors map[string]string
	// sequence is the greatest Status.Sequence that this controller has seen of each pool.
	sequence map[string]int64
	// reachableSince is since when the API answers, zero if it does not. lastAnswer is when it answered last.
	reachableSince, lastAnswer time.Time
	// startedAt is when the controller was made.
	startedAt time.Time
	// missed says that the API was away since all blocks were read, or that the node has changed.
	missed bool
	// clock has the time since the boot in it, which nobody can set.
	clock func() time.Time
	// background is the context of what goes on after an ADD has given up. cancelBackground ends it.
	background       context.Context
	cancelBackground context.CancelFunc
}

var (
	_ pool.Agent    = (*Controller)(nil)
	_ pool.Importer = (*Controller)(nil)
)

// New returns a controller of the node's stores.
func New(o Config) *Controller {
	o.Surplus, o.Settling = cmp.Or(o.Surplus, DefaultSurplus), cmp.Or(o.Settling, defaultSettling)
	if o.Open == nil {
		o.Open = func(network string) (*lease.Store, error) { return lease.Open(o.Dir, network) }
	}
	nc := &Controller{
		Config: o, stores: map[string]*storeController{}, layouts: map[string]pool.Layout{}, sequence: map[string]int64{}, loggedErrors: map[string]string{}, known: map[string]knownStore{}, versions: map[string]string{}, clock: time.Now,
		poolsUsed: make(chan struct{}),
	}
	nc.startedAt = nc.clock()
	nc.background, nc.cancelBackground = context.WithCancel(context.Background())
	nc.API = apiHealth{o.API, nc}
	return nc
}

// SetClock gives the controller another clock, for tests. The time since the boot is in it.
func (nc *Controller) SetClock(clock func() time.Time) { nc.clock = clock }

// storeController returns the controller's part for a network.
func (nc *Controller) storeController(network string) (*storeController, error) {
	nc.mu.Lock()
	defer nc.mu.Unlock()
	if sc := nc.stores[network]; sc != nil {
		return sc, nil
	}
	store, err := nc.Open(network)
	if err != nil {
		return nil, err
	}
	sc := &storeController{
		Controller: nc, store: store, network: network, turn: make(chan struct{}, 1), arrivals: make(chan struct{}),
		surplusSince: map[string]time.Time{}, exhaustedAt: map[string]time.Time{}, filledAt: map[string]time.Time{}, asks: map[askKey]ask{}, unmet: map[string][]demand{}, fenced: map[string]bool{}, seenSince: map[wantKey]time.Time{}, passed: map[wantKey]int{}, handledVersions: map[string]string{}, waiting: map[string]int{},
	}
	nc.stores[network] = sc
	return sc, nil
}

// noteUse notes that a network of this node has a pool.
func (nc *Controller) noteUse() { nc.usedOnce.Do(func() { close(nc.poolsUsed) }) }

// serve does for a network's store what an ADD or a person asks for. It takes the limit at most, and its errors match pool.ErrUnknown or
// pool.ErrUnavailable.
func (nc *Controller) serve(ctx context.Context, network string, limit time.Duration, f func(context.Context, *storeController) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	sc, err := nc.storeController(network)
	if err != nil {
		return unavailable(err)
	}
	return unavailable(f(ctx, sc))
}

// allStores returns the parts for the networks that have a store.
func (nc *Controller) allStores() (stores []*storeController, err error) {
	networks, err := lease.Networks(nc.Dir)
	if err != nil {
		return nil, err
	}
	for _, network := range networks {
		sc, wrong := nc.storeController(network)
		if wrong != nil {
			err = errors.Join(err, wrong)
			continue
		}
		stores = append(stores, sc)
	}
	return stores, err
}

// eachStore calls f for each store, when it is the store's turn. One store's failure does not stop the others.
func (nc *Controller) eachStore(ctx context.Context, f func(*storeController, context.Context) error) error {
	stores, err := nc.allStores()
	for _, sc := range stores {
		err = errors.Join(err, sc.withTurn(ctx, func(ctx context.Context) error { return f(sc, ctx) }))
	}
	return err
}

// nodeUID returns the UID of the node's object. It is empty if the API does not tell it: then only the name says whose a store is.
func (nc *Controller) nodeUID(ctx context.Context) string {
	uid := nc.node().UID
	if uid == "" {
		n, _ := nc.readNode(ctx)
		uid = n.UID
	}
	return uid
}

// readNode reads the node's object again. Somebody can make it anew while this agent runs: the stores learn its UID in this boot, or the next
// one would take them for those of another machine.
func (nc *Controller) readNode(ctx context.Context) (pool.Node, error) {
	n, err := nc.API.Node(ctx, nc.Node)
	if errors.Is(err, pool.ErrNotFound) {
		n, err = pool.Node{Name: nc.Node, Deleted: true}, nil
	}
	if err == nil {
		nc.noteNode(n)
	}
	return nc.node(), err
}

// node returns what the API last said of this node, the zero Node before that.
func (nc *Controller) node() pool.Node {
	nc.mu.Lock()
	defer nc.mu.Unlock()
	return nc.self
}

// noteNode notes what the API says of this node. Other pools can be for it then, or none.
func (nc *Controller) noteNode(n pool.Node) {
	nc.mu.Lock()
	defer nc.mu.Unlock()
	n.UID = cmp.Or(n.UID, nc.self.UID)
	nc.missed = nc.missed || nc.self.Name != "" && (n.Deleted != nc.self.Deleted || !maps.Equal(n.Labels, nc.self.Labels))
	nc.self = n
}

// pool reads a pool. The error matches pool.ErrUnknown if there is none.
func (nc *Controller) pool(ctx context.Context, name string) (pool.Pool, error) {
	p, err := nc.API.Pool(ctx, name)
	if errors.Is(err, pool.ErrNotFound) {
		err = unknownPool(name)
	}
	return p, err
}

// readPool reads what a pool is like. The error matches pool.ErrUnknown if there is none, or if its spec is wrong.
func (nc *Controller) readPool(ctx context.Context, name string) (pool.Layout, error) {
	p, err := nc.pool(ctx, name)
	if err != nil {
		return pool.Layout{}, err
	}
	return nc.cacheLayout(p)
}

// updatePool makes a change of the pool by that request, if there is something to change.
func (nc *Controller) updatePool(ctx context.Context, name string, write func(context.Context, pool.Pool) (pool.Pool, error), change func(pool.Pool) (_ pool.Pool, changed bool)) error {
	return retry("AddressPool "+name, func() error {
		p, err := nc.pool(ctx, name)
		if err != nil {
			return err
		}
		if p, changed := change(p); changed {
			_, err = write(ctx, p)
		}
		return err
	})
}

// view is a pool as it is now, among the others.
type view struct {
	pool.Pool
	layout pool.Layout
	// shared are the blocks of other pools that share addresses with this one: nobody takes any of their addresses.
	shared []pool.Span
	// overlapReason says which older pool stops this one, empty for none.
	overlapReason string
	// reason says why nobody on this node takes anything of the pool, empty if somebody may. A pause is not in it. mismatch is the reason if
	// the pool is not for this node.
	reason, mismatch string
}

// readView reads all pools, and then the blocks of those that share addresses with this one. A controller that makes a block, and then reads this
// view, knows for sure whether another pool has its addresses. Either that pool is older, and stops this one. Or the maker of the other block
// has not seen the addresses in this pool after that, and so the other block was there before this one.
func (nc *Controller) readView(ctx context.Context, name string) (view, error) {
	pools, err := nc.API.Pools(ctx)
	if err != nil {
		return view{}, err
	}
	index := slices.IndexFunc(pools, func(p pool.Pool) bool { return p.Metadata.Name == name })
	if index < 0 {
		return view{}, unknownPool(name)
	}
	p := pools[index]
	l, err := nc.cacheLayout(p)
	if err != nil {
		return view{}, err
	}
	shared, err := nc.sharedSpans(ctx, p.Overlapping(pools))
	if err != nil {
		return view{}, err
	}
	mismatch, err := nc.mismatch(ctx, p)
	overlapReason := p.OverlapReason(pools)
	return view{p, l, shared, overlapReason, cmp.Or(nc.unsafeReason(p), overlapReason, mismatch), mismatch}, err
}

// closedReason says why nobody on this node takes anything of the pool, empty if somebody may. An import does not mind a pause.
func (v view) closedReason(importing bool) string {
	if v.Spec.Paused && v.Metadata.DeletionTimestamp == "" && !importing {
		return "spec.paused is true"
	}
	return v.reason
}

// sharedSpans returns the blocks of the pools. A pool that recovers can have had a block anywhere.
func (nc *Controller) sharedSpans(ctx context.Context, pools []pool.Pool) (spans []pool.Span, err error) {
	for _, p := range pools {
		if p.Status.Recovery != nil {
			spans = append(spans, p.Extent()...)
			continue
		}
		blocks, err := nc.API.Blocks(ctx, p.Metadata.Name)
		if err != nil {
			return nil, err
		}
		for _, b := range blocks {
			spans = append(spans, b.Span())
		}
	}
	return spans, nil
}

// allowsBlock says whether this node may take the block. It takes no block whose addresses are all excluded.
func (v view) allowsBlock(index int64) bool {
	span, ok := v.layout.Block(index)
	return ok && v.unshared(span) && v.layout.AnyAssignable(span)
}

// unshared says whether no other pool has given any address of the span.
func (v view) unshared(s pool.Span) bool { return !slices.ContainsFunc(v.shared, s.Overlaps) }

// allowsAddress says whether this node may take an address of a block that exists.
func (v view) allowsAddress(a netip.Addr) bool {
	return !v.layout.Excluded(a) && v.unshared(pool.Span{First: a, Last: a})
}

// sharedError is the error for addresses that view does not give.
func sharedError(subject string) error {
	return fmt.Errorf("%s is in a block of another AddressPool, too", subject)
}

func unknownPool(name string) error {
	return fmt.Errorf("%w: there is no AddressPool %s: make it, or correct ipam.pool", pool.ErrUnknown, name)
}

// cacheLayout notes what the pool is like.
func (nc *Controller) cacheLayout(p pool.Pool) (pool.Layout, error) {
	l, err := nc.layoutOf(p)
	if err != nil {
		return l, fmt.Errorf("%w: %w", pool.ErrUnknown, err)
	}
	nc.mu.Lock()
	defer nc.mu.Unlock()
	nc.layouts[p.Metadata.Name] = l
	return l, nil
}

// layout returns what the pool was like when it was read last.
func (nc *Controller) layout(ctx context.Context, name string) (pool.Layout, error) {
	nc.mu.Lock()
	l, ok := nc.layouts[name]
	nc.mu.Unlock()
	if ok {
		return l, nil
	}
	return nc.readPool(ctx, name)
}
