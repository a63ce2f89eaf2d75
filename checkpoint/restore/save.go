package restore

import (
	"context"
	"errors"

	"github.com/relink-cni/relink/checkpoint"
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

// renewal is the new indices of the parents of an attachment that is as recorded.
type renewal struct {
	checkpoint.Renewal
	chain   *chainRestore
	outcome *Outcome
}

// saveIndices writes the new indices of the parents of all attachments that are as recorded. Who writes them looks at all records of the
// store. So a chain leaves its own to those that restore sandboxes now.
func (c *chainRestore) saveIndices(ctx context.Context) {
	var found []renewal
	c.changeOutcome(func() {
		for _, o := range c.outcomes {
			if o.IsAsRecorded() && o.foundParents != nil && !netstate.SameIndices(o.foundParents, o.listed.Interface.Parents) {
				found = append(found, renewal{checkpoint.Renewal{Record: *o.listed, Parents: o.foundParents}, c, o})
			}
			o.foundParents = nil
		}
	})
	c.run.mu.Lock()
	c.run.renewals = append(c.run.renewals, found...)
	var pending []renewal
	if c.run.restoring == 0 {
		pending, c.run.renewals = c.run.renewals, nil
	}
	c.run.mu.Unlock()
	if !c.run.DryRun && len(pending) > 0 {
		c.run.saveRenewals(ctx, pending)
	}
}

// saveRenewals writes the indices into one file: those of all chains, or else those of each chain, or else it writes each record.
func (r *restoreRun) saveRenewals(ctx context.Context, pending []renewal) {
	var renewals []checkpoint.Renewal
	var ids []string
	chains := map[*chainRestore][]renewal{}
	for _, n := range pending {
		renewals, ids = append(renewals, n.Renewal), append(ids, n.Record.Attachment.ContainerID)
		chains[n.chain] = append(chains[n.chain], n)
	}
	limited, cancel := context.WithTimeout(ctx, busyTimeout) // Neighbours may wait to be told.
	defer cancel()
	if r.Store.RenewIndices(limited, renewals) == nil {
		return
	}
	if len(chains) > 1 {
		for _, ofChain := range chains {
			r.saveRenewals(ctx, ofChain)
		}
		return
	}
	// A sandbox that is busy keeps the old indices: who is at work on it looks for itself, or the next restore does.
	r.Store.EachSandbox(limited, ids, func(i int, err error) {
		if err == nil {
			err = r.saveParents(renewals[i])
		}
		if err != nil && !errors.Is(err, checkpoint.ErrBusy) && ctx.Err() == nil {
			pending[i].chain.changeOutcome(func() { pending[i].outcome.setFailed(err) })
		}
	})
}

// saveParents is saveRenewals for one record. The caller holds the sandbox's lock.
func (r *restoreRun) saveParents(n checkpoint.Renewal) error {
	record, err := r.Store.Load(n.Record.Attachment.ContainerID, n.Record.Attachment.IfName)
	if errors.Is(err, checkpoint.ErrNoCheckpoint) {
		return nil
	}
	if err != nil || netstate.SameIndices(n.Parents, record.Interface.Parents) || chainKey(n.Parents) != chainKey(record.Interface.Parents) {
		return err
	}
	record.Interface.Parents = n.Parents
	return r.Store.Save(record)
}

// changeOutcome calls change, which changes an outcome that the chain may be looking at or changing.
func (c *chainRestore) changeOutcome(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}
