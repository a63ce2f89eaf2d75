package restore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// attachmentRestore is the restore of one attachment.
type attachmentRestore struct {
	node   *Restorer
	dryRun bool
	scope  repairScope
	// devices are those of the host, in a dry run as they will be. present are those that are there.
	devices, present netstate.Devices
	record           checkpoint.Record
	sandbox          *kernel.Namespace
	state            *attachmentState
	outcome          *Outcome
	// parent is the device to build on, and parents are those from it down, as they are now.
	parent  netstate.LiveDevice
	parents []netstate.Device
	// sandboxSteps are the steps that were needed on parents in the sandbox.
	sandboxSteps []Step
	// carrier says that the interface had carrier at the last look. hasAddresses says that it had its
	// addresses.
	carrier, hasAddresses bool
	// wanted is what wantedState found. It is nil before.
	wanted *netstate.Interface
	// built is what the kernel told of the link when it made it. The next look uses it.
	built kernel.Built
	// index is the index that the interface has now. indexOwnerName is the name of another device that
	// has the recorded index.
	index          int
	indexOwnerName string
}

// execute compares the interface with its record, and makes it as recorded. The parents have been found.
func (w *attachmentRestore) execute() error {
	if w.scope != wholeAttachment && w.record.HasOldParent(w.state.foundParents) {
		return fmt.Errorf("%s was lost meanwhile", w.parent.Name) // The next restore brings back the whole attachment.
	}
	steps, err := w.plan()
	if err != nil {
		return err
	}
	w.outcome.addSteps(slices.Concat(w.sandboxSteps, steps))
	switch {
	case len(w.sandboxSteps)+len(steps)+len(w.outcome.HostSteps) == 0:
		// Nobody says that pods are cut off because a member of their bond is back.
		owed := w.record.AnnouncementOwed || w.record.HasOldParent(w.state.foundParents) || !w.dryRun && tellsChange(w.record, w.state.foundParents)
		w.outcome.AnnouncementOwed = owed && isAnnounced(w.record.Interface)
		if w.dryRun {
			w.checkCarrier()
			return nil
		}
	case w.dryRun:
		if live := w.outcome.Live; live != nil {
			w.outcome.Worse = w.worseReason(*live)
		}
		return nil
	default:
		w.noteOwed()
		err = w.apply(steps)
		w.outcome.AnnouncementOwed = isAnnounced(w.record.Interface) // Something may be built even if another step failed.
	}
	w.checkCarrier()
	if w.outcome.AnnouncementOwed && w.outcome.NoCarrier == "" && w.hasAddresses {
		_ = w.node.announce(w.state) // Later, awaitCarrier or the next restore does it. Until then the record says that it is owed.
	}
	return errors.Join(err, w.saveRecord(err == nil))
}

// findParentInSandbox brings the parents in the sandbox back, and finds what the interface is to be stacked on.
func (w *attachmentRestore) findParentInSandbox() error {
	recorded := w.record.Interface.Parents
	p := parentRestore{namespace: w.sandbox, recorded: hardwareOf(recorded), chains: [][]netstate.Device{recorded}, dryRun: w.dryRun}
	if err := p.look(); err != nil {
		return err
	}
	if blocker := p.plan.chain(recorded).Problem; blocker != nil && w.dryRun {
		return fmt.Errorf("%w yet: interfaces on it are planned once it exists", blocker)
	} else if blocker != nil {
		return blocker
	}
	if err := p.apply(); err != nil {
		return err
	}
	for _, s := range p.steps {
		s.Error = "" // What is not there after the steps is the error.
		w.sandboxSteps = append(w.sandboxSteps, s)
	}
	found := p.after.chain(recorded)
	switch {
	case found.Problem != nil:
		return found.Problem
	case len(p.after.steps) > 0:
		return errors.New(failureReasons(p.after.steps, p.steps))
	}
	return w.useParent(p.after, found)
}

// useParent takes what the plan has found for the parents.
func (w *attachmentRestore) useParent(plan *ParentPlan, found ReadyChain) (err error) {
	w.parent, w.outcome.Parent, w.state.foundParents = found.Parent, found.Parent.Name, found.Found
	w.parents, err = plan.devices.Chain(found.Parent.Index)
	return err
}

// plan compares the live interface with the record.
func (w *attachmentRestore) plan() ([]Step, error) {
	recorded, err := w.wantedState()
	if err != nil {
		return nil, err
	}
	extent := kernel.ExtentOf(recorded)
	extent.Built, w.built = w.built, kernel.Built{}
	live, err := kernel.Capture(w.node.host, w.sandbox, w.devices, w.record.Interface.Link.Name, extent)
	w.carrier = live.Carrier
	missing, alien := errors.Is(err, kernel.ErrNoDevice), errors.Is(err, kernel.ErrUnsupported)
	if err != nil && !missing && !alien {
		return nil, err
	}
	foreign := !missing && isForeign(w.record.Interface.Link, live.Link)
	if missing || alien || foreign || live.Link.Kind != w.record.Interface.Link.Kind {
		var owner *netstate.Link
		if foreign {
			owner = &live.Link
		}
		if err := w.checkIdentity(owner); err != nil {
			return nil, err
		}
	}
	if alien {
		return nil, leftAlone(err, live.Link)
	}
	if missing && len(checkpoint.HostParents(recorded)) > 0 {
		if problem := memberProblem(w.devices, w.parent, recorded.Parents[0].Name); problem != nil {
			return nil, problem
		}
	}
	var current *netstate.Interface
	if !missing {
		current, w.index = &live, live.Link.Index
	}
	w.outcome.Live = current
	steps, err := planInterface(recorded, current, w.parent.Name, w.parents)
	if err != nil && w.scope == wholeAttachment {
		return nil, leftAlone(err, live.Link)
	}
	steps = w.scope.filter(steps, recorded)
	if missing && w.indexOwnerName != "" && len(steps) > 0 {
		steps[0].Reason += fmt.Sprintf("; its index %d is that of %s now, so that it gets another: programs that are bound to the index (SO_BINDTODEVICE, multicast groups) have to bind again",
			w.record.Interface.Link.Index, w.indexOwnerName)
	}
	w.hasAddresses = !missing && !slices.ContainsFunc(steps, func(s Step) bool { return s.Action == AddAddress })
	return steps, nil
}

// leftAlone says what a person can do where the live interface cannot be made the recorded one. A NIC cannot be deleted.
func leftAlone(reason error, live netstate.Link) error {
	if live.Kind == netstate.KindNIC {
		return fmt.Errorf("%w: left alone", reason)
	}
	return fmt.Errorf("%w: left alone: delete it, and restore again", reason)
}

// wantedState returns the part of the record that has to be there now. It stays the same unless it
// depends on other interfaces of the sandbox.
func (w *attachmentRestore) wantedState() (netstate.Interface, error) {
	if w.wanted == nil || hasDependentRoutes(w.record.Interface) {
		wanted, err := w.node.store.Effective(w.record, w.sandbox.Exists)
		if err != nil {
			return wanted, err
		}
		w.wanted = &wanted
	}
	return *w.wanted, nil
}

// apply carries the steps out, and goes on after a failure. Then it looks whether the kernel
// agrees with the record.
func (w *attachmentRestore) apply(steps []Step) error {
	var errs []error
	for pass := 0; len(steps) > 0; pass++ {
		if pass == maxPasses {
			return errors.Join(append(errs, errors.New("not as recorded after the restore: "+stepReasons(steps)))...)
		}
		errs = nil
		for _, alike := range batchSteps(steps) {
			if err := w.applySteps(alike); err != nil {
				errs = append(errs, err)
			}
		}
		remaining, err := w.plan()
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		steps = remaining
	}
	return errors.Join(errs...)
}

// applySteps runs steps that batchSteps has grouped.
func (w *attachmentRestore) applySteps(steps []Step) (err error) {
	t := target{namespace: w.sandbox, index: w.index, parentAt: w.node.host, related: w.parent.Index, recorded: w.record.Interface, wanted: w.wanted}
	switch {
	case steps[0].Action == MoveNIC:
		unlock, err := w.node.store.LockNode(context.Background(), checkpoint.HostLock)
		if err != nil {
			return err
		}
		defer unlock()
		if t.related, err = (stepRunner{namespace: w.node.host}).check(w.parent); err != nil {
			return err
		}
	case w.record.Interface.ParentsInSandbox:
		t.parentAt = w.sandbox
	}
	err = t.apply(steps...)
	w.built = t.built
	return err
}

func (w *attachmentRestore) isNIC() bool { return w.record.Interface.Link.Kind == netstate.KindNIC }

// checkCarrier notes which device without carrier cuts the attachment off.
func (w *attachmentRestore) checkCarrier() {
	o := w.outcome
	w.state.parentIndex = w.parent.Index
	switch {
	case !w.record.Interface.Link.Up: // As recorded.
	case len(checkpoint.HostParents(w.record.Interface)) > 0 && !w.parent.Carrier:
		o.NoCarrier = w.parent.Name
	case !w.carrier:
		o.NoCarrier, o.OwnLink = w.record.Interface.Link.Name, true
	}
}

// noteOwed writes into the record that an announcement is owed, before anything is changed, unless the record tells it anyway. If it
// cannot be written, saveRecord says so. A member's index tells it to a restore alone: a capture between the kill and that restore
// writes the new index, so it is not enough where the interface itself is changed.
func (w *attachmentRestore) noteOwed() {
	found := w.state.foundParents
	evident := w.record.HasOldParent(found) || len(w.outcome.Steps) == 0 && tellsChange(w.record, found)
	if isAnnounced(w.record.Interface) && !evident && writeOwed(w.node.store, w.record.Attachment, true) == nil {
		w.record.AnnouncementOwed = true
	}
}

// saveRecord writes into the record what the next restore needs: the new names and hardware of the parents, the
// interface's index, and whether an announcement is owed. So nobody has to give --parent again.
//
// Old indices of the parents in the record show a loss (Losses). After a kill, they show that the restore has to go on.
// So they are written last (saveIndices), or here with all else if the interface is whole and no other interface of the sandbox can
// depend on it.
func (w *attachmentRestore) saveRecord(whole bool) error {
	link, recorded, found := &w.record.Interface.Link, w.record.Interface.Parents, w.state.foundParents
	if w.index == 0 {
		w.index = link.Index // The interface is not there: creating it failed.
	}
	if (w.isNIC() || chainKey(found) == chainKey(recorded)) && link.Index == w.index && w.record.AnnouncementOwed == w.outcome.AnnouncementOwed {
		return nil
	}
	if !w.isNIC() {
		w.record.Interface.Parents = found
		if whole && w.state.sandbox.records == 1 {
			w.state.foundParents = nil // saveIndices has nothing to write.
		} else {
			w.record.Interface.Parents = netstate.WithIndices(found, recorded)
		}
	}
	link.Index, w.record.AnnouncementOwed = w.index, w.outcome.AnnouncementOwed
	return w.node.store.Save(w.record)
}

// saveIndices writes the new indices of the parents of all attachments that are as recorded: into one file, or else into each record. A
// sandbox that is busy keeps the old indices: who is at work on it looks for itself, or the next restore does.
func (c *chainRestore) saveIndices(ctx context.Context) {
	var states []*attachmentState
	var targets []checkpoint.Record
	var renewals []checkpoint.Renewal
	c.attachments.change(func() {
		for _, s := range c.attachments.states {
			if s.outcome.IsAsRecorded() && s.foundParents != nil && !netstate.SameIndices(s.foundParents, s.listed.Interface.Parents) {
				states, targets = append(states, s), append(targets, *s.listed)
				renewals = append(renewals, checkpoint.Renewal{Record: *s.listed, Parents: s.foundParents})
			}
			s.foundParents = nil
		}
	})
	limited, cancel := context.WithTimeout(ctx, busyTimeout) // Neighbours may wait to be told.
	defer cancel()
	store := c.run.node.store
	if c.run.opts.DryRun || len(states) == 0 || store.RenewIndices(limited, renewals) == nil {
		return
	}
	runner := change.NewRunner(store)
	runner.Patience = busyTimeout
	for i, err := range runner.Run(ctx, targets, func(i int) error { return saveParents(store, renewals[i]) }) {
		if err != nil && !errors.Is(err, checkpoint.ErrBusy) && !errors.Is(err, change.ErrNotTried) {
			c.attachments.change(func() { states[i].outcome.Fail(err) })
		}
	}
}

// saveParents is saveIndices for one record. The caller holds the sandbox's lock.
func saveParents(store *checkpoint.Store, n checkpoint.Renewal) error {
	record, err := store.Reload(n.Record)
	if errors.Is(err, checkpoint.ErrNoCheckpoint) {
		return nil
	}
	if err != nil || netstate.SameIndices(n.Parents, record.Interface.Parents) || chainKey(n.Parents) != chainKey(record.Interface.Parents) {
		return err
	}
	record.Interface.Parents = n.Parents
	return store.Save(record)
}
