package keeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/boot"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// Options are what a Keeper needs.
type Options struct {
	API pool.API
	// Node is the node's name in Kubernetes.
	Node string
	// Dir is the directory of the stores.
	Dir string
	Log *slog.Logger
	// Surplus is how long a node keeps more than it needs; 0 for DefaultSurplus.
	Surplus time.Duration
	// Settling is how long the keeper has seen the API before it takes anything new; 0 for 5 s.
	Settling time.Duration
	// Watch sends what changes in the API until the context ends, as kube.Pools.Watch does.
	Watch func(context.Context, chan<- pool.Change)
	// Open opens the store of a network; nil for lease.Open.
	Open func(network string) (*lease.Store, error)
	// Uptime returns the time since the boot, as the stores know it; nil for boot.Uptime.
	Uptime func() (time.Duration, error)
}

// DefaultSurplus is how long a node keeps more addresses than it needs.
const DefaultSurplus = 5 * time.Minute

// Keeper implements pool.Agent. Its methods may be called at any time.
type Keeper struct {
	Options
	// used is closed when a network of this node has a pool.
	used    chan struct{}
	use     sync.Once
	mu      sync.Mutex
	members map[string]*member
	uid     string
	layouts map[string]pool.Layout
	// writes are changes of the API that have succeeded.
	writes int
	// reported are the errors that the log has, by what was done.
	reported map[string]string
	// sequence is the greatest of each pool that was seen.
	sequence map[string]int64
	// since is since when the API answers, zero if it does not. last is when it answered last.
	since, last time.Time
	// made is when the keeper was made.
	made time.Time
	// attests guards the Lease that was read last, and the time since the boot when that read began.
	attests     sync.Mutex
	leaseRead   pool.NodeLease
	leaseReadAt time.Duration
	// missed says that the API was away since all blocks were read.
	missed bool
	// now has the time since the boot in it, which nobody can set.
	now func() time.Time
	// life is the context of what goes on after an ADD has given up. die ends it.
	life context.Context
	die  context.CancelFunc
}

var (
	_ pool.Agent    = (*Keeper)(nil)
	_ pool.Importer = (*Keeper)(nil)
)

// New returns a keeper of the node's stores.
func New(o Options) *Keeper {
	if o.Surplus == 0 {
		o.Surplus = DefaultSurplus
	}
	if o.Open == nil {
		o.Open = func(network string) (*lease.Store, error) { return lease.Open(o.Dir, network) }
	}
	if o.Uptime == nil {
		o.Uptime = boot.Uptime
	}
	if o.Settling == 0 {
		o.Settling = settling
	}
	k := &Keeper{
		Options: o, members: map[string]*member{}, layouts: map[string]pool.Layout{}, sequence: map[string]int64{}, reported: map[string]string{}, now: time.Now,
		used: make(chan struct{}),
	}
	k.made = k.now()
	k.life, k.die = context.WithCancel(context.Background())
	k.API = witness{o.API, k}
	return k
}

// SetClock gives the keeper another clock, for tests. The time since the boot is in it.
func (k *Keeper) SetClock(now func() time.Time) { k.now = now }

// member returns the keeper's part for a network.
func (k *Keeper) member(network string) (*member, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if m := k.members[network]; m != nil {
		return m, nil
	}
	store, err := k.Open(network)
	if err != nil {
		return nil, err
	}
	m := &member{
		Keeper: k, store: store, network: network, turn: make(chan struct{}, 1), news: make(chan struct{}),
		spare: map[string]time.Time{}, dry: map[string]time.Time{}, filled: map[string]time.Time{}, asked: map[string]ask{}, wanted: map[string]pool.BlockSpec{}, fenced: map[string]pool.BlockSpec{}, passed: map[passing]passed{}, told: map[string]pool.Layout{}, seen: map[string]string{}, waiting: map[string]int{},
	}
	k.members[network] = m
	return m, nil
}

// all returns the members of the networks that have a store.
func (k *Keeper) all() (all []*member, err error) {
	networks, err := lease.Networks(k.Dir)
	if err != nil {
		return nil, err
	}
	for _, network := range networks {
		m, wrong := k.member(network)
		if wrong != nil {
			err = errors.Join(err, wrong)
			continue
		}
		all = append(all, m)
	}
	return all, err
}

// networkOf returns the network whose store is at the path, empty for none.
func networkOf(path string) string {
	name := filepath.Base(path)
	network, is := strings.CutSuffix(name, ".db")
	if !is || attachment.ValidateName(network) != nil {
		return ""
	}
	return network
}

// nodeUID returns the UID of the node's object. It is empty if the API does not tell it: then only the name says whose a store is.
func (k *Keeper) nodeUID(ctx context.Context) string {
	k.mu.Lock()
	uid := k.uid
	k.mu.Unlock()
	if uid != "" {
		return uid
	}
	return k.readUID(ctx)
}

// readUID is nodeUID by a new read. Somebody can make the object anew while this agent runs: the stores learn that in this boot, or the next
// one would take them for those of another machine.
func (k *Keeper) readUID(ctx context.Context) string {
	n, err := k.API.Node(ctx, k.Node)
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil && n.UID != "" {
		k.uid = n.UID
	}
	return k.uid
}

// pool reads a pool. The error matches pool.ErrUnknown or pool.ErrUnavailable.
func (k *Keeper) pool(ctx context.Context, name string) (pool.Layout, error) {
	p, err := k.API.Pool(ctx, name)
	if errors.Is(err, pool.ErrNotThere) {
		return pool.Layout{}, unknown(name)
	}
	if err != nil {
		return pool.Layout{}, unavailable(err)
	}
	return k.learn(p)
}

// view is a pool as it is now, among the others.
type view struct {
	pool.Pool
	layout pool.Layout
	// shared are the blocks of other pools that share addresses with this one: nobody takes any of their addresses.
	shared []pool.Span
	// stopped says which older pool stops this one, empty for none.
	stopped string
	// closed says why nobody on this node takes anything of the pool, empty if somebody may. barred is the same for an import,
	// which does not mind a pause.
	closed, barred string
}

// view reads all pools, and then the blocks of those that share addresses with this one. Who has made a block, and then reads this view,
// knows for sure whether another pool has its addresses. Either that pool is older, and stops this one. Or who made the other block has
// not seen the addresses in this pool after that, and so the other block was there before this one.
func (k *Keeper) view(ctx context.Context, name string) (view, error) {
	all, err := k.API.Pools(ctx)
	if err != nil {
		return view{}, unavailable(err)
	}
	at := slices.IndexFunc(all, func(p pool.Pool) bool { return p.Metadata.Name == name })
	if at < 0 {
		return view{}, unknown(name)
	}
	p := all[at]
	l, err := k.learn(p)
	if err != nil {
		return view{}, err
	}
	shared, err := k.shared(ctx, p.Sharing(all))
	if err != nil {
		return view{}, err
	}
	stopped := p.Stopped(all)
	return view{p, l, shared, stopped, cmp.Or(k.closed(p), stopped), cmp.Or(k.barred(p), stopped)}, nil
}

// shared returns the blocks of the pools. One that recovers can have had a block anywhere.
func (k *Keeper) shared(ctx context.Context, pools []pool.Pool) (spans []pool.Span, err error) {
	for _, p := range pools {
		if p.Recovery() != nil {
			spans = append(spans, p.Extent()...)
			continue
		}
		blocks, err := k.API.Blocks(ctx, p.Metadata.Name)
		if err != nil {
			return nil, unavailable(err)
		}
		for _, b := range blocks {
			spans = append(spans, b.Span())
		}
	}
	return spans, nil
}

// allows says whether this node may take the block. Of one whose addresses are all excluded it would have nothing.
func (v view) allows(index int64) bool {
	span, ok := v.layout.Block(index)
	return ok && v.apart(span) && v.layout.Gives(span)
}

// apart says whether no other pool has given any address of the span.
func (v view) apart(s pool.Span) bool { return !slices.ContainsFunc(v.shared, s.Overlaps) }

// gives says whether this node may take an address of a block that exists.
func (v view) gives(a netip.Addr) bool {
	return !v.layout.Excluded(a) && v.apart(pool.Span{First: a, Last: a})
}

// inAnother is the error for addresses that view does not give.
func inAnother(what string) error {
	return unavailable(fmt.Errorf("%s is in a block of another AddressPool, too", what))
}

func unknown(name string) error {
	return fmt.Errorf("%w: there is no AddressPool %s: make it, or correct ipam.pool", pool.ErrUnknown, name)
}

// learn notes what the pool is like.
func (k *Keeper) learn(p pool.Pool) (pool.Layout, error) {
	l, err := p.Layout()
	if err != nil {
		return l, fmt.Errorf("%w: %w", pool.ErrUnknown, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.layouts[p.Metadata.Name] = l
	return l, nil
}

// layout returns what the pool was like when it was read last.
func (k *Keeper) layout(ctx context.Context, name string) (pool.Layout, error) {
	k.mu.Lock()
	l, known := k.layouts[name]
	k.mu.Unlock()
	if known {
		return l, nil
	}
	return k.pool(ctx, name)
}

// unavailable makes an error match pool.ErrUnavailable.
func unavailable(err error) error { return fmt.Errorf("%w: %w", pool.ErrUnavailable, err) }
