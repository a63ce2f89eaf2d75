package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
)

// reconcileInterval is the time between two looks, and so between two changes of a pool's status.
const reconcileInterval = 30 * time.Second

// Controller looks at all pools again and again. Only one does at a time: the caller sees to that, so that nothing is done twice.
// Nothing would break otherwise.
type Controller struct {
	api   pool.API
	log   *slog.Logger
	clock func() time.Time
	last  atomic.Pointer[look]
}

// New returns a controller of the API's pools.
func New(api pool.API, log *slog.Logger) *Controller {
	c := &Controller{api: api, log: log, clock: time.Now}
	c.setLeading(false)
	return c
}

// SetClock gives the controller another clock, for tests.
func (c *Controller) SetClock(clock func() time.Time) { c.clock = clock }

// Run looks until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	c.setLeading(true)
	defer c.setLeading(false)
	tick := time.NewTicker(reconcileInterval)
	defer tick.Stop()
	for {
		if err := c.Reconcile(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("look at the pools", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Reconcile does once what is due for all pools. One pool's failure does not stop the others.
func (c *Controller) Reconcile(ctx context.Context) error {
	pools, err := c.api.Pools(ctx)
	if err != nil {
		return err
	}
	if len(pools) == 0 {
		c.record(nil)
		return nil
	}
	nodes, err := c.api.Nodes(ctx)
	if err != nil {
		return err
	}
	var found []Observation
	var errs []error
	for _, p := range pools {
		blocks, err := c.api.Blocks(ctx, p.Metadata.Name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		observation := observe(p, pools, blocks, nodes)
		found = append(found, observation)
		errs = append(errs, c.reconcilePool(ctx, p, observation.Status, blocks, nodes))
	}
	c.record(found)
	return errors.Join(errs...)
}

// reconcilePool does what is due for one pool. status is what the blocks come to.
func (c *Controller) reconcilePool(ctx context.Context, p pool.Pool, status pool.Status, blocks []pool.Block, nodes []pool.Node) error {
	if p.Metadata.DeletionTimestamp != "" && len(blocks) == 0 {
		return c.removeFinalizer(ctx, p)
	}
	var errs []error
	for _, b := range blocks {
		errs = append(errs, c.fenceTainted(ctx, b, nodes))
	}
	if r := p.Recovery(); r != nil && allAsserted(*r, nodes) {
		c.log.Info("all nodes have said what they have: the pool gives again", "pool", p.Metadata.Name)
		_, err := c.api.UpdatePool(ctx, p.WithRecovery(nil))
		return errors.Join(append(errs, pool.IgnoreChanged(err))...)
	}
	status.Sequence, status.Updated = p.Status.Sequence, p.Status.Updated
	if status != p.Status {
		status.Sequence++
		status.Updated = c.clock().UTC().Format(time.RFC3339)
		p.Status = status
		_, err := c.api.UpdatePoolStatus(ctx, p)
		errs = append(errs, pool.IgnoreChanged(err))
	}
	return errors.Join(errs...)
}

// removeFinalizer lets a pool go of which nobody has anything. The blocks were read after the pool was being deleted, and nobody makes
// one since.
func (c *Controller) removeFinalizer(ctx context.Context, p pool.Pool) error {
	if !p.HasFinalizer() {
		return nil
	}
	p.Metadata.Finalizers = slices.DeleteFunc(slices.Clone(p.Metadata.Finalizers), func(f string) bool { return f == pool.Finalizer })
	_, err := c.api.UpdatePool(ctx, p)
	return pool.IgnoreChanged(err)
}

// fenceTainted notes in a block which of its holders are on nodes that a person has declared dead. The taint is read again after the
// block: a node that has come back has changed its blocks since, and the API refuses the fence.
func (c *Controller) fenceTainted(ctx context.Context, b pool.Block, nodes []pool.Node) error {
	dead := func(p pool.Party) bool {
		return slices.ContainsFunc(nodes, func(n pool.Node) bool { return n.OutOfService && n.Name == p.Node })
	}
	reason := fmt.Sprintf("node has the taint node.kubernetes.io/out-of-service, seen %s", c.clock().UTC().Format(time.RFC3339))
	next, changed := b.Fence(dead, reason)
	if !changed {
		return nil
	}
	for _, h := range next.Spec.Holders {
		if !dead(h.Party) {
			continue
		}
		n, err := c.api.Node(ctx, h.Node)
		if err != nil || !n.OutOfService {
			return err
		}
	}
	_, err := c.api.UpdateBlock(ctx, next)
	if err == nil {
		c.log.Info("a node is declared dead: others may take its addresses", "block", b.Metadata.Name, "why", reason)
	}
	return pool.IgnoreChanged(err)
}

// allAsserted says whether all nodes have asserted what they have.
func allAsserted(r pool.Recovery, nodes []pool.Node) bool {
	return len(nodes) > 0 && len(unasserted(r, nodes)) == 0
}

// unasserted returns the nodes that have not said what they have. Dead ones cannot.
func unasserted(r pool.Recovery, nodes []pool.Node) []pool.Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n pool.Node) bool {
		return n.OutOfService || slices.Contains(r.Asserted, n.Name)
	})
}
