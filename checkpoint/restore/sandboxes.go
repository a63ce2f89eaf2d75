package restore

import (
	"context"
	"errors"
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
// again, and until it ends nobody is told of the others. Every restore waits as long to write new indices.
const busyTimeout = 2 * time.Second

// restoreSandboxes restores the chain's attachments: those of one sandbox one after the other, and different
// sandboxes at the same time.
func (c *chainRestore) restoreSandboxes(ctx context.Context) []*Outcome {
	outcomes := make([][]*Outcome, len(c.groups))
	finish := func(i int, unlock func(), err error) {
		outcomes[i] = c.restoreSandbox(ctx, c.groups[i], unlock, err)
		c.run.progress()
	}
	var waiting sync.WaitGroup
	inparallel.Do(cap(c.run.workers), len(c.groups), func(i int) {
		c.run.workers <- struct{}{}
		defer func() { <-c.run.workers }()
		unlock, err := func() {}, error(nil)
		if !c.run.DryRun {
			unlock, err = c.run.Store.TryLockRecord(c.groups[i][0])
		}
		if !errors.Is(err, checkpoint.ErrBusy) {
			finish(i, unlock, err)
			return
		}
		// Somebody is at work on this sandbox. The others do not wait for that.
		waiting.Go(func() {
			lockCtx, cancel := ctx, func() {}
			if c.run.unasked {
				lockCtx, cancel = context.WithTimeout(ctx, busyTimeout)
			}
			defer cancel()
			unlock, err := c.run.Store.Lock(lockCtx, c.groups[i][0].Attachment.ContainerID)
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
				err = errInterrupted
			}
			o.setFailed(err)
			outcomes = append(outcomes, o)
		}
		return outcomes
	}
	sandbox := c.run.sandboxes[records[0].Attachment.ContainerID]
	sandbox.mu.Lock()
	defer sandbox.mu.Unlock()
	first := len(sandbox.restored)
	for i, record := range records {
		if o := c.restoreCurrent(record); o != nil {
			o.listed = &records[i]
			sandbox.restored = append(sandbox.restored, restoredAttachment{chain: c, outcome: o})
			outcomes = append(outcomes, o)
		}
	}
	sandbox.restoreDependents(first)
	return outcomes
}

// sandboxRestore is a sandbox of the run. Several chains can have attachments in it.
type sandboxRestore struct {
	// chains is the number of those chains, and records that of their records.
	chains, records int
	// restored are the attachments that were restored so far. mu guards it: a dry run takes no other lock.
	mu       sync.Mutex
	restored []restoredAttachment
}

type restoredAttachment struct {
	chain   *chainRestore
	outcome *Outcome
}

// restoreDependents restores again what depends on other interfaces of the sandbox, because these are there by now: an attachment that
// failed, and one that was done before another one was changed. A chain has restored those from the place first on, and others have
// restored those before.
func (s *sandboxRestore) restoreDependents(first int) {
	changedAfter := false
	repeat := make([]bool, len(s.restored))
	for i, r := range slices.Backward(s.restored) {
		repeat[i] = hasDependentRoutes(r.outcome.Interface) && (r.outcome.State == Failed || changedAfter)
		changedAfter = changedAfter || i >= first && len(r.outcome.Steps) > 0 && !r.chain.run.DryRun
	}
	for i, r := range s.restored {
		if !repeat[i] {
			continue
		}
		if outcome := r.chain.restoreCurrent(*r.outcome.listed); outcome != nil {
			r.chain.changeOutcome(func() { *r.outcome = *outcome.addEarlier(r.outcome) })
		}
	}
}

// errInterrupted is the error of what an interrupt came before.
var errInterrupted = errors.New("interrupted before it was restored")

// hasDependentRoutes says that routes of the interface depend on other interfaces.
func hasDependentRoutes(i netstate.Interface) bool {
	return slices.ContainsFunc(i.Routes, func(route netstate.Route) bool { return isDependent(route, i) })
}

// isDependent says that the route of the interface depends on other interfaces: it goes through those, or has one of their addresses as
// source.
func isDependent(route netstate.Route, i netstate.Interface) bool {
	return len(route.Devices()) > 0 || route.Source.IsValid() &&
		!slices.ContainsFunc(i.Addresses, func(a netstate.Address) bool { return a.Prefix.Addr() == route.Source })
}

// addEarlier adds to the outcome what was done on the same attachment the first time.
func (o *Outcome) addEarlier(first *Outcome) *Outcome {
	if o.Steps = slices.Concat(first.Steps, o.Steps); len(o.Steps) > 0 && o.IsAsRecorded() {
		o.State, o.Reason = stateAfter(o.Steps), stepReasons(o.Steps)
	}
	if o.ParentReason == "" {
		o.ParentReason = first.ParentReason
	}
	if o.namespace == (attachment.Namespace{}) {
		o.namespace = first.namespace
	}
	o.listed, o.Announced = first.listed, o.Announced || first.Announced
	return o
}

// restoreCurrent restores the attachment by its record as it is now: an ADD or a DEL may have changed
// it since the list was read. It returns nil if the attachment was detached.
func (c *chainRestore) restoreCurrent(listed checkpoint.Record) *Outcome {
	record, err := c.run.Store.Reload(listed)
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
