package restore

import (
	"context"
	"errors"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/netstate"
)

// saveRecord writes into the record what the next restore needs: the new names and hardware of the parents, the
// interface's index, and whether an announcement is owed. So nobody has to give --parent again.
//
// Old indices of the parents in the record show a loss (Losses). After a kill, they show that the restore has to go on.
// So they are written last (saveIndices), or here with all else if the interface is whole and no other interface of the sandbox can
// depend on it.
func (w *attachmentRestore) saveRecord(whole bool) error {
	link, recorded := &w.record.Interface.Link, w.record.Interface.Parents
	if w.index == 0 {
		w.index = link.Index // The interface is not there: creating it failed.
	}
	w.outcome.foundParents = w.foundParents
	if (w.isNIC() || chainKey(w.foundParents) == chainKey(recorded)) && link.Index == w.index && w.record.AnnouncementOwed == w.outcome.AnnouncementOwed {
		return nil
	}
	if !w.isNIC() {
		w.record.Interface.Parents = w.foundParents
		if whole && w.run.sandboxes[w.record.Attachment.ContainerID].records == 1 {
			w.outcome.foundParents = nil // saveIndices has nothing to write.
		} else {
			w.record.Interface.Parents = netstate.WithIndices(w.foundParents, recorded)
		}
	}
	link.Index, w.record.AnnouncementOwed = w.index, w.outcome.AnnouncementOwed
	return w.run.Store.Save(w.record)
}

// indexAction writes the new indices of one record's parents.
type indexAction struct {
	chain   *chainRestore
	outcome *Outcome
	renewal checkpoint.Renewal
}

func (a indexAction) Target() checkpoint.Record { return a.renewal.Record }

// Fail keeps the old indices of a sandbox that is busy: who is at work on it looks for itself, or the next restore does.
func (a indexAction) Fail(err error) {
	if !errors.Is(err, checkpoint.ErrBusy) && !errors.Is(err, change.ErrNotTried) {
		a.chain.changeOutcome(func() { a.outcome.setFailed(err) })
	}
}

// saveIndices writes the new indices of the parents of all attachments that are as recorded: into one file, or else into each record.
func (c *chainRestore) saveIndices(ctx context.Context) {
	var actions []indexAction
	var renewals []checkpoint.Renewal
	c.changeOutcome(func() {
		for _, o := range c.outcomes {
			if o.IsAsRecorded() && o.foundParents != nil && !netstate.SameIndices(o.foundParents, o.listed.Interface.Parents) {
				renewal := checkpoint.Renewal{Record: *o.listed, Parents: o.foundParents}
				actions, renewals = append(actions, indexAction{c, o, renewal}), append(renewals, renewal)
			}
			o.foundParents = nil
		}
	})
	limited, cancel := context.WithTimeout(ctx, busyTimeout) // Neighbours may wait to be told.
	defer cancel()
	if c.run.DryRun || len(actions) == 0 || c.run.Store.RenewIndices(limited, renewals) == nil {
		return
	}
	runner := change.NewRunner(c.run.Store)
	runner.Patience = busyTimeout
	change.Run(ctx, runner, actions, c.saveParents)
}

// saveParents is saveIndices for one record. The caller holds the sandbox's lock.
func (c *chainRestore) saveParents(a indexAction) error {
	n := a.renewal
	record, err := c.run.Store.Load(n.Record.Attachment.ContainerID, n.Record.Attachment.IfName)
	if errors.Is(err, checkpoint.ErrNoCheckpoint) {
		return nil
	}
	if err != nil || netstate.SameIndices(n.Parents, record.Interface.Parents) || chainKey(n.Parents) != chainKey(record.Interface.Parents) {
		return err
	}
	record.Interface.Parents = n.Parents
	return c.run.Store.Save(record)
}

// changeOutcome calls change, which changes an outcome that the chain may be looking at or changing.
func (c *chainRestore) changeOutcome(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}
