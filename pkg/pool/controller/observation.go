package controller

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
)

// Observation is what the controller has seen of a pool.
type Observation struct {
	Pool string
	// Status is as the pool has it after the look.
	Status pool.Status
	// Fenced is how many holders of its blocks are fenced.
	Fenced int
	// Stopped says that the pool gives nothing new. Recovering and Paused say why, if it is that.
	Stopped, Recovering, Paused bool
	// Unasserted is how many nodes a recovery waits for.
	Unasserted int
}

// recovery is one that the controller has seen, since when it sees it.
type recovery struct {
	pool.Recovery
	since time.Time
}

// look is what the controller has seen last of each pool.
type look struct {
	found      map[string]Observation
	observedAt time.Time
	leading    bool
	// goneSince is when the owners of claims were seen gone first, by the pool and the UID of the claim.
	goneSince map[string]map[string]time.Time
	// recoveries are those of the pools.
	recoveries map[string]recovery
}

// Seen returns what the controller has seen last, and when a look has succeeded last. A process that does not lead sees nothing.
func (c *Controller) Seen() (found []Observation, observedAt time.Time, leads bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	found = slices.SortedFunc(maps.Values(c.last.found), func(a, b Observation) int { return cmp.Compare(a.Pool, b.Pool) })
	return found, c.last.observedAt, c.last.leading
}

// setLeading notes whether this process leads.
func (c *Controller) setLeading(leading bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = look{found: map[string]Observation{}, leading: leading, goneSince: map[string]map[string]time.Time{}, recoveries: map[string]recovery{}}
}

// record notes what was seen of a pool.
func (c *Controller) record(o Observation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last.found[o.Pool] = o
}

// noteRecovery notes whether the pool recovers, and returns since when this controller sees that: what the API says of the time can be of an
// earlier recovery. One that has lost a node's name was begun anew, and has a time of its own.
func (c *Controller) noteRecovery(p pool.Pool) (since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, r := c.last.recoveries[p.Metadata.Name], p.Status.Recovery
	if r == nil {
		delete(c.last.recoveries, p.Metadata.Name)
		return c.clock()
	}
	lost := func(node string) bool { return !slices.Contains(r.Asserted, node) }
	if before.since.IsZero() || before.Message != r.Message || slices.ContainsFunc(before.Asserted, lost) {
		before.since = c.clock()
	}
	before.Recovery = *r
	c.last.recoveries[p.Metadata.Name] = before
	return before.since
}

// forget drops what was seen of a pool that has ended.
func (c *Controller) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.last.found, name)
	delete(c.last.goneSince, name)
	delete(c.last.recoveries, name)
}

// noteSuccess notes that a look has succeeded: the API answers.
func (c *Controller) noteSuccess() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last.observedAt = c.clock()
}

// observe returns what there is to see of a pool with that status.
func observe(p pool.Pool, status pool.Status, blocks []pool.Block, waits []pool.Node) Observation {
	o := Observation{Pool: p.Metadata.Name, Status: status, Paused: p.Spec.Paused, Recovering: p.Status.Recovery != nil, Unasserted: len(waits)}
	o.Stopped = status.Condition(pool.Ready).Status != pool.True
	for _, b := range blocks {
		for _, h := range b.Status.Holders {
			if h.Fenced != "" {
				o.Fenced++
			}
		}
	}
	return o
}
