package controller

import (
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

// look is what the controller has seen in its last look.
type look struct {
	found      []Observation
	observedAt time.Time
	leading    bool
}

// Seen returns what the last look has found, and when it was. A process that does not lead sees nothing.
func (c *Controller) Seen() (found []Observation, observedAt time.Time, leads bool) {
	l := c.last.Load()
	return l.found, l.observedAt, l.leading
}

// setLeading notes whether this process leads.
func (c *Controller) setLeading(leading bool) { c.last.Store(&look{leading: leading}) }

// record notes a look.
func (c *Controller) record(found []Observation) {
	c.last.Store(&look{found, c.clock(), c.last.Load().leading})
}

// observe returns what there is to see of a pool.
func observe(p pool.Pool, pools []pool.Pool, blocks []pool.Block, nodes []pool.Node) Observation {
	l := Observation{Pool: p.Metadata.Name, Status: Status(p, pools, blocks), Paused: p.Spec.Paused}
	for _, b := range blocks {
		for _, h := range b.Spec.Holders {
			if h.Fenced != "" {
				l.Fenced++
			}
		}
	}
	if r := p.Recovery(); r != nil {
		l.Recovering, l.Unasserted = true, len(unasserted(*r, nodes))
	}
	l.Stopped = l.Recovering || l.Paused || l.Status.Problem != "" || p.Metadata.DeletionTimestamp != ""
	return l
}
