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
	// attachments are those that have checkpoints.
	attachments map[attachment.Key]struct{}
	pace        pace
	// heard says that the watch tells of it.
	heard bool
	// suspect says that a device of the sandbox may have been down since all its interfaces were last found whole. What
	// is missing may be lost.
	suspect bool
	// told is what the kernel has told of the devices, by their indexes, since the last reading began and before the
	// sandbox was suspect.
	told toldOf
	// down are the devices that were down or gone since the present reading began. suspectNow is suspect for that time.
	down       map[int]bool
	suspectNow bool
}

// toldOf is what the kernel has told of devices, by their indexes. A device of which it has told more than mostTold has an empty
// list: nobody can say what became of it.
type toldOf map[int][]kernel.Told

// mostTold is how much is kept of a device until its sandbox is read. A pod can change its routes as often as it likes, and its
// sandbox is not read while somebody holds it.
const mostTold = 64

// add adds what was told of the device after all that was told before. An empty list stands for more than can be told.
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

// id identifies the namespace by whatever path.
func id(n attachment.Namespace) attachment.Namespace {
	n.Path = ""
	return n
}

// mark notes that the sandbox has changed.
func (r *Refresher) mark(s *sandbox) {
	s.pace.mark(time.Now())
	r.active[s] = struct{}{}
}

// lookAtAsked reads the checkpoints of the containers that somebody asked for.
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

// know takes note of all checkpoints of a container.
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

// hearBefore takes what came and went before any device was down.
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
		// After a doubt, nobody knows whether a route went on purpose. What came is certain all the same.
		if s.suspect && slices.ContainsFunc(c.Before, func(t kernel.Told) bool { return t.Gone }) {
			continue
		}
		s.told.add(c.Index, c.Before)
	}
}

// hear takes what the kernel has told until now.
func (r *Refresher) hear() {
	if host := r.hostWatch.Take(); host.Overrun || len(host.List) > 0 {
		r.devices = nil
	}
	changes := r.watch.Take()
	if changes.Overrun {
		r.count(func(c *Counters) { c.Overruns++ })
		for _, s := range r.sandboxes {
			s.heard = false // Its end may have been missed.
			s.told = nil    // What came may have gone again.
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
