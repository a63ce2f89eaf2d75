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
	"github.com/relink-cni/relink/pkg/flock"
	"github.com/relink-cni/relink/pkg/inparallel"
	"github.com/relink-cni/relink/pkg/netstate"
)

// workersPerCPU is how many sandboxes are restored at once for each CPU. Most of them wait for their
// turn: pkg/kernel lets one at a time change something in the kernel.
const workersPerCPU = 4

// busyPatience is how long a restore that nobody asked for waits for a sandbox on which somebody else is at work. It comes
// again, and until it ends nobody is told of the others.
const busyPatience = 2 * time.Second

// sandboxes restores the chain's attachments: those of one sandbox one after the other, and different
// sandboxes at the same time.
func (c *chain) sandboxes(ctx context.Context) []*Outcome {
	outcomes := make([][]*Outcome, len(c.groups))
	finish := func(i int, unlock func(), err error) {
		outcomes[i] = c.sandbox(ctx, c.groups[i], unlock, err)
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
func (r *run) progress() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.done++
	if r.Progress != nil {
		r.Progress(r.done, r.groups)
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
func (c *chain) sandbox(ctx context.Context, records []checkpoint.Record, unlock func(), err error) []*Outcome {
	if err == nil {
		defer unlock()
	}
	var outcomes []*Outcome
	if err != nil || ctx.Err() != nil {
		for _, record := range records {
			o := outcomeOf(record)
			if ctx.Err() != nil {
				c.interrupted(&record, o)
			} else {
				o.fail(err)
			}
			outcomes = append(outcomes, o)
		}
		return outcomes
	}
	for _, record := range records {
		if o := c.current(record); o != nil {
			outcomes = append(outcomes, o)
		}
	}
	outcomes = c.onceMore(records, outcomes)
	id := records[0].Attachment.ContainerID
	if s := c.shared[id]; s != nil {
		s.leaningOn(c, records, outcomes)
	}
	if c.several[id] {
		c.rememberIndices(outcomes)
	}
	return outcomes
}

// interrupted says that an interrupt came before the attachment, and what was missing for it.
func (c *chain) interrupted(record *checkpoint.Record, o *Outcome) {
	device, what := c.waitedFor(record)
	if device == "" {
		o.fail(errors.New("interrupted before it was looked at"))
		return
	}
	o.waitedFor = device
	o.fail(fmt.Errorf("interrupted while waiting for %s; not restored", what))
}

// waitedFor returns the recorded name of the device of the host that the attachment had to wait for,
// and in words what it waited for. device is empty if it waited for nothing.
func (c *chain) waitedFor(record *checkpoint.Record) (device, what string) {
	if link := record.Interface.Link; link.Kind == netstate.KindNIC {
		if _, problem := c.after.nic(link); problem == nil || !problem.Waiting || c.isInPlace(*record) {
			return "", ""
		}
		return nameInHost(link), nameInHost(link)
	}
	if !onHost(record) {
		return "", ""
	}
	parents := record.Interface.Parents
	result, lacking, _, err := c.after.chain(parents)
	switch {
	case err != nil:
		return "", ""
	case result.broken != nil && result.broken.Waiting:
		name := parents[result.brokenAt].Name
		return name, name
	}
	for _, step := range lacking {
		if slices.Contains(c.unnamed, step.at.Index) {
			return step.Device, "udev to be done with " + step.Device
		}
	}
	return "", ""
}

// onceMore restores again what depends on other interfaces of the sandbox, because these are there by
// now: an attachment that failed, and one that was done before another one was changed.
func (c *chain) onceMore(records []checkpoint.Record, outcomes []*Outcome) []*Outcome {
	changedAfter := false
	again := make([]bool, len(outcomes))
	for i, o := range slices.Backward(outcomes) {
		again[i] = leans(o.Interface) && (o.State == Failed || changedAfter)
		changedAfter = changedAfter || len(o.Steps) > 0 && !c.DryRun
	}
	for i, o := range outcomes {
		if !again[i] {
			continue
		}
		for _, record := range records {
			if record.Attachment != o.Attachment {
				continue
			}
			if now := c.current(record); now != nil {
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
func (c *chain) current(listed checkpoint.Record) *Outcome {
	record, err := c.Store.Reload(listed)
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
	c.attachment(record, o)
	return o
}

func (r *run) lock(ctx context.Context, of []checkpoint.Record) (unlock func(), err error) {
	mu := r.inProcess(of)
	mu.Lock()
	if r.DryRun {
		return mu.Unlock, nil
	}
	patience := flock.Patience
	if r.unasked {
		patience = busyPatience
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	unlock, err = r.Store.Lock(ctx, of[0].Attachment.ContainerID)
	return both(mu, unlock, err)
}

// tryLock returns checkpoint.ErrBusy where lock would wait. A dry run takes no lock of the store.
func (r *run) tryLock(of []checkpoint.Record) (unlock func(), err error) {
	mu := r.inProcess(of)
	if !mu.TryLock() {
		return nil, checkpoint.ErrBusy
	}
	if r.DryRun {
		return mu.Unlock, nil
	}
	unlock, err = r.Store.TryLockOf(of[0])
	return both(mu, unlock, err)
}

// inProcess returns what the run's chains lock before they lock the sandbox for other processes.
func (r *run) inProcess(of []checkpoint.Record) *sync.Mutex {
	if s := r.shared[of[0].Attachment.ContainerID]; s != nil {
		return &s.mu
	}
	return &sync.Mutex{}
}

// both returns what unlocks both locks. If there is an error, it has unlocked mu.
func both(mu *sync.Mutex, unlock func(), err error) (func(), error) {
	if err != nil {
		mu.Unlock()
		return nil, err
	}
	return func() { unlock(); mu.Unlock() }, nil
}
