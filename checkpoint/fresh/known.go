package fresh

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
)

// sandbox is a sandbox that has checkpoints.
type sandbox struct {
	namespace attachment.Namespace
	// attachments are the attachments that have checkpoints.
	attachments map[attachment.Key]struct{}
	pace        pace
	// heard says that the watch hears this sandbox.
	heard bool
	// missing says that nothing led to the sandbox at the last reading.
	missing bool
	// suspect says that a device of the sandbox may have been down since all its interfaces were last whole. Then
	// anything missing may be lost.
	suspect bool
	// told is what the kernel has reported about the devices, by their indexes. It covers the time from the begin of
	// the last reading until the sandbox became suspect.
	told toldOf
	// down are the devices that were down or gone since the present reading began. suspectNow is suspect, but for that
	// time.
	down       map[int]bool
	suspectNow bool
}

// toldOf is what the kernel has reported about devices, by their indexes. A device with more than mostTold reports has
// an empty list: then nobody can say what became of it.
type toldOf map[int][]kernel.Told

// mostTold is how many reports about a device are kept until its sandbox is read. A pod can change its routes any
// number of times, and nobody reads its sandbox during a Hold.
const mostTold = 64

// add adds later reports about the device. An empty list stands for more than can be kept.
func (t *toldOf) add(index int, more []kernel.Told) {
	if *t == nil {
		*t = toldOf{}
	}
	all, known := (*t)[index]
	switch {
	case known && len(all) == 0:
	case len(more) == 0, len(all)+len(more) > mostTold:
		(*t)[index] = nil
	default:
		(*t)[index] = append(all, more...)
	}
}

func (s *sandbox) doubt() { s.suspect, s.suspectNow = true, true }

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

// id identifies the namespace, whatever its path.
func id(n attachment.Namespace) attachment.Namespace {
	n.Path = ""
	return n
}

// mark notes that the sandbox has changed.
func (r *Refresher) mark(s *sandbox) {
	s.pace.mark(time.Now())
	r.active[s] = struct{}{}
}

// lookAtAsked reads the checkpoints of the containers in asked.
func (r *Refresher) lookAtAsked() {
	r.mu.Lock()
	asked := r.asked
	r.asked = map[string]bool{}
	r.mu.Unlock()
	for containerID, changed := range asked {
		records, _ := r.Store.ListSandbox(containerID)
		r.know(containerID, records)
		for _, s := range r.sandboxes {
			if changed && slices.Contains(s.containers(), containerID) {
				s.doubt()
				s.pace = pace{}
				r.mark(s)
			}
		}
	}
}

// know notes all checkpoints of a container.
func (r *Refresher) know(containerID string, records []checkpoint.Record) {
	now := map[attachment.Key]struct{}{}
	for _, record := range records {
		now[record.Attachment] = struct{}{}
		at := id(record.Namespace)
		s, known := r.sandboxes[at]
		if !known {
			s = &sandbox{namespace: record.Namespace, attachments: map[attachment.Key]struct{}{}, suspect: true}
			r.sandboxes[at] = s
		}
		if _, known := s.attachments[record.Attachment]; !known {
			s.attachments[record.Attachment] = struct{}{}
			s.doubt()
			r.mark(s)
		}
	}
	for _, s := range r.sandboxes {
		maps.DeleteFunc(s.attachments, func(key attachment.Key, _ struct{}) bool {
			_, is := now[key]
			return key.ContainerID == containerID && !is
		})
		if len(s.attachments) == 0 {
			r.drop(s)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.findings, func(key attachment.Key, _ Finding) bool {
		_, is := now[key]
		return key.ContainerID == containerID && !is
	})
}

// drop forgets the sandbox. Its checkpoints stay.
func (r *Refresher) drop(s *sandbox) {
	r.watch.Remove(s.namespace)
	delete(r.sandboxes, id(s.namespace))
	delete(r.active, s)
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range s.attachments {
		delete(r.findings, key)
	}
}

// hearBefore takes the addresses and routes that came or went before a device was down.
func (r *Refresher) hearBefore(changes []kernel.Change) {
	for _, c := range changes {
		s, known := r.sandboxes[id(c.Namespace)]
		switch {
		case !known:
			continue
		case c.TooMuch:
			s.told.add(c.Index, nil)
			continue
		case len(c.Before) == 0:
			continue
		}
		// In a suspect sandbox, nobody knows whether a route went on purpose. What came is still certain.
		if s.suspect && slices.ContainsFunc(c.Before, func(t kernel.Told) bool { return t.Gone }) {
			continue
		}
		s.told.add(c.Index, c.Before)
	}
}

// hear takes what the kernel has reported until now.
func (r *Refresher) hear() {
	if host := r.hostWatch.Take(); host.Overrun || len(host.List) > 0 {
		r.devices = nil
	}
	changes := r.watch.Take()
	if changes.Overrun {
		r.count(func(c *Counters) { c.Overruns++ })
		for _, s := range r.sandboxes {
			s.heard = false // The end of the sandbox may have been missed.
			s.told = nil    // Something that came may have gone again.
			s.doubt()
			r.mark(s)
		}
	}
	r.hearBefore(changes.List)
	for _, c := range changes.List {
		s, known := r.sandboxes[id(c.Namespace)]
		if !known {
			continue
		}
		if c.Sorts&kernel.NamespaceGone != 0 {
			s.heard = false
		}
		if c.Sorts&kernel.LinkDown != 0 {
			s.doubt()
			if s.down != nil {
				s.down[c.Index] = true
			}
		}
		r.mark(s)
	}
}
