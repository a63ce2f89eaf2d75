package controller

import (
	"sync"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
)

// Found is what the controller has seen of a pool.
type Found struct {
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

// seen is what the controller knows since its last look.
type seen struct {
	mu      sync.Mutex
	leading bool
	found   []Found
	at      time.Time
}

// Seen returns what the last look has found, and when it was. A process that does not lead sees nothing.
func (s *seen) Seen() (found []Found, at time.Time, leads bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.found, s.at, s.leading
}

// leads notes whether this process leads.
func (s *seen) leads(is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leading, s.found, s.at = is, nil, time.Time{}
}

// note notes a look.
func (s *seen) note(found []Found, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found, s.at = found, at
}

// lookAt returns what there is to see of a pool.
func lookAt(p pool.Pool, all []pool.Pool, blocks []pool.Block, nodes []pool.Node) Found {
	l := Found{Pool: p.Metadata.Name, Status: Status(p, all, blocks), Paused: p.Spec.Paused}
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
