package restore

import (
	"slices"

	"github.com/relink-cni/relink/pkg/netstate"
)

// remember writes into the record what the next restore needs: the names and the hardware that
// the parents came back with, the interface's index, and whether an announcement is owed. So
// nobody has to say --parent again.
//
// The indices of the parents tell a loss (Losses): without them, nobody knows of a restore that was killed that it has
// to go on. So they are written once the interface is whole, and last if other interfaces of the sandbox can depend on
// this one.
func (w *work) remember(whole bool) error {
	link, recorded := &w.record.Interface.Link, w.record.Interface.Parents
	if w.index == 0 {
		w.index = link.Index // It is not there: creating it failed.
	}
	w.outcome.parentsNow = w.now
	now := w.now
	if !whole || w.several[w.record.Attachment.ContainerID] {
		now = netstate.WithIndices(now, recorded)
	}
	sameParents := w.isNIC() || chainKey(now) == chainKey(recorded)
	if (sameParents && sameIndices(now, recorded) || w.isNIC()) && link.Index == w.index && w.record.AnnouncementOwed == w.outcome.AnnouncementOwed {
		return nil
	}
	if !sameParents {
		if err := w.noteExchange(); err != nil {
			return err
		}
	}
	if !w.isNIC() {
		w.record.Interface.Parents = now
	}
	link.Index, w.record.AnnouncementOwed = w.index, w.outcome.AnnouncementOwed
	return w.Store.Save(w.record)
}

// rememberIndices writes the indices of the parents into the records of a sandbox that has several attachments, when all
// of them are done. The caller holds the sandbox's lock.
func (c *chain) rememberIndices(outcomes []*Outcome) {
	for _, o := range outcomes {
		if c.DryRun || !o.IsAsRecorded() || o.parentsNow == nil {
			continue
		}
		record, err := c.Store.Load(o.Attachment.ContainerID, o.Attachment.IfName)
		if err != nil || sameIndices(o.parentsNow, record.Interface.Parents) || chainKey(o.parentsNow) != chainKey(record.Interface.Parents) {
			continue
		}
		record.Interface.Parents = o.parentsNow
		if err := c.Store.Save(record); err != nil {
			o.fail(err)
		}
	}
}

// sameIndices says that the devices of both chains have the same indices. The chains have the same devices.
func sameIndices(a, b []netstate.Device) bool {
	return slices.EqualFunc(a, b, func(a, b netstate.Device) bool {
		if a.IfIndex != b.IfIndex || (a.Bond == nil) != (b.Bond == nil) {
			return false
		}
		return a.Bond == nil || slices.EqualFunc(a.Bond.Members, b.Bond.Members, func(a, b netstate.Member) bool { return a.IfIndex == b.IfIndex })
	})
}
