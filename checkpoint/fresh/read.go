package fresh

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/adopt"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	onnode "github.com/relink-cni/relink/pkg/sandbox"
)

// readDue reads all sandboxes that are due. It returns when the next one is due, or false if none is. A Hold waits for
// one reading at most.
func (r *Refresher) readDue(ctx context.Context) (next time.Time, ok bool) {
	for ctx.Err() == nil {
		select {
		case h := <-r.holds:
			r.readBefore(ctx, h)
		default:
		}
		s, at := r.first()
		if s == nil {
			return time.Time{}, false
		}
		if at.After(time.Now()) {
			return at, true
		}
		r.read(ctx, s)
	}
	return time.Time{}, false
}

// first returns the sandbox that is due first. It leaves out held sandboxes.
func (r *Refresher) first() (first *sandbox, at time.Time) {
	r.mu.Lock()
	held := maps.Clone(r.held)
	r.mu.Unlock()
	for s := range r.active {
		due, is := s.pace.due()
		if !is {
			delete(r.active, s)
			continue
		}
		if len(held) > 0 && slices.ContainsFunc(s.containers(), func(id string) bool { return held[id] > 0 }) {
			continue // Release marks the sandbox.
		}
		if first == nil || due.Before(at) {
			first, at = s, due
		}
	}
	return first, at
}

// read reads the sandbox once, and renews its checkpoints.
func (r *Refresher) read(ctx context.Context, s *sandbox) {
	r.count(func(c *Counters) { c.Readings++ })
	r.hear() // Reports after this belong to the time of the reading.
	began := time.Now()
	s.pace.begin()
	s.suspectNow, s.down = false, map[int]bool{}
	told := s.told
	s.told = nil
	outcomes, err := r.renew(ctx, s)
	s.down = nil
	for index, during := range s.told {
		told.add(index, during)
	}
	switch {
	case isLost(outcomes, err):
		r.keepTold(ctx, s, told)
	case err != nil: // Nothing was read: what goes next may be the device.
		s.told = told
	}
	switch {
	case err == nil:
		s.missing = false
		r.OnRead(s.containers()...)
		if r.take(s, outcomes) {
			s.pace.end(began, time.Now())
		} else {
			s.pace.failed(began, time.Now(), longestRetry)
		}
	case errors.Is(err, kernel.ErrNoNamespace), errors.Is(err, attachment.ErrOtherNamespace):
		r.missing(ctx, s, began, err)
	case errors.Is(err, checkpoint.ErrBusy), errors.Is(err, kernel.ErrNoDevice):
		// Another process works on the sandbox, or an interface goes at this moment.
		s.pace.failed(began, time.Now(), longestPause)
	default:
		s.pace.failed(began, time.Now(), longestRetry)
		r.count(func(c *Counters) { c.Failures++ })
		r.OnError(s.namespace, err)
	}
}

// proofLimit bounds the proof that sandboxes are gone. Meanwhile nothing else is read.
const proofLimit = 2 * time.Second

// missing handles a sandbox to which nothing leads. It drops one that has no checkpoint any more, and one that is proven
// gone. Any other is a finding until it is found again: nobody else would say that its checkpoints grow old.
func (r *Refresher) missing(ctx context.Context, s *sandbox, began time.Time, why error) {
	var records []checkpoint.Record
	for _, containerID := range s.containers() {
		inside, _ := r.Store.ListSandbox(containerID)
		records = append(records, inside...)
	}
	records = slices.DeleteFunc(records, func(record checkpoint.Record) bool { return id(record.Namespace) != id(s.namespace) })
	if len(records) == 0 {
		r.drop(s)
		return
	}
	s.missing = true
	ended := time.Now() // The proof has a pace of its own.
	if r.dropGone(ctx); r.sandboxes[id(s.namespace)] != s {
		return
	}
	why = fmt.Errorf("its network namespace is not found, and so its checkpoint is not kept fresh: %w", why)
	for _, record := range records {
		r.find(Finding{Attachment: record.Attachment, Pod: record.Pod, Reason: why.Error()})
	}
	s.doubt()
	s.pace.failed(began, ended, longestRetry)
	r.count(func(c *Counters) { c.Failures++ })
	r.OnError(s.namespace, why)
}

// dropGone drops the missing sandboxes that are proven gone. One proof serves all of them, and proofs take at most 1/share
// of the time: each reads all of /proc.
func (r *Refresher) dropGone(ctx context.Context) {
	began := time.Now()
	if began.Before(r.nextProof) {
		return
	}
	var were []attachment.Namespace
	for _, s := range r.sandboxes {
		if s.missing {
			were = append(were, s.namespace)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, proofLimit)
	defer cancel()
	for was := range onnode.Gone(ctx, onnode.SeesAllProcesses(), were...) {
		r.drop(r.sandboxes[id(was)])
		r.OnFindings()
	}
	r.nextProof = time.Now().Add((share - 1) * time.Since(began))
}

func (r *Refresher) renew(ctx context.Context, s *sandbox) (_ []adopt.Outcome, err error) {
	if !s.heard {
		if err := r.watch.Add(s.namespace); err != nil {
			return nil, err
		}
		s.heard = true
	}
	if r.devices == nil {
		if r.devices, err = r.Host.Devices(); err != nil {
			return nil, err
		}
	}
	return adopt.Renewal{
		Store: r.Store, Host: r.Host, Devices: r.devices, Namespace: s.namespace, ContainerIDs: s.containers(), Quick: s.pace.hurried(time.Now()),
		Heard: func() adopt.Heard {
			r.hear()
			return adopt.Heard{Down: s.down, Unbroken: !s.suspect}
		},
	}.Renew(ctx)
}

// isLost reports whether an interface was gone or not whole. Then nothing about it was written.
func isLost(outcomes []adopt.Outcome, err error) bool {
	return errors.Is(err, kernel.ErrNoDevice) || slices.ContainsFunc(outcomes, func(o adopt.Outcome) bool { return o.State == adopt.Refused })
}

// keepTold adds to the checkpoints what the kernel has reported, where a reading came too late, or would take too long.
func (r *Refresher) keepTold(ctx context.Context, s *sandbox, told toldOf) {
	s.told = nil
	if len(told) == 0 {
		return
	}
	written, err := adopt.Renewal{Store: r.Store, Namespace: s.namespace, ContainerIDs: s.containers()}.Tell(ctx, told)
	switch {
	case errors.Is(err, checkpoint.ErrBusy):
		s.told = told
		r.mark(s)
	case err != nil:
		r.OnError(s.namespace, err)
	}
	r.count(func(c *Counters) { c.Refreshes += uint64(written) })
}

// take handles the outcomes of a reading. It returns false if the sandbox has to be read again.
func (r *Refresher) take(s *sandbox, outcomes []adopt.Outcome) (done bool) {
	done = true
	whole := true
	for _, o := range outcomes {
		switch o.State {
		case adopt.Refused:
			whole = false
			r.find(Finding{Attachment: o.Attachment, Pod: o.Pod, Reason: o.Reason})
			continue
		case adopt.Failed:
			done, whole = false, false
			r.count(func(c *Counters) { c.Failures++ })
			r.OnError(s.namespace, errors.New(o.Reason))
			continue
		case adopt.Refreshed:
			r.count(func(c *Counters) { c.Refreshes++ })
		}
		r.settled(o.Attachment)
	}
	if whole {
		s.suspect = s.suspectNow
	}
	return done
}

func (r *Refresher) find(f Finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.findings[f.Attachment] != f {
		r.counters.Refusals++
		r.OnFindings()
	}
	r.findings[f.Attachment] = f
}

func (r *Refresher) settled(key attachment.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, was := r.findings[key]; was {
		delete(r.findings, key)
		r.OnFindings()
	}
}
