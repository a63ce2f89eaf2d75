package restore

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/netstate"
)

// workersPerCPU is how many sandboxes are restored at once for each CPU. Most of them wait for their
// turn: pkg/kernel lets one at a time change something in the kernel.
const workersPerCPU = 4

// sandboxes restores the attachments: those of one sandbox one after the other, and different
// sandboxes at the same time.
func (r *run) sandboxes(ctx context.Context, records []checkpoint.Record) []*Outcome {
	groups := bySandbox(records)
	outcomes := make([][]*Outcome, len(groups))
	var workers, waiting errgroup.Group // They return no errors: the outcomes have them.
	workers.SetLimit(workersPerCPU * runtime.GOMAXPROCS(0))
	progress := r.progress(len(groups))
	finish := func(i int, unlock func(), err error) {
		outcomes[i] = r.sandbox(ctx, groups[i], unlock, err)
		progress()
	}
	for i, group := range groups {
		workers.Go(func() error {
			unlock, err := r.tryLock(group)
			if !errors.Is(err, checkpoint.ErrBusy) {
				finish(i, unlock, err)
				return nil
			}
			// Somebody is at work on this sandbox. The others do not wait for that.
			waiting.Go(func() error {
				unlock, err := r.lock(ctx, group)
				finish(i, unlock, err)
				return nil
			})
			return nil
		})
	}
	_ = workers.Wait() // Before the others, which workers start.
	_ = waiting.Wait()
	return slices.Concat(outcomes...)
}

// progress returns a function that counts one more as done.
func (r *run) progress(total int) func() {
	var mu sync.Mutex
	done := 0
	return func() {
		mu.Lock()
		defer mu.Unlock()
		done++
		if r.Progress != nil {
			r.Progress(done, total)
		}
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

// sandbox restores the attachments of one sandbox under its lock, and then calls unlock. err is
// the error of locking: if there is one, it reports that.
func (r *run) sandbox(ctx context.Context, records []checkpoint.Record, unlock func(), err error) []*Outcome {
	if err == nil {
		defer unlock()
	}
	var outcomes []*Outcome
	if err != nil || ctx.Err() != nil {
		for _, record := range records {
			o := outcomeOf(record)
			if ctx.Err() != nil {
				r.interrupted(&record, o)
			} else {
				o.fail(err)
			}
			outcomes = append(outcomes, o)
		}
		return outcomes
	}
	for _, record := range records {
		if o := r.current(record); o != nil {
			outcomes = append(outcomes, o)
		}
	}
	return r.onceMore(records, outcomes)
}

// interrupted says that an interrupt came before the attachment, and what was missing for it.
func (r *run) interrupted(record *checkpoint.Record, o *Outcome) {
	device, what := r.waitedFor(record)
	if device == "" {
		o.fail(errors.New("interrupted before it was looked at"))
		return
	}
	o.waitedFor = device
	o.fail(fmt.Errorf("interrupted while waiting for %s; not restored", what))
}

// waitedFor returns the recorded name of the device of the host that the attachment had to wait for,
// and in words what it waited for. device is empty if it waited for nothing.
func (r *run) waitedFor(record *checkpoint.Record) (device, what string) {
	if link := record.Interface.Link; link.Kind == netstate.KindNIC {
		if _, problem := r.after.nic(link); problem == nil || !problem.Waiting || r.isInPlace(*record) {
			return "", ""
		}
		return nameInHost(link), nameInHost(link)
	}
	if !onHost(record) {
		return "", ""
	}
	parents := record.Interface.Parents
	result, lacking, _, err := r.after.chain(parents)
	switch {
	case err != nil:
		return "", ""
	case result.broken != nil && result.broken.Waiting:
		name := parents[result.brokenAt].Name
		return name, name
	}
	for _, step := range lacking {
		if slices.Contains(r.unnamed, step.at.Index) {
			return step.Device, "udev to be done with " + step.Device
		}
	}
	return "", ""
}

// onceMore restores again what depends on other interfaces of the sandbox, because these are there by
// now: an attachment that failed, and one that was done before another one was changed.
func (r *run) onceMore(records []checkpoint.Record, outcomes []*Outcome) []*Outcome {
	changedAfter := false
	again := make([]bool, len(outcomes))
	for i, o := range slices.Backward(outcomes) {
		again[i] = leans(o.Interface) && (o.State == Failed || changedAfter)
		changedAfter = changedAfter || len(o.Steps) > 0 && !r.DryRun
	}
	for i, o := range outcomes {
		if !again[i] {
			continue
		}
		for _, record := range records {
			if record.Attachment != o.Attachment {
				continue
			}
			if now := r.current(record); now != nil {
				outcomes[i] = now.after(o)
			}
		}
	}
	return outcomes
}

// leans says that routes of the interface depend on other interfaces: they go through those, are in
// one order with their routes, or have one of their addresses as source.
func leans(i netstate.Interface) bool {
	if len(i.RouteOrder) > 0 {
		return true
	}
	own := map[netip.Addr]bool{{}: true}
	for _, a := range i.Addresses {
		own[a.Prefix.Addr()] = true
	}
	return slices.ContainsFunc(i.Routes, func(route netstate.Route) bool { return len(route.Devices()) > 0 || !own[route.Source] })
}

// after adds to the outcome what was done on the same attachment the first time.
func (o *Outcome) after(first *Outcome) *Outcome {
	if o.Steps = slices.Concat(first.Steps, o.Steps); len(o.Steps) > 0 && o.IsAsRecorded() {
		o.State, o.Reason = stateOf(o.Steps, Restored, Repaired), reasons(o.Steps)
	}
	if o.ParentReason == "" {
		o.ParentReason = first.ParentReason
	}
	if o.at == (attachment.Namespace{}) {
		o.at = first.at
	}
	o.Announced, o.settled = o.Announced || first.Announced, o.settled || first.settled
	return o
}

// current restores the attachment by its record as it is now: an ADD or a DEL may have changed
// it since the list was read. It returns nil if the attachment was detached.
func (r *run) current(listed checkpoint.Record) *Outcome {
	record, err := r.Store.Reload(listed)
	if errors.Is(err, checkpoint.ErrNone) {
		return nil
	}
	if err != nil {
		o := outcomeOf(listed)
		o.fail(err)
		return o
	}
	if record.CapturedAt.Equal(listed.CapturedAt) {
		// This run may have written new names into it already. --parent must not be
		// applied to those again.
		record.Interface.Parents = listed.Interface.Parents
	}
	o := outcomeOf(record)
	r.attachment(record, o)
	return o
}

func (r *run) lock(ctx context.Context, of []checkpoint.Record) (func(), error) {
	ctx, cancel := context.WithTimeout(ctx, flock.Patience)
	defer cancel()
	return r.Store.Lock(ctx, of[0].Attachment.ContainerID)
}

// tryLock returns checkpoint.ErrBusy where lock would wait. A dry run locks nothing.
func (r *run) tryLock(of []checkpoint.Record) (func(), error) {
	if r.DryRun {
		return func() {}, nil
	}
	return r.Store.TryLockOf(of[0])
}
