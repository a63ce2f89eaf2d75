package watch

import (
	"slices"
	"time"
)

// queue has sandboxes in the order in which they are due.
type queue []*sandbox

// enqueue puts the sandbox in its place by its pace.
func (r *Refresher) enqueue(s *sandbox) {
	s.dequeue()
	due, ok := s.pace.due()
	if !ok {
		return
	}
	s.due, s.queue = due, &r.settling
	switch {
	case !s.pace.dirty:
	case len(s.attachments) > 0:
		s.queue = &r.dirty
	default: // There is nothing to renew.
		rested := slices.MinFunc([]time.Time{s.pace.changed.Add(settleDelay), s.restlessSince.Add(unrestLimit)}, time.Time.Compare)
		s.due = slices.MaxFunc([]time.Time{due, rested}, time.Time.Compare)
	}
	i, _ := s.queue.search(s.due.Add(1))
	*s.queue = slices.Insert(*s.queue, i, s)
}

func (s *sandbox) dequeue() {
	if s.queue == nil {
		return
	}
	i, _ := s.queue.search(s.due)
	i += slices.Index((*s.queue)[i:], s)
	*s.queue, s.queue = slices.Delete(*s.queue, i, i+1), nil
}

// search returns the place of the first sandbox that is due then or later.
func (q queue) search(due time.Time) (int, bool) {
	return slices.BinarySearchFunc(q, due, func(s *sandbox, due time.Time) int { return s.due.Compare(due) })
}

// nextDue returns the sandbox to read next, nil for none, and when it is due. One that has changed waits for one at most of those that were read since
// they changed. These have every other turn: pods that go on changing do not keep new ones from their first checkpoints.
func (r *Refresher) nextDue() (first *sandbox, due time.Time) {
	queues := []queue{r.dirty, r.settling}
	if r.settlingFirst = !r.settlingFirst; r.settlingFirst {
		slices.Reverse(queues)
	}
	for _, q := range queues {
		if len(q) > 0 && (first == nil || q[0].due.Before(due)) {
			first, due = q[0], q[0].due
		}
		if first != nil && !due.After(time.Now()) {
			break
		}
	}
	return first, due
}

// mark notes that the sandbox has changed.
func (r *Refresher) mark(s *sandbox) {
	instant := time.Now()
	if !s.pace.unsettled {
		s.restlessSince = instant
	}
	s.pace.mark(instant)
	if due, _ := s.pace.due(); s.queue != &r.dirty || due.Before(s.due) {
		r.enqueue(s)
	}
}
