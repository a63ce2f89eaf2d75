package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
)

// every is the time between two looks, and so between two changes of a pool's status.
const every = 30 * time.Second

// Controller looks at all pools again and again. Only one does at a time: the caller sees to that, so that nothing is done twice.
// Nothing would break otherwise.
type Controller struct {
	api pool.API
	log *slog.Logger
	now func() time.Time
	seen
	// silence is since when nodes are silent.
	silence silence
}

// New returns a controller of the API's pools.
func New(api pool.API, log *slog.Logger) *Controller {
	return &Controller{api: api, log: log, now: time.Now}
}

// SetClock gives the controller another clock, for tests.
func (c *Controller) SetClock(now func() time.Time) { c.now = now }

// Run looks until ctx ends.
func (c *Controller) Run(ctx context.Context) {
	c.leads(true)
	defer c.leads(false)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := c.Look(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("look at the pools", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// Look does once what is due for all pools. One pool's failure does not stop the others.
func (c *Controller) Look(ctx context.Context) error {
	pools, err := c.api.Pools(ctx)
	if err != nil {
		return err
	}
	if len(pools) == 0 {
		c.note(nil, c.now())
		return nil
	}
	nodes, err := c.api.Nodes(ctx)
	if err != nil {
		return err
	}
	var found []Found
	errs := []error{c.silence.read(ctx, c.api, pools, c.now)}
	for _, p := range pools {
		blocks, err := c.api.Blocks(ctx, p.Metadata.Name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		is := lookAt(p, pools, blocks, nodes)
		found = append(found, is)
		errs = append(errs, c.pool(ctx, p, is.Status, blocks, nodes))
	}
	c.note(found, c.now())
	if c.silence.forget(); c.silence.spared {
		c.log.Warn("more than half of the nodes show no sign of life: none is fenced for that")
	}
	return errors.Join(errs...)
}

// pool does what is due for one pool. status is what the blocks come to.
func (c *Controller) pool(ctx context.Context, p pool.Pool, status pool.Status, blocks []pool.Block, nodes []pool.Node) error {
	if p.Metadata.DeletionTimestamp != "" && len(blocks) == 0 {
		return c.end(ctx, p)
	}
	var errs []error
	for _, b := range blocks {
		errs = append(errs, c.fence(ctx, b, nodes), c.fenceSilent(ctx, p, b))
	}
	if r := p.Recovery(); r != nil && complete(*r, nodes) {
		c.log.Info("all nodes have said what they have: the pool gives again", "pool", p.Metadata.Name)
		if _, err := c.api.UpdatePool(ctx, p.WithRecovery(nil)); !errors.Is(err, pool.ErrConflict) {
			errs = append(errs, err)
		}
		return errors.Join(errs...)
	}
	status.Sequence, status.Updated = p.Status.Sequence, p.Status.Updated
	if status != p.Status {
		status.Sequence++
		status.Updated = c.now().UTC().Format(time.RFC3339)
		p.Status = status
		if _, err := c.api.UpdatePoolStatus(ctx, p); !errors.Is(err, pool.ErrConflict) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// end lets a pool go of which nobody has anything. The blocks were read after the pool was being deleted, and nobody makes
// one since.
func (c *Controller) end(ctx context.Context, p pool.Pool) error {
	at := slices.Index(p.Metadata.Finalizers, pool.Finalizer)
	if at < 0 {
		return nil
	}
	p.Metadata.Finalizers = slices.Delete(slices.Clone(p.Metadata.Finalizers), at, at+1)
	_, err := c.api.UpdatePool(ctx, p)
	if errors.Is(err, pool.ErrConflict) || errors.Is(err, pool.ErrNotThere) {
		return nil
	}
	return err
}

// fence notes in a block which of its holders are on nodes that a person has declared dead. The taint is read again after the
// block: a node that has come back has changed its blocks since, and the API refuses the fence.
func (c *Controller) fence(ctx context.Context, b pool.Block, nodes []pool.Node) error {
	dead := func(p pool.Party) bool {
		return slices.ContainsFunc(nodes, func(n pool.Node) bool { return n.OutOfService && n.Name == p.Node })
	}
	why := fmt.Sprintf("node has the taint node.kubernetes.io/out-of-service, seen %s", c.now().UTC().Format(time.RFC3339))
	next, changed := b.Fence(dead, why)
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
	return c.write(ctx, next, "a node is declared dead: others may take its addresses", why)
}

// write writes a block with a fence, and tells why.
func (c *Controller) write(ctx context.Context, b pool.Block, what, why string) error {
	_, err := c.api.UpdateBlock(ctx, b)
	switch {
	case err == nil:
		c.log.Info(what, "block", b.Metadata.Name, "why", why)
	case errors.Is(err, pool.ErrConflict), errors.Is(err, pool.ErrNotThere):
		return nil // The next look decides anew.
	}
	return err
}

// complete says whether all nodes have asserted what they have.
func complete(r pool.Recovery, nodes []pool.Node) bool {
	return len(nodes) > 0 && len(unasserted(r, nodes)) == 0
}

// unasserted returns the nodes that have not said what they have. Dead ones cannot.
func unasserted(r pool.Recovery, nodes []pool.Node) []pool.Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n pool.Node) bool {
		return n.OutOfService || slices.Contains(r.Asserted, n.Name)
	})
}
