package restore

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/inparallel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// workersPerCPU is how many sandboxes are restored at once for each CPU. Most of them wait for their
// turn: pkg/kernel lets one at a time change something in the kernel.
const workersPerCPU = 4

// busyTimeout is how long a restore that nobody asked for waits for a sandbox on which somebody else is at work. It comes
// again, and until it ends nobody is told of the others.
const busyTimeout = 2 * time.Second

// restoreSandboxes restores the chain's attachments: those of one sandbox one after the other, and different
// sandboxes at the same time.
func (c *chainRestore) restoreSandboxes(ctx context.Context) []*Outcome {
	outcomes := make([][]*Outcome, len(c.groups))
	finish := func(i int, unlock func(), err error) {
		outcomes[i] = c.restoreSandbox(ctx, c.groups[i], unlock, err)
		c.progress()
	}
	var waiting sync.WaitGroup
	inparallel.Do(cap(c.workers), len(c.groups), func(i int) {
		c.workers <- struct{}{}
		defer func() { <-c.workers }()
		unlock, err := c.tryLock(c.groups[i])
		if !errors.Is(err, checkpoint.ErrBusy) {
			finish(i, unlock, err)
			return
		}
		// Somebody is at work on this sandbox. The others do not wait for that.
		waiting.Go(func() {
			unlock, err := c.lock(ctx, c.groups[i])
			finish(i, unlock, err)
		})
	})
	waiting.Wait()
	return slices.Concat(outcomes...)
}

// progress counts one more as done.
func (r *restoreRun) progress() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.finished++
	if r.Progress != nil {
		r.Progress(r.finished, r.groups)
	}
}

// bySandbox groups the records by container ID, which they are sorted by. In a group, records on a
// device inside of the sandbox come last. Before them come records without an index, so that they do not
// take an index that another record has.
func bySandbox(records []checkpoint.Record) [][]checkpoint.Record {
	var groups [][]checkpoint.Record
	for start, i := 0, 1; i <= len(records); i++ {
		if i == len(records) || records[i].Attachment.ContainerID != records[start].Attachment.ContainerID {
			groups, start = append(groups, records[start:i:i]), i
		}
	}
	depth := func(r checkpoint.Record) int {
		switch i := &r.Interface; {
		case i.ParentsInSandbox:
			return 1 + len(i.Parents)
		case i.Link.Index == 0:
			return 1
		}
		return 0
	}
	for _, group := range groups {
		slices.SortStableFunc(group, func(a, b checkpoint.Record) int { return depth(a) - depth(b) })
	}
	return groups
}

// restoreSandbox restores the attachments of one sandbox under its lock, and then calls unlock. err is
// the error of locking: if there is one, it reports that.
func (c *chainRestore) restoreSandbox(ctx context.Context, records []checkpoint.Record, unlock func(), err error) []*Outcome {
	if err == nil {
		defer unlock()
	}
	var outcomes []*Outcome
	if err != nil || ctx.Err() != nil {
		for _, record := range records {
			o := outcomeOf(record)
			if ctx.Err() != nil {
				c.setInterrupted(&record, o)
			} else {
				o.setFailed(err)
			}
			outcomes = append(outcomes, o)
		}
		return outcomes
	}
	for _, record := range records {
		if o := c.restoreCurrent(record); o != nil {
			outcomes = append(outcomes, o)
		}
	}
	outcomes = c.restoreDependents(records, outcomes)
	id := records[0].Attachment.ContainerID
	if s := c.shared[id]; s != nil {
		s.restoreEarlier(c, records, outcomes)
	}
	if c.multipleRecords[id] {
		c.saveIndices(outcomes)
	}
	return outcomes
}

// setInterrupted says that an interrupt came before the attachment, and what was missing for it.
func (c *chainRestore) setInterrupted(record *checkpoint.Record, o *Outcome) {
	device, awaited := c.awaitedDevice(record)
	if device == "" {
		o.setFailed(errors.New("interrupted before it was looked at"))
		return
	}
	o.awaited = device
	o.setFailed(fmt.Errorf("interrupted while waiting for %s; not restored", awaited))
}

// awaitedDevice returns the recorded name of the device of the host that the attachment had to wait for,
// and in words what it waited for. device is empty if it waited for nothing.
func (c *chainRestore) awaitedDevice(record *checkpoint.Record) (device, awaited string) {
	if link := record.Interface.Link; link.Kind == netstate.KindNIC {
		if _, problem := c.afterPlan.findHostNIC(link); problem == nil || !problem.Transient || c.isInSandbox(*record) {
			return "", ""
		}
		return nameInHost(link), nameInHost(link)
	}
	if !onHost(record) {
		return "", ""
	}
	parents := record.Interface.Parents
	result, lacking, _, err := c.afterPlan.chain(parents)
	switch {
	case err != nil:
		return "", ""
	case result.blocker != nil && result.blocker.Transient:
		name := parents[result.blockerIndex].Name
		return name, name
	}
	for _, step := range lacking {
		if slices.Contains(c.udevPending, step.planned.Index) {
			return step.Device, "udev to be done with " + step.Device
		}
	}
	return "", ""
}

// restoreDependents restores again what depends on other interfaces of the sandbox, because these are there by
// now: an attachment that failed, and one that was done before another one was changed.
func (c *chainRestore) restoreDependents(records []checkpoint.Record, outcomes []*Outcome) []*Outcome {
	changedAfter := false
	repeat := make([]bool, len(outcomes))
	for i, o := range slices.Backward(outcomes) {
		repeat[i] = hasDependentRoutes(o.Interface) && (o.State == Failed || changedAfter)
		changedAfter = changedAfter || len(o.Steps) > 0 && !c.DryRun
	}
	for i, o := range outcomes {
		if !repeat[i] {
			continue
		}
		for _, record := range records {
			if record.Attachment != o.Attachment {
				continue
			}
			if outcome := c.restoreCurrent(record); outcome != nil {
				outcomes[i] = outcome.addEarlier(o)
			}
		}
	}
	return outcomes
}

// hasDependentRoutes says that routes of the interface depend on other interfaces: they go through those, or
// have one of their addresses as source.
func hasDependentRoutes(i netstate.Interface) bool {
	addresses := map[netip.Addr]bool{{}: true}
	for _, a := range i.Addresses {
		addresses[a.Prefix.Addr()] = true
	}
	return slices.ContainsFunc(i.Routes, func(route netstate.Route) bool { return len(route.Devices()) > 0 || !addresses[route.Source] })
}

// addEarlier adds to the outcome what was done on the same attachment the first time.
func (o *Outcome) addEarlier(first *Outcome) *Outcome {
	if o.Steps = slices.Concat(first.Steps, o.Steps); len(o.Steps) > 0 && o.IsAsRecorded() {
		o.State, o.Reason = stateAfter(o.Steps, Restored, Repaired), stepReasons(o.Steps)
	}
	if o.ParentReason == "" {
		o.ParentReason = first.ParentReason
	}
	if o.namespace == (attachment.Namespace{}) {
		o.namespace = first.namespace
	}
	o.Announced, o.recordSaved = o.Announced || first.Announced, o.recordSaved || first.recordSaved
	return o
}

// restoreCurrent restores the attachment by its record as it is now: an ADD or a DEL may have changed
// it since the list was read. It returns nil if the attachment was detached.
func (c *chainRestore) restoreCurrent(listed checkpoint.Record) *Outcome {
	record, err := c.Store.Reload(listed)
	if errors.Is(err, checkpoint.ErrNoCheckpoint) {
		return nil
	}
	if err != nil {
		o := outcomeOf(listed)
		o.setFailed(err)
		return o
	}
	if record.CapturedAt.Equal(listed.CapturedAt) {
		// This run may have written new names into it already. --parent must not be
		// applied to those again.
		record.Interface.Parents = listed.Interface.Parents
	}
	o := outcomeOf(record)
	c.restoreAttachment(record, o)
	return o
}

func (r *restoreRun) lock(ctx context.Context, records []checkpoint.Record) (unlock func(), err error) {
	mu := r.processLock(records)
	mu.Lock()
	if r.DryRun {
		return mu.Unlock, nil
	}
	if r.unasked {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, busyTimeout)
		defer cancel()
	}
	unlock, err = r.Store.Lock(ctx, records[0].Attachment.ContainerID)
	return unlockBoth(mu, unlock, err)
}

// tryLock returns checkpoint.ErrBusy where lock would wait. A dry run takes no lock of the store.
func (r *restoreRun) tryLock(records []checkpoint.Record) (unlock func(), err error) {
	mu := r.processLock(records)
	if !mu.TryLock() {
		return nil, checkpoint.ErrBusy
	}
	if r.DryRun {
		return mu.Unlock, nil
	}
	unlock, err = r.Store.TryLockRecord(records[0])
	return unlockBoth(mu, unlock, err)
}

// processLock returns what the run's chains lock before they lock the sandbox for other processes.
func (r *restoreRun) processLock(records []checkpoint.Record) *sync.Mutex {
	if s := r.shared[records[0].Attachment.ContainerID]; s != nil {
		return &s.mu
	}
	return &sync.Mutex{}
}

// unlockBoth returns what unlocks both locks. If there is an error, it has unlocked mu.
func unlockBoth(mu *sync.Mutex, unlock func(), err error) (func(), error) {
	if err != nil {
		mu.Unlock()
		return nil, err
	}
	return func() { unlock(); mu.Unlock() }, nil
}
