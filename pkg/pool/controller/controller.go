package controller

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"

	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/pool"
)

const (
	// batchDelay is how long the controller waits after a change of a block: nodes take blocks in groups, and each status that it writes goes to all
	// of them.
	batchDelay = 5 * time.Second
	// resyncInterval is the time between two looks at all pools. Nobody tells the controller that an owner is gone.
	resyncInterval = 2 * time.Minute
	// firstWait and lastWait bound the time between two tries. It doubles each time.
	firstWait, lastWait = time.Second, time.Minute
	// silenceLimit is how long a recovery waits for nodes that have nothing of the pool by the API.
	silenceLimit = 5 * time.Minute
	// goneLimit is how long an owner is gone before its claim ends, as for a lease on a node (checkpoint/gc): it can be made anew.
	goneLimit = 10 * time.Minute
	// workers is how many pools are looked at at a time.
	workers = 4
)

// The reasons of events, besides those of the conditions.
const (
	NodeFenced   = "NodeFenced"
	NodeRemoved  = "NodeRemoved"
	PoolReleased = "PoolReleased"
)

// Config is what a Controller needs.
type Config struct {
	API pool.API
	Log *slog.Logger
	// Watch shows what the API has, until the context ends. It returns when it has read all, or when the context ends. It calls changed with the
	// name of each pool to look at, "" for all: soon, or at leisure.
	Watch func(ctx context.Context, changed func(name string, soon bool)) Cache
	// Event tells people what happens to a pool. It returns at once. nil for nothing.
	Event func(p pool.Pool, warning bool, reason, message string)
	// Owners says whether owners are gone; nil if nobody knows.
	Owners owner.Judge
}

// Cache is what the API had. It can be late: before anything is taken away, the API itself is asked.
type Cache interface {
	Pools() []pool.Pool
	// Pool returns a pool, and those that share addresses with it.
	Pool(name string) (p pool.Pool, overlapping []pool.Pool, found bool)
	Blocks(pool string) []pool.Block
	Claims(pool string) []pool.Claim
	Nodes() []pool.Node
}

// Controller looks at each pool when something of it has changed. Only one process does at a time: the caller sees to that, so that nothing is done
// twice. Nothing would break otherwise.
type Controller struct {
	Config
	clock func() time.Time

	mu   sync.Mutex
	last look
}

// New returns a controller of the API's pools.
func New(o Config) *Controller {
	c := &Controller{Config: o, clock: time.Now}
	c.setLeading(false)
	return c
}

// SetClock gives the controller another clock, for tests.
func (c *Controller) SetClock(clock func() time.Time) { c.clock = clock }

// tell tells people what happens to a pool.
func (c *Controller) tell(p pool.Pool, warning bool, reason, message string) {
	c.Log.Info(message, "pool", p.Metadata.Name, "reason", reason)
	if c.Event != nil {
		c.Event(p, warning, reason, message)
	}
}

// Run keeps the pools until ctx ends. The queue has each pool once, and "" for all.
func (c *Controller) Run(ctx context.Context) {
	c.setLeading(true)
	defer c.setLeading(false)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstWait, lastWait))
	defer context.AfterFunc(ctx, queue.ShutDown)()
	queue.Add("")
	cache := c.Watch(ctx, func(name string, soon bool) {
		if soon {
			queue.Add(name)
		} else {
			queue.AddAfter(name, batchDelay)
		}
	})
	var running sync.WaitGroup
	for range workers {
		running.Go(func() {
			for name, ended := queue.Get(); !ended; name, ended = queue.Get() {
				c.do(ctx, cache, queue, name)
				queue.Done(name)
			}
		})
	}
	running.Wait()
}

// do looks at a pool of the queue, and puts it back for the next time.
func (c *Controller) do(ctx context.Context, cache Cache, queue workqueue.TypedRateLimitingInterface[string], name string) {
	reconcile := c.Reconcile
	if name == "" {
		reconcile = func(ctx context.Context, cache Cache, _ string) error { return c.reconcileAll(ctx, cache, queue) }
	}
	if err := reconcile(ctx, cache, name); err != nil && ctx.Err() == nil {
		c.Log.Warn("look at the pools", "pool", name, "error", err)
		queue.AddRateLimited(name)
		return
	}
	queue.Forget(name)
	if p, _, exists := cache.Pool(name); exists && p.Status.Recovery != nil { // Nobody tells when its time is over.
		queue.AddAfter(name, silenceLimit)
	}
}

// reconcileAll puts all pools into the queue, and asks for the first one: the cache tells nobody whether the API answers.
func (c *Controller) reconcileAll(ctx context.Context, cache Cache, queue workqueue.TypedRateLimitingInterface[string]) (err error) {
	pools := cache.Pools()
	if len(pools) > 0 {
		_, err = c.API.Pool(ctx, pools[0].Metadata.Name)
	} else {
		_, err = c.API.Pools(ctx)
	}
	if err = pool.IgnoreChanged(err); err != nil {
		return err
	}
	c.noteSuccess()
	for _, p := range pools {
		queue.Add(p.Metadata.Name)
	}
	queue.AddAfter("", resyncInterval)
	return nil
}

// Reconcile does once what is due for a pool.
func (c *Controller) Reconcile(ctx context.Context, cache Cache, name string) (err error) {
	p, overlapping, exists := cache.Pool(name)
	if !exists {
		c.forget(name)
		return nil
	}
	blocks, nodes := cache.Blocks(name), cache.Nodes()
	if p.Metadata.DeletionTimestamp != "" { // A person believes the counts then, and removes the finalizer.
		if p, err = c.API.Pool(ctx, name); err != nil {
			return pool.IgnoreChanged(err)
		}
		if blocks, err = c.API.Blocks(ctx, name); err != nil {
			return err
		}
	}
	waits := c.unasserted(p, blocks, nodes)
	status := Status(p, overlapping, blocks, waits)
	c.record(observe(p, status, blocks, waits))
	if p.Metadata.DeletionTimestamp != "" && len(blocks) == 0 {
		return errors.Join(c.collectClaims(ctx, p, cache.Claims(name), nil), c.removeFinalizer(ctx, p))
	}
	claims := cache.Claims(name)
	err = errors.Join(c.reconcileBlocks(ctx, p, blocks, nodes, claims), c.collectClaims(ctx, p, claims, blocks))
	if p.Status.Recovery != nil && len(waits) == 0 {
		return errors.Join(err, c.endRecovery(ctx, p))
	}
	return errors.Join(err, c.writeStatus(ctx, p, status))
}

// endRecovery ends the recovery of a pool if all nodes have said what they have: those that the API itself has.
func (c *Controller) endRecovery(ctx context.Context, p pool.Pool) error {
	nodes, err := c.API.Nodes(ctx)
	if err != nil {
		return err
	}
	blocks, err := c.API.Blocks(ctx, p.Metadata.Name)
	if err != nil || len(nodes) == 0 || len(c.unasserted(p, blocks, nodes)) > 0 {
		return err
	}
	_, err = c.API.UpdatePoolStatus(ctx, p.WithRecovery(nil))
	return pool.IgnoreChanged(err)
}

// unasserted returns the nodes that the recovery of the pool waits for, none without a recovery. It waits without a limit for those that have
// something of the pool by its blocks, or know of a loss. The API can have lost all that another node has: that one tells
// of it within silenceLimit, or it has no agent, or has never had anything.
func (c *Controller) unasserted(p pool.Pool, blocks []pool.Block, nodes []pool.Node) []pool.Node {
	r, since := p.Status.Recovery, c.noteRecovery(p)
	if r == nil {
		return nil
	}
	waits := r.Unasserted(nodes)
	if c.clock().Sub(since) < silenceLimit {
		return waits
	}
	partners := map[string]bool{}
	for _, node := range r.Nodes {
		partners[node] = true
	}
	for _, b := range blocks {
		for _, h := range b.Status.Holders {
			partners[h.Node] = partners[h.Node] || h.Fenced == ""
		}
	}
	return slices.DeleteFunc(waits, func(n pool.Node) bool { return !partners[n.Name] })
}

// removeFinalizer lets a pool go of which nobody has anything. The blocks were read after the pool was being deleted, and nobody makes
// one since.
func (c *Controller) removeFinalizer(ctx context.Context, p pool.Pool) error {
	if !p.HasFinalizer() {
		return nil
	}
	next := p
	next.Metadata.Finalizers = slices.DeleteFunc(slices.Clone(p.Metadata.Finalizers), func(f string) bool { return f == pool.Finalizer })
	_, err := c.API.UpdatePool(ctx, next)
	if err == nil {
		c.tell(p, false, PoolReleased, "no node has any address of it: it goes")
	}
	return pool.IgnoreChanged(err)
}

// instant is the time of the controller's clock, as objects have it.
func (c *Controller) instant() string { return c.clock().UTC().Format(time.RFC3339) }
