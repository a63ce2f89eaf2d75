package restore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/wait"
)

const (
	// noteLimit is how long the agent waits for the locks of sandboxes, to note that their neighbours are told. Its own reading of a sandbox, which
	// carrier causes, takes a few milliseconds. Until the note is there, a pod does not count as connected.
	noteLimit = 50 * time.Millisecond
	notePause = 5 * time.Millisecond
)

// announcements are attachments whose neighbours are told the addresses as soon as there is carrier.
type announcements struct {
	node *Restorer
	// mu guards the states: another chain may restore an attachment of a shared sandbox again.
	mu     sync.Mutex
	states []*attachmentState
	// failed is why announcements failed at the last try.
	failed error
	// comesAgain says that the caller announces again what cannot be noted in its record. So does a run whose other chain is at work on the
	// sandbox.
	comesAgain bool
}

// change calls f, which changes a state that somebody may be looking at or changing.
func (a *announcements) change(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
}

// pending returns the attachments that are as recorded and lack only carrier or an announcement.
func (a *announcements) pending() []*attachmentState {
	return slices.DeleteFunc(slices.Clone(a.states), func(s *attachmentState) bool { return !s.isPending() })
}

func (s *attachmentState) isPending() bool {
	return s.outcome.IsAsRecorded() && (s.outcome.NoCarrier != "" || s.outcome.AnnouncementOwed)
}

// announceConnected looks for carrier again and announces what it can. It returns a line for each cause for which attachments still
// wait. Those that lack only the note of their announcement do not: reportUnconnected writes that when all chains are done.
func (a *announcements) announceConnected() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	rest := a.pending()
	if len(rest) == 0 {
		return nil
	}
	devices, err := a.node.host.Devices()
	if err != nil {
		a.failed = err
		return cutOffLines(rest)
	}
	ctx, cancel := context.WithTimeout(context.Background(), noteLimit)
	defer cancel()
	if !a.comesAgain {
		cancel()
	}
	var failed []error
	for _, s := range rest {
		if !s.hasCarrier(devices) {
			continue
		}
		s.outcome.NoCarrier = ""
		if s.outcome.AnnouncementOwed {
			failed = append(failed, a.announceOwed(ctx, s))
		}
	}
	a.failed = errors.Join(failed...)
	return cutOffLines(slices.DeleteFunc(rest, func(s *attachmentState) bool { return !s.isPending() || s.owedInRecordOnly }))
}

// hasCarrier says that the attachment has carrier now. It also returns true for an interface that has gone with its sandbox.
func (s *attachmentState) hasCarrier(host netstate.Devices) bool {
	switch {
	case s.outcome.NoCarrier == "":
		return true
	case !s.outcome.OwnLink:
		parent, exists := host.ByIndex(s.parentIndex)
		return exists && parent.Carrier
	}
	sandbox, err := kernel.OpenSame(s.namespace)
	if err != nil {
		return true
	}
	defer sandbox.Close()
	devices, err := sandbox.Devices()
	d, exists := devices.ByName(s.outcome.NoCarrier)
	return err == nil && (!exists || d.Carrier)
}

// cutOffLines returns a line for each cause: how many attachments it cuts off, and how many of them
// are not announced yet.
func cutOffLines(states []*attachmentState) (lines []string) {
	var causes []string
	count, owed := map[string]int{}, map[string]int{}
	for _, s := range states {
		_, cause := s.outcome.CutOff()
		addNew(&causes, cause)
		count[cause]++
		if s.outcome.AnnouncementOwed {
			owed[cause]++
		}
	}
	for _, cause := range causes {
		line := fmt.Sprintf("%s: attachments cut off: %d", cause, count[cause])
		if owed[cause] > 0 {
			line += fmt.Sprintf(", not announced yet: %d: relink restore announces them when there is carrier", owed[cause])
		}
		lines = append(lines, line)
	}
	return lines
}

// CutOff says why the attachment is not connected, or not known to its neighbours, and which device of the host is the cause. device is empty
// if that is in the sandbox.
func (o Outcome) CutOff() (device, reason string) {
	if !o.OwnLink {
		device = cmp.Or(o.NoCarrier, o.Parent)
	}
	subject := cmp.Or(device, o.Interface.Link.Name+" of "+o.SandboxName())
	if o.NoCarrier == "" {
		return device, subject + " has carrier, but the neighbours do not know yet"
	}
	return device, subject + " has no carrier"
}

// isAnnounced says that the neighbours are told the addresses of the interface. An interface on top of
// another one in the sandbox is behind the MAC or tag of that one, which is announced itself.
func isAnnounced(i netstate.Interface) bool { return len(i.Addresses) > 0 && !i.ParentsInSandbox }

// announce tells the neighbours of the attachment, which has carrier.
func (r *Restorer) announce(s *attachmentState) (err error) {
	o := &s.outcome
	if o.Interface.Link.Kind == netstate.KindNIC {
		err = announceOnNIC(s.namespace, o.Interface)
	} else {
		err = r.announcer.Announce(s.parentIndex, o.Interface)
	}
	if err == nil {
		o.Announced, o.AnnouncementOwed = true, false
	}
	return err
}

// announceOwed announces an attachment that has carrier by now, and notes that in its record. What was detached or moved since it was restored is not
// announced, and neither is an address that has gone: they can be elsewhere by now. Until ctx is done, it waits for who is at work on the sandbox.
func (a *announcements) announceOwed(ctx context.Context, s *attachmentState) error {
	record, err := a.node.store.Load(s.outcome.Attachment.ContainerID, s.outcome.Attachment.IfName)
	switch {
	case errors.Is(err, checkpoint.ErrNoCheckpoint), err == nil && s.isElsewhere(record):
		s.outcome.AnnouncementOwed = false
		return nil
	case err == nil: // What nobody can read is announced as it was restored.
		s.outcome.Interface.Link.MAC, s.outcome.Interface.Addresses = record.Interface.Link.MAC, record.Interface.Addresses
	}
	err = a.node.announce(s)
	if err == nil {
		err = saveOwed(a.node.store, s.outcome.Attachment, false)
	}
	for errors.Is(err, checkpoint.ErrBusy) && wait.Sleep(ctx, notePause) {
		err = saveOwed(a.node.store, s.outcome.Attachment, false)
	}
	if !errors.Is(err, checkpoint.ErrBusy) {
		return err
	}
	if a.comesAgain || s.sandbox.chains > 1 {
		s.outcome.AnnouncementOwed, s.owedInRecordOnly = true, true // Announcing twice does no harm.
	}
	return nil // The next restore announces it again.
}

// isElsewhere says that the record is of another sandbox or parent. A record can have the old index of the same parent.
func (s *attachmentState) isElsewhere(record checkpoint.Record) bool {
	recorded, restored := checkpoint.HostParents(record.Interface), checkpoint.HostParents(s.outcome.Interface)
	return record.Namespace.Same(s.namespace) != nil ||
		len(recorded) > 0 && len(restored) > 0 && recorded[0].IfIndex != s.parentIndex && recorded[0].Name != restored[0].Name
}

// announceOnNIC announces the addresses of a NIC in the sandbox. Nothing is owed for one
// that has gone.
func announceOnNIC(namespace attachment.Namespace, i netstate.Interface) error {
	sandbox, err := kernel.OpenSame(namespace)
	if err != nil {
		return nil
	}
	defer sandbox.Close()
	index, err := sandbox.Index(i.Link.Name)
	if err != nil {
		return err
	}
	announcer, err := sandbox.NewAnnouncer()
	if err != nil {
		return err
	}
	defer announcer.Close()
	return announcer.Announce(index, i)
}

// tellsChange says that a parent of the interface, or a member of its bond, has another index than in the record. So the record itself
// tells, after a kill, that something was changed and may not have been announced.
func tellsChange(r checkpoint.Record, parents []netstate.Device) bool {
	recorded := r.Interface.Parents
	return len(recorded) > 0 && recorded[0].IfIndex != 0 && !netstate.SameIndices(parents, recorded)
}

// saveOwed writes into the record whether an announcement is owed. It waits for nobody.
func saveOwed(store *checkpoint.Store, key attachment.Key, owed bool) error {
	unlock, err := store.TryLock(key.ContainerID)
	if err != nil {
		return err
	}
	defer unlock()
	return writeOwed(store, key, owed)
}

// writeOwed is saveOwed for a caller who holds the sandbox's lock.
func writeOwed(store *checkpoint.Store, key attachment.Key, owed bool) error {
	record, err := store.Load(key.ContainerID, key.IfName)
	if errors.Is(err, checkpoint.ErrNoCheckpoint) || err == nil && record.AnnouncementOwed == owed {
		return nil
	}
	if err != nil {
		return err
	}
	record.AnnouncementOwed = owed
	return store.Save(record)
}
