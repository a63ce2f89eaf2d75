package watch

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
)

// sandbox is a sandbox that has checkpoints.
type sandbox struct {
	namespace attachment.Namespace
	// attachments are the attachments that have checkpoints.
	attachments map[attachment.Key]struct{}
	pace        pace
	// watched says that the watch hears this sandbox.
	watched bool
	// missing says that nothing led to the sandbox at the last reading.
	missing bool
	// suspect says that a device of the sandbox may have been down since all its interfaces were last whole. Then
	// anything missing may be lost.
	suspect bool
	// events is what the kernel has reported about the devices, by their indexes. It covers the time from the begin of
	// the last reading until the sandbox became suspect.
	events deviceEvents
	// down are the devices that were down or gone since the present reading began. suspectSinceRead is suspect, but for that
	// time.
	down             map[int]bool
	suspectSinceRead bool
}

// deviceEvents is what the kernel has reported about devices, by their indexes. A device with more than maxEvents reports has
// an empty list: then nobody can say what became of it.
type deviceEvents map[int][]kernel.Event

// maxEvents is how many reports about a device are kept until its sandbox is read. A pod can change its routes any
// number of times, and nobody reads its sandbox during a Hold.
const maxEvents = 64

// add adds later reports about the device. An empty list stands for more than can be kept.
func (t *deviceEvents) add(index int, events []kernel.Event) {
	if *t == nil {
		*t = deviceEvents{}
	}
	earlier, exists := (*t)[index]
	switch {
	case exists && len(earlier) == 0:
	case len(events) == 0, len(earlier)+len(events) > maxEvents:
		(*t)[index] = nil
	default:
		(*t)[index] = append(earlier, events...)
	}
}

func (s *sandbox) setSuspect() { s.suspect, s.suspectSinceRead = true, true }

// containers returns the container IDs under which the sandbox has checkpoints, in order.
func (s *sandbox) containers() []string {
	var ids []string
	for key := range s.attachments {
		ids = append(ids, key.ContainerID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

func compareKeys(a, b attachment.Key) int {
	return cmp.Or(cmp.Compare(a.ContainerID, b.ContainerID), cmp.Compare(a.IfName, b.IfName), cmp.Compare(a.Network, b.Network))
}

// withoutPath identifies the namespace, whatever its path.
func withoutPath(n attachment.Namespace) attachment.Namespace {
	n.Path = ""
	return n
}

// mark notes that the sandbox has changed.
func (r *Refresher) mark(s *sandbox) {
	s.pace.mark(time.Now())
	r.active[s] = struct{}{}
}

// loadRequested reads the checkpoints of the containers in requested.
func (r *Refresher) loadRequested() {
	r.mu.Lock()
	asked := r.requested
	r.requested = map[string]bool{}
	r.mu.Unlock()
	for containerID, changed := range asked {
		records, _ := r.Store.ListSandbox(containerID)
		r.setRecords(containerID, records)
		for _, s := range r.sandboxes {
			if changed && slices.Contains(s.containers(), containerID) {
				s.setSuspect()
				s.pace = pace{}
				r.mark(s)
			}
		}
	}
}

// setRecords notes all checkpoints of a container.
func (r *Refresher) setRecords(containerID string, records []checkpoint.Record) {
	current := map[attachment.Key]struct{}{}
	for _, record := range records {
		current[record.Attachment] = struct{}{}
		key := withoutPath(record.Namespace)
		s, ok := r.sandboxes[key]
		if !ok {
			s = &sandbox{namespace: record.Namespace, attachments: map[attachment.Key]struct{}{}, suspect: true}
			r.sandboxes[key] = s
		}
		if _, ok := s.attachments[record.Attachment]; !ok {
			s.attachments[record.Attachment] = struct{}{}
			s.setSuspect()
			r.mark(s)
		}
	}
	for _, s := range r.sandboxes {
		maps.DeleteFunc(s.attachments, func(key attachment.Key, _ struct{}) bool {
			_, exists := current[key]
			return key.ContainerID == containerID && !exists
		})
		if len(s.attachments) == 0 {
			r.drop(s)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.refusals, func(key attachment.Key, _ control.Drift) bool {
		_, exists := current[key]
		return key.ContainerID == containerID && !exists
	})
}

// drop forgets the sandbox. Its checkpoints stay.
func (r *Refresher) drop(s *sandbox) {
	r.watch.Remove(s.namespace)
	delete(r.sandboxes, withoutPath(s.namespace))
	delete(r.active, s)
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range s.attachments {
		delete(r.refusals, key)
	}
}

// addEarlierChanges takes the addresses and routes that came or went before a device was down.
func (r *Refresher) addEarlierChanges(changes []kernel.Change) {
	for _, c := range changes {
		s, ok := r.sandboxes[withoutPath(c.Namespace)]
		switch {
		case !ok:
			continue
		case c.TooMuch:
			s.events.add(c.Index, nil)
			continue
		case len(c.Before) == 0:
			continue
		}
		// In a suspect sandbox, nobody knows whether a route went on purpose. What came is still certain.
		if s.suspect && slices.ContainsFunc(c.Before, func(t kernel.Event) bool { return t.Deleted }) {
			continue
		}
		s.events.add(c.Index, c.Before)
	}
}

// readEvents takes what the kernel has reported until now.
func (r *Refresher) readEvents() {
	if host := r.hostWatch.Take(); host.Overrun || len(host.List) > 0 {
		r.devices = nil
	}
	changes := r.watch.Take()
	if changes.Overrun {
		r.count(func(c *Counters) { c.Overruns++ })
		for _, s := range r.sandboxes {
			s.watched = false // The end of the sandbox may have been missed.
			s.events = nil    // Something that came may have gone again.
			s.setSuspect()
			r.mark(s)
		}
	}
	r.addEarlierChanges(changes.List)
	for _, c := range changes.List {
		s, ok := r.sandboxes[withoutPath(c.Namespace)]
		if !ok {
			continue
		}
		if c.NamespaceGone {
			s.watched = false
		}
		if c.Down {
			s.setSuspect()
			if s.down != nil {
				s.down[c.Index] = true
			}
		}
		r.mark(s)
	}
}
