package restore

import (
	"github.com/relink-cni/relink/pkg/netstate"
)

// saveRecord writes into the record what the next restore needs: the new names and hardware of the parents, the
// interface's index, and whether an announcement is owed. So nobody has to give --parent again.
//
// Old indices of the parents in the record show a loss (Losses). After a kill, they show that the restore has to go on.
// So saveRecord writes the new indices only when the interface is whole. If other interfaces of the sandbox can depend on
// this one, the indices are written last.
func (w *attachmentRestore) saveRecord(whole bool) error {
	link, recorded := &w.record.Interface.Link, w.record.Interface.Parents
	if w.index == 0 {
		w.index = link.Index // The interface is not there: creating it failed.
	}
	w.outcome.foundParents = w.foundParents
	parents := w.foundParents
	if !whole || w.run.sandboxes[w.record.Attachment.ContainerID].records > 1 {
		parents = netstate.WithIndices(parents, recorded)
	}
	sameParents := w.isNIC() || chainKey(parents) == chainKey(recorded)
	if (sameParents && netstate.SameIndices(parents, recorded) || w.isNIC()) && link.Index == w.index && w.record.AnnouncementOwed == w.outcome.AnnouncementOwed {
		return nil
	}
	if !w.isNIC() {
		w.record.Interface.Parents = parents
	}
	link.Index, w.record.AnnouncementOwed = w.index, w.outcome.AnnouncementOwed
	return w.run.Store.Save(w.record)
}

// saveIndices writes the indices of the parents into the record, in a sandbox with several attachments. It is
// called when all attachments are done. The caller holds the sandbox's lock.
func (c *chainRestore) saveIndices(o *Outcome) {
	if c.run.DryRun || !o.IsAsRecorded() || o.foundParents == nil {
		return
	}
	record, err := c.run.Store.Load(o.Attachment.ContainerID, o.Attachment.IfName)
	if err != nil || netstate.SameIndices(o.foundParents, record.Interface.Parents) || chainKey(o.foundParents) != chainKey(record.Interface.Parents) {
		return
	}
	record.Interface.Parents = o.foundParents
	if err := c.run.Store.Save(record); err != nil {
		c.changeOutcome(func() { o.setFailed(err) })
	}
}

// changeOutcome calls change, which changes an outcome that the chain may be looking at or changing.
func (c *chainRestore) changeOutcome(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}
