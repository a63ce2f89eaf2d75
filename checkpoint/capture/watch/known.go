package watch

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// sandbox is a sandbox of the node.
type sandbox struct {
	namespace attachment.Namespace
	// attachments are the attachments that have checkpoints. containers are their container IDs.
	attachments map[attachment.Key]*attached
	containers  []string
	pace        pace
	// queue is where the sandbox waits until it is due, nil if it does not.
	queue *queue
	due   time.Time
	// marks are the marks of its sysctls when all of them were read last (capture.Renewal).
	marks map[int]kernel.SettingsMark
	// watched says that the watch hears this sandbox, as far as anybody can tell. watchedAt is when it began to, zero after the end that the kernel
	// has told. ended says so.
	watched, ended bool
	watchedAt      time.Time
	unrecordedState
	// suspect says that a device of the sandbox may have been down since all its interfaces were last whole. Then
	// anything missing may be lost.
	suspect bool
	// lost says that it is not read because all that it was on has gone.
	lost bool
	// changed says that more was reported than that devices went, since somebody last looked for interfaces without a checkpoint.
	changed bool
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

// attached is an attachment that has a checkpoint.
type attached struct {
	// parent is what it is on: see parentOf.
	parent int
	// foreign says that another program attached it (capture.IsForeign). result is what libcni kept of it (capture.ResultOf).
	foreign bool
	result  json.RawMessage
	// refused is since when it is not as recorded, and wentAlone since when its interface is gone that went while its parent was there. They are
	// zero if that is not so.
	refused, wentAlone time.Time
}

// withoutPath identifies the namespace, whatever its path.
func withoutPath(n attachment.Namespace) attachment.Namespace {
	n.Path = ""
	return n
}

// What attachments are on, if it is no device of the host.
const (
	// onNothing: a NIC, or an interface whose parent is not known.
	onNothing = 0
	// onSibling: another interface of the sandbox.
	onSibling = -1
)

// parentOf returns the index of the host's device that the interface goes with, onNothing or onSibling.
func parentOf(i netstate.Interface) int {
	switch {
	case len(i.Parents) == 0:
		return onNothing
	case i.ParentsInSandbox:
		return onSibling
	}
	return i.Parents[0].IfIndex
}

// loadRequested takes over the checkpoints of the containers in requested.
func (r *Refresher) loadRequested() {
	r.mu.Lock()
	requested := r.requested
	r.requested = map[string]request{}
	r.mu.Unlock()
	r.readEvents() // What a restore has caused is older than its Release.
	for containerID, q := range requested {
		if q.written {
			r.setRecords(containerID, q.records)
		}
		for _, s := range r.containers[containerID] {
			if q.released {
				r.markReleased(s)
			}
		}
	}
}

// markReleased makes the Refresher read a restored sandbox. What was found before the restore is no finding any more.
func (r *Refresher) markReleased(s *sandbox) {
	for key := range s.attachments {
		r.clearRefusal(key)
	}
	s.setSuspect()
	r.readOnce(s)
}

// readOnce makes the Refresher read the sandbox to the end, and not once more after a while: nothing has changed that it knows of.
func (r *Refresher) readOnce(s *sandbox) {
	s.pace, s.lookedAt = pace{dirty: true}, time.Now() // Nobody has seen since when what is new there is there.
	r.enqueue(s)
}

// setRecords notes all checkpoints of a container.
func (r *Refresher) setRecords(containerID string, records []checkpoint.Record) {
	current := map[attachment.Key]*sandbox{}
	for _, record := range records {
		s, added := r.addRecord(record)
		if added {
			s.setSuspect()
		}
		if added || s.lost {
			r.mark(s)
		}
		current[record.Attachment] = s
	}
	r.containers[containerID] = slices.DeleteFunc(r.containers[containerID], func(s *sandbox) bool {
		found := false
		for key := range s.attachments {
			if key.ContainerID == containerID && current[key] != s {
				delete(s.attachments, key)
				r.clearRefusal(key)
				s.emptyTold, s.changed = false, true
				r.mark(s) // What is there without a checkpoint gets one. A sandbox that has gone is forgotten.
			}
			found = found || current[key] == s
		}
		if !found {
			s.containers = slices.DeleteFunc(s.containers, func(id string) bool { return id == containerID })
		}
		return !found
	})
	if len(r.containers[containerID]) == 0 {
		delete(r.containers, containerID)
		r.forgetRead(containerID)
	}
}

func (r *Refresher) forgetRead(containerID string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.readContainers, containerID)
}

// addRecord notes a checkpoint. added says that its attachment was not known.
func (r *Refresher) addRecord(record checkpoint.Record) (s *sandbox, added bool) {
	id := record.Attachment.ContainerID
	s, exists := r.sandboxes[withoutPath(record.Namespace)]
	if !exists {
		s = r.addSandbox(record.Namespace)
	}
	if !slices.Contains(r.containers[id], s) {
		r.containers[id], s.containers = append(r.containers[id], s), append(s.containers, id)
	}
	entry, exists := s.attachments[record.Attachment]
	if !exists {
		entry = new(attached)
		s.attachments[record.Attachment] = entry
	}
	entry.parent, entry.foreign, entry.result = parentOf(record.Interface), capture.IsForeign(record), capture.ResultOf(record)
	return s, !exists
}

func (r *Refresher) addSandbox(namespace attachment.Namespace) *sandbox {
	s := &sandbox{namespace: namespace, attachments: map[attachment.Key]*attached{}, marks: map[int]kernel.SettingsMark{}, suspect: true}
	r.sandboxes[withoutPath(namespace)] = s
	return s
}

func (r *Refresher) forget(s *sandbox) {
	r.watch.Remove(s.namespace)
	delete(r.sandboxes, withoutPath(s.namespace))
	r.setUnrecorded(s, nil)
	s.dequeue()
	r.noteSeen(s)
}

// isLost says that all that the sandbox's interfaces were on has gone: a reading could only find that they are gone. What has come to the sandbox
// since has no checkpoint, and is recorded when it rests.
func (r *Refresher) isLost(s *sandbox) bool {
	if s.changed && s.isSettled(time.Now()) || r.loadDevices() != nil {
		return false
	}
	found := false
	for _, entry := range s.attachments {
		if entry.parent == onNothing || entry.parent != onSibling && r.present[entry.parent] {
			return false
		}
		found = found || entry.parent != onSibling
	}
	return found
}

// leaveLost handles a lost sandbox without a reading. A message from the sandbox, a Release or CheckpointsChanged marks it again.
func (r *Refresher) leaveLost(ctx context.Context, s *sandbox) {
	began, events := time.Now(), s.events
	s.pace.begin()
	if r.saveEvents(ctx, s, events); s.events != nil {
		s.pace.failed(began, time.Now(), longestPause)
		r.enqueue(s)
		return
	}
	r.noteRead(s)
	if s.changed {
		r.enqueue(s)
		return
	}
	s.pace, s.lost = pace{}, true
	for key := range s.attachments {
		r.clearRefusal(key)
	}
}

// loadDevices reads the host's devices if they are out of date.
func (r *Refresher) loadDevices() (err error) {
	if r.devices != nil {
		return nil
	}
	if r.devices, err = r.Host.Devices(); err != nil {
		return err
	}
	r.present = map[int]bool{}
	for _, d := range r.devices {
		r.present[d.Index] = true
	}
	return nil
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
	r.addEarlierChanges(changes.List)
	if changes.Overrun {
		r.count(&r.counters.Overruns, 1)
	}
	if changes.Overrun || changes.Muted {
		for _, s := range r.sandboxes {
			s.watched = false // The end of the sandbox may have been missed.
			s.events = nil    // Something that came may have gone again.
			s.changed = true
			s.setSuspect()
			r.mark(s)
		}
	}
	for _, c := range changes.List {
		s, ok := r.sandboxes[withoutPath(c.Namespace)]
		if !ok {
			continue
		}
		if c.NamespaceGone {
			// The message can be about another sandbox if this one was added a moment ago (kernel.Change).
			s.watched, s.ended, s.watchedAt = false, time.Since(s.watchedAt) > settleDelay, time.Time{}
		}
		if c.Down {
			s.setSuspect()
			if s.down != nil {
				s.down[c.Index] = true
			}
		}
		s.changed = s.changed || !c.Down
		r.mark(s)
	}
}
