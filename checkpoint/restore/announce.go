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
	if err := w.announcer.Announce(w.parent.Index, w.record.Interface); err == nil {
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

// saveOwed writes into the record whether an announcement is owed.
func saveOwed(store *checkpoint.Store, key attachment.Key, owed bool) error {
	unlock, err := store.TryLock(key.ContainerID)
	if err != nil {
		return err
	}
	defer unlock()
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
