package restore

import (
	"errors"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// isAnnounced says that the neighbours are told the addresses of the interface. An interface on top of
// another one in the sandbox is behind the MAC or tag of that one, which is announced itself.
func isAnnounced(i netstate.Interface) bool { return len(i.Addresses) > 0 && !i.ParentsInSandbox }

// announce tells the neighbours the addresses that they are owed, if there is carrier. If there
// is none, awaitCarrier or the next restore announces them later. Until then the record says that
// they are owed.
func (w *attachmentRestore) announce() {
	o := w.outcome
	if !o.AnnouncementOwed || o.NoCarrier != "" || !w.hasAddresses || w.isNIC() {
		return
	}
	if err := w.run.announcer.Announce(w.parent.Index, w.record.Interface); err == nil {
		o.Announced, o.AnnouncementOwed = true, false
	}
}

// announceOwed announces an attachment that has carrier by now.
func (r *restoreRun) announceOwed(o *Outcome) error {
	var err error
	if o.Interface.Link.Kind == netstate.KindNIC {
		err = announceOnNIC(o)
	} else {
		err = r.announcer.Announce(o.parentIndex, o.Interface)
	}
	if err != nil {
		return err
	}
	o.Announced, o.AnnouncementOwed = true, false
	err = saveOwed(r.Store, o.Attachment, false)
	switch {
	case !errors.Is(err, checkpoint.ErrBusy):
		return err
	case r.unasked, r.sandboxes[o.Attachment.ContainerID].chains > 1:
		// The caller comes again, and so does a run whose other chain is at work on the sandbox. Announcing twice does no
		// harm.
		o.AnnouncementOwed, o.owedInRecordOnly = true, true
	}
	return nil // The next restore announces it again.
}

// tellsChange says that a parent of the interface, or a member of its bond, has another index than in the record. So the record itself
// tells, after a kill, that something was changed and may not have been announced.
func tellsChange(r checkpoint.Record, parents []netstate.Device) bool {
	recorded := r.Interface.Parents
	return len(recorded) > 0 && recorded[0].IfIndex != 0 && !netstate.SameIndices(parents, recorded)
}

// noteOwed writes into the record that an announcement is owed, before anything is changed, unless the record tells it anyway. If it
// cannot be written, saveRecord says so. A member's index tells it to a restore alone: a capture between the kill and that restore
// writes the new index, so it is not enough where the interface itself is changed.
func (w *attachmentRestore) noteOwed() {
	evident := w.record.HasOldParent(w.foundParents) || len(w.outcome.Steps) == 0 && tellsChange(w.record, w.foundParents)
	if isAnnounced(w.record.Interface) && !evident && writeOwed(w.run.Store, w.record.Attachment, true) == nil {
		w.record.AnnouncementOwed = true
	}
}

// noteOwedByParents is noteOwed for the chain, before its parents are changed.
func (c *chainRestore) noteOwedByParents() {
	for i := range c.records {
		r := &c.records[i]
		if !onHost(r) || !isAnnounced(r.Interface) || len(c.plan.stepsBelow(r.Interface.Parents)) == 0 {
			continue
		}
		if !tellsChange(*r, c.plan.chain(r.Interface.Parents).found) {
			_ = saveOwed(c.run.Store, r.Attachment, true)
		}
	}
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

// announceOnNIC announces the addresses of a NIC in the sandbox. Nothing is owed for one
// that has gone.
func announceOnNIC(o *Outcome) error {
	sandbox, err := kernel.OpenSame(o.namespace)
	if err != nil {
		return nil
	}
	defer sandbox.Close()
	index, err := sandbox.Index(o.Interface.Link.Name)
	if err != nil {
		return err
	}
	announcer, err := sandbox.NewAnnouncer()
	if err != nil {
		return err
	}
	defer announcer.Close()
	return announcer.Announce(index, o.Interface)
}
