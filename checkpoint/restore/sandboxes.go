package restore

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
)

// busyTimeout is how long a restore that nobody asked for waits for a sandbox on which somebody else is at work. It comes
// again, and until it ends nobody is told of the others. Every restore waits as long to write new indices.
const busyTimeout = 2 * time.Second

// sandboxAction is the restore of a chain's attachments in one sandbox.
type sandboxAction struct {
	records  []checkpoint.Record
	outcomes []*Outcome
}

func (a *sandboxAction) Target() checkpoint.Record { return a.records[0] }

func (a *sandboxAction) Fail(err error) {
	for _, record := range a.records {
		o := outcomeOf(record)
		o.setFailed(err)
		a.outcomes = append(a.outcomes, o)
	}
}

// restoreSandboxes restores the chain's attachments: those of one sandbox one after the other, and different
// sandboxes at the same time.
func (c *chainRestore) restoreSandboxes(ctx context.Context) (outcomes []*Outcome) {
	change.Run(ctx, c.run.runner, c.actions, func(a *sandboxAction) error {
		a.outcomes = c.restoreSandbox(a.records)
		return nil
	})
	for _, a := range c.actions {
		outcomes = append(outcomes, a.outcomes...)
	}
	return outcomes
}

// bySandbox groups the records by container ID, which they are sorted by. In a group, records on a
// device inside of the sandbox come last. Before them come records without an index, so that they do not
// take an index that another record has.
func bySandbox(records []checkpoint.Record) (actions []*sandboxAction) {
	for start, i := 0, 1; i <= len(records); i++ {
		if i == len(records) || records[i].Attachment.ContainerID != records[start].Attachment.ContainerID {
			actions, start = append(actions, &sandboxAction{records: records[start:i:i]}), i
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
	for _, action := range actions {
		slices.SortStableFunc(action.records, func(a, b checkpoint.Record) int { return depth(a) - depth(b) })
	}
	return actions
}

// restoreSandbox restores the attachments of one sandbox. The caller holds its lock.
func (c *chainRestore) restoreSandbox(records []checkpoint.Record) (outcomes []*Outcome) {
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
