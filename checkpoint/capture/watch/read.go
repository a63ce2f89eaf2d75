package watch

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
)

// readNext reads the sandbox that is due, if there is one. It returns when the next one may be due, or false if none will be. A Hold waits for one
// reading at most.
func (r *Refresher) readNext(ctx context.Context) (next time.Time, ok bool) {
	select {
	case h := <-r.holds:
		r.readForHold(ctx, h)
	default:
	}
	s, due := r.nextDue()
	if s == nil || due.After(time.Now()) {
		return due, s != nil
	}
	s.dequeue()
	switch {
	case r.isHeld(s): // Release marks it. Until then nobody has seen it.
		return time.Now(), true
	case s.ended && r.forgetEnded(ctx, s): // To look for it would be a look at all processes.
	case r.hear(s) == nil && r.isLost(s): // One that cannot be heard may be gone.
		r.leaveLost(ctx, s)
	default:
		r.read(ctx, s)
	}
	r.noteSeen(s)
	return time.Now(), true
}

func (r *Refresher) isHeld(s *sandbox) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(s.containers, func(id string) bool { return r.held[id] > 0 })
}

// read reads the sandbox once, and renews its checkpoints.
func (r *Refresher) read(ctx context.Context, s *sandbox) {
	if len(s.attachments) > 0 {
		r.count(&r.counters.Readings, 1)
	}
	r.readEvents() // Reports after this belong to the time of the reading.
	began := time.Now()
	s.pace.begin()
	changed, events := s.changed, s.events
	s.suspectSinceRead, s.changed, s.lost, s.down = false, false, false, map[int]bool{}
	s.events = nil
	outcomes, err := r.renew(ctx, s)
	s.down = nil
	for index, during := range s.events {
		events.add(index, during)
	}
	switch {
	case foundLoss(outcomes, err):
		r.saveEvents(ctx, s, events)
	case err != nil: // Nothing was read: what goes next may be the device.
		s.events = events
	}
	complete := err == nil && r.handleOutcomes(s, outcomes)
	if err == nil && s.isSettled(began) {
		err = r.record(ctx, s)
	} else {
		s.changed = s.changed || changed
	}
	switch {
	case err == nil:
		s.missingSince = time.Time{}
		if complete {
			r.noteRead(s)
		}
		r.OnRead(s.containers...)
		switch {
		case !complete || s.failing || s.underWay && !s.hasNew():
			s.pace.failed(began, time.Now(), longestRetry)
		default: // The next answer whose it is has one that is under way looked at again.
			s.pace.end(began, time.Now())
		}
	case kernel.IsMissing(err):
		s.watched = false // Another one can have its inode.
		s.setSuspect()
		s.pace.failed(began, time.Now(), longestRetry)
		r.forgetMissing(ctx, s)
		return
	case errors.Is(err, checkpoint.ErrBusy), errors.Is(err, kernel.ErrNoDevice):
		// Another process works on the sandbox, or an interface goes at this moment.
		s.pace.failed(began, time.Now(), longestPause)
	default:
		s.pace.failed(began, time.Now(), longestRetry)
		r.count(&r.counters.Failures, 1)
		r.OnError(s.namespace, err)
	}
	r.enqueue(s)
}

func (r *Refresher) renew(ctx context.Context, s *sandbox) (_ []capture.InterfaceOutcome, err error) {
	if err := cmp.Or(r.hear(s), r.loadDevices()); err != nil || len(s.attachments) == 0 {
		return nil, err
	}
	return capture.Renewal{
		Store: r.Store, Host: r.Host, Devices: r.devices, Namespace: s.namespace, ContainerIDs: s.containers, Quick: s.pace.isAfterChange(time.Now()), Marks: s.marks,
		LinkHistory: func() capture.LinkHistory {
			r.readEvents()
			return capture.LinkHistory{Down: s.down, NeverDown: !s.suspect}
		},
	}.Renew(ctx)
}

// hear makes the watch hear the sandbox.
func (r *Refresher) hear(s *sandbox) error {
	if s.watched {
		return nil
	}
	err := r.watch.Add(s.namespace)
	if err != nil {
		return err
	}
	s.watched, s.ended = true, false
	if s.watchedAt.IsZero() {
		s.watchedAt = time.Now()
	}
	return nil
}

// foundLoss reports whether an interface was gone or not whole. Then nothing about it was written.
func foundLoss(outcomes []capture.InterfaceOutcome, err error) bool {
	return errors.Is(err, kernel.ErrNoDevice) || slices.ContainsFunc(outcomes, func(o capture.InterfaceOutcome) bool { return o.State == change.Refused })
}

// saveEvents adds to the checkpoints what the kernel has reported, where a reading came too late, or would take too long.
func (r *Refresher) saveEvents(ctx context.Context, s *sandbox, events deviceEvents) {
	s.events = nil
	if len(events) == 0 {
		return
	}
	written, err := r.renewal(s).AddEvents(ctx, events)
	switch {
	case errors.Is(err, checkpoint.ErrBusy):
		s.events = events
		r.mark(s)
	case err != nil:
		r.OnError(s.namespace, err)
	}
	r.count(&r.counters.Refreshes, written)
}

// handleOutcomes handles the outcomes of a reading. It returns false if the sandbox has to be read again.
func (r *Refresher) handleOutcomes(s *sandbox, outcomes []capture.InterfaceOutcome) (complete bool) {
	complete = true
	whole := true
	for _, o := range outcomes {
		switch o.State {
		case change.Refused:
			whole = false
			r.setRefusal(Refusal{control.Drift{Attachment: o.Attachment, Pod: o.Pod, Reason: o.Reason}, o.WentAlone})
			r.noteRefused(s, o)
			continue
		case change.Failed:
			complete, whole = false, false
			r.count(&r.counters.Failures, 1)
			r.OnError(s.namespace, errors.New(o.Reason))
			continue
		case capture.Refreshed:
			r.count(&r.counters.Refreshes, 1)
		case capture.Replaced:
			r.forgotten([]attachment.Key{o.Attachment}, o.Reason)
		}
		r.clearRefusal(o.Attachment)
		if entry := s.attachments[o.Attachment]; entry != nil {
			entry.refused, entry.wentAlone = time.Time{}, time.Time{}
		}
	}
	if whole {
		s.suspect = s.suspectSinceRead
	}
	return complete
}

func (r *Refresher) setRefusal(f Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refusals[f.Attachment] != f {
		r.refusals[f.Attachment] = f
		r.changedRefusals[f.Attachment] = &f
		r.counters.Refusals++
		r.OnRefusals()
	}
}

func (r *Refresher) clearRefusal(key attachment.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, exists := r.refusals[key]; exists {
		delete(r.refusals, key)
		r.changedRefusals[key] = nil
		r.OnRefusals()
	}
}
