package agent

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kernel"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/printable"
)

const (
	// idleLook is the least time between two looks at the devices. busyLook replaces it during a restore: each step of
	// a restore causes an event.
	idleLook = 10 * time.Millisecond
	busyLook = 100 * time.Millisecond
	// round is how often the loop looks at everything without an event. Some changes cause no event, such as the
	// carrier of a NIC in a sandbox. An event of the file system can be lost.
	round = time.Minute
	// owedRound is the round while announcements are owed, or a restore is under way that may be killed.
	owedRound = time.Second
	// absentRound is how often the agent searches again for a sandbox that was not found.
	absentRound = 5 * time.Minute
)

// loop handles one event after the other until ctx is done.
func (a *Agent) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		a.comesRound()
		timer.Reset(a.nextWake(time.Now()))
		select {
		case <-ctx.Done():
			return
		case <-a.watch.Changed():
			a.Observer.Woke(FromDevices)
			changes := a.watch.Take()
			if changes.Overrun {
				a.overruns++
			}
			a.stale = a.stale || changes.Overrun || len(changes.List) > 0
		case <-a.index.changed:
			a.Observer.Woke(FromCheckpoints)
			a.outdated = true
		case <-a.findings: // decide reads the findings.
			a.Observer.Woke(FromFindings)
		case e := <-a.ended:
			a.Observer.Woke(FromRestores)
			a.finish(e)
		case request := <-a.requests:
			a.Observer.Woke(FromRequests)
			request()
		case <-timer.C:
			a.Observer.Woke(FromTimer)
			a.roundIsOver(time.Now())
		}
		if (a.stale || a.outdated) && time.Now().Before(a.mayLook()) {
			continue // The timer ends when the loop may look.
		}
		if a.outdated {
			a.readIndex()
		}
		if a.stale {
			if err := a.look(ctx); err != nil {
				a.Log.Error("the agent cannot read the host's devices", "error", err)
			}
			continue
		}
		a.decide(ctx)
	}
}

// readIndex reads the checkpoints that have changed.
func (a *Agent) readIndex() {
	a.outdated, a.stale = false, true
	if err := a.index.take(); err != nil {
		a.Log.Warn("some checkpoints are not watched: the agent reads them once a minute", "error", err)
	}
	if len(a.index.moving) > 0 {
		a.unfinished.Store(true) // Nobody knows whether that move will be killed.
	}
	a.regroup()
}

// mayLook is when the loop may look at the devices and the checkpoints again.
func (a *Agent) mayLook() time.Time {
	if a.running > 0 {
		return a.looked.Add(busyLook)
	}
	return a.looked.Add(idleLook)
}

// nextWake is how long the loop may wait for an event.
func (a *Agent) nextWake(now time.Time) time.Duration {
	until := now.Add(min(a.Patience, round))
	earlier := func(t time.Time) {
		if !t.IsZero() && t.Before(until) {
			until = t
		}
	}
	if a.stale || a.outdated {
		earlier(a.mayLook())
	}
	earlier(a.doubted.Add(round))
	earlier(a.pauseEnds(now))
	for _, d := range a.drifts {
		if !d.Settled {
			earlier(d.Since.Add(driftSettles))
		}
		if d.skipped {
			earlier(d.nextLook)
		}
	}
	for _, f := range a.fates {
		earlier(f.stuckAt())
	}
	for _, c := range a.chains {
		earlier(c.decided.next)
	}
	if a.isOwing() {
		earlier(a.looked.Add(owedRound))
	}
	return max(until.Sub(now), 0)
}

// roundIsOver looks again at what causes no event.
func (a *Agent) roundIsOver(now time.Time) {
	if now.Sub(a.doubted) >= round { // looked does not serve here: on a node with events every second it is never a round ago.
		a.doubted = now
		a.index.doubt()
	}
	if now.Sub(a.looked) >= round || a.isOwing() && now.Sub(a.looked) >= owedRound {
		a.stale = true
	}
	if a.lookAgainForAbsent(now) {
		a.regroup()
		a.stale = true
	}
	if ends := a.pauseEnds(now); !ends.IsZero() && !now.Before(ends) {
		a.endPause("its time is over")
	}
}

func (a *Agent) isOwing() bool {
	return a.noted || a.unfinished.Load() || slices.ContainsFunc(a.chains, func(c *chain) bool { return len(c.owed) > 0 })
}

// oweUnsettled makes the agent announce what a killed restore may not have announced, whoever ran it. The changed
// checkpoints wake the loop.
func (a *Agent) oweUnsettled() {
	if a.noted = a.Store.RestoreNoted(); !a.noted {
		return
	}
	err := a.restorer.OweUnsettled()
	if err == nil {
		return
	}
	if text := printable.Joined(err); a.noteComplaints.isNew(attachment.Namespace{}, text, time.Now()) {
		a.Log.Warn("a restore was killed, and the agent cannot note that the neighbours are still to be told", "error", text)
	}
}

// regroup groups the records into chains again. What the loop knows about a chain stays with its base.
func (a *Agent) regroup() {
	records := a.index.records()
	a.nics = restore.NICs(records)
	a.lookAtUnindexed(records)
	living := a.withoutAbsent(records)
	a.keeper.Know(living, a.count().Unreadable == 0)
	known := map[string]*chain{}
	for _, c := range a.chains {
		known[c.name] = c
	}
	var chains []*chain
	for _, now := range restore.Chains(living, nil) {
		name := nameOf(now)
		c := known[name]
		if c == nil {
			c = &chain{name: name, since: time.Now()}
		}
		delete(known, name) // After an exchange of NICs, two chains may have the same base name.
		c.Chain = now
		if owed := a.restorer.Unannounced(c.unknownOwed()); owed != nil {
			c.owed = append(c.owed, owed)
		}
		chains = append(chains, c)
	}
	for _, c := range known {
		if c.view.running || len(c.owed) > 0 {
			c.Records = nil
			chains = append(chains, c)
		}
	}
	a.chains = chains
}

// look looks at the devices. Then it decides.
func (a *Agent) look(ctx context.Context) error {
	a.stale, a.looked = false, time.Now()
	devices, err := a.restorer.Host().Devices()
	if err != nil {
		a.stale = true
		return err
	}
	a.devices = devices
	a.oweUnsettled()
	a.announceOwed()
	a.decide(ctx)
	return nil
}

// announceOwed announces addresses that are owed and have carrier now.
func (a *Agent) announceOwed() {
	for _, c := range a.chains {
		var left []*restore.Result
		for _, r := range c.owed {
			owed, err := r.Reconnect()
			if err != nil {
				a.Log.Warn("the neighbours cannot be told", "base", c.Base, "error", err)
			}
			if owed > 0 {
				left = append(left, r)
				continue
			}
			a.announced(c, r)
		}
		c.owed = left
		a.observeConnected(c)
	}
}

// decide decides about all chains, and starts their restores.
func (a *Agent) decide(ctx context.Context) {
	a.settleSeen()
	now := time.Now()
	lost := map[attachment.Key]bool{}
	for _, c := range a.chains {
		c.losses = a.lossesOf(c)
		for i, l := range c.losses {
			if l != nil {
				lost[c.Records[i].Attachment] = true
			}
		}
	}
	a.lookAtDrift(lost, now)
	for _, c := range a.chains {
		before := c.view.lost
		c.look(a.devices, a.withoutTakenAway(c), a.nics, a.RebuildBond, now)
		if before == 0 && c.view.lost > 0 {
			a.lost(c)
			a.observeLoss(c)
		}
		a.observeWhole(c)
	}
	rules := rules{paused: a.paused != nil, pauseEnds: a.pauseEnds(now), guarded: len(lost) > 0 && a.Store.Guarded(), grace: a.HostGrace}
	a.tellChanges(rules.paused || rules.guarded, now)
	for _, c := range a.chains {
		was := c.decided
		d := c.decide(rules, now)
		if d.reason != was.reason || d.state != was.state {
			a.Log.Debug("chain", "base", c.Base, "state", string(d.state), "reason", d.reason)
		}
		if d.restore && ctx.Err() == nil {
			a.start(ctx, c, d.theirs, lost)
		}
	}
	a.publish()
}

// lossesOf returns the losses of the chain's records.
func (a *Agent) lossesOf(c *chain) []*restore.Loss {
	losses := restore.Losses(a.devices, c.Records)
	for i, r := range c.Records {
		if losses[i] == nil {
			losses[i] = cmp.Or(a.unindexed[r.Attachment], a.awayNICs[r.Attachment])
		}
	}
	return losses
}

// start starts a restore of the records that are ready in the chain.
func (a *Agent) start(ctx context.Context, c *chain, theirs bool, lost map[attachment.Key]bool) {
	task := c.task(a.nics, a.RebuildBond, theirs)
	ready := task.Outlook(a.devices, noUdev).Ready
	others := beside(ready, a.index.sandboxes, lost)
	c.view.running, c.tried = true, c.picture
	a.running++
	held := sandboxesOf(ready)
	go func() {
		began := time.Now()
		a.hold(ctx, held)
		// The end of ctx does not stop a restore: a half-built interface helps nobody.
		result, err := a.restorer.Restore(context.WithoutCancel(ctx), task, ready, others)
		a.ended <- ended{chain: c, result: result, err: err, took: time.Since(began), ready: keysOf(ready), records: slices.Concat(ready, others), held: held}
	}()
}

// holdLimit bounds the wait for checkpoints that are out of date. Reading 250 sandboxes takes much less.
const holdLimit = 2 * time.Second

// hold makes the refresher write what it knows about the sandboxes. After that the refresher leaves them alone.
func (a *Agent) hold(ctx context.Context, containerIDs []string) {
	ctx, cancel := context.WithTimeout(ctx, holdLimit)
	defer cancel()
	a.refresher.Hold(ctx, containerIDs...)
}

// sandboxesOf returns the container IDs of the records, each once.
func sandboxesOf(records []checkpoint.Record) (ids []string) {
	for _, r := range records {
		ids = append(ids, r.Attachment.ContainerID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// noUdev is for an outlook that does not ask udev, because the wait for udev is over.
func noUdev(int) (bool, error) { return true, nil }

// finish handles the end of a restore.
func (a *Agent) finish(e ended) {
	a.running--
	for _, id := range e.held {
		a.refresher.Release(id)
	}
	c := e.chain
	c.view.running, c.view.lastTry, c.endedAt = false, time.Now(), time.Now()
	a.stale, a.looked = true, time.Time{}
	if e.err != nil {
		c.view.failures++
		c.view.why = printable.Joined(e.err)
		a.failed(c, e)
		a.observeTry(e)
		return
	}
	a.noteAbsent(e, time.Now())
	a.askAbout(e.result.Absent)
	for _, o := range e.result.Attachments {
		// The restore has changed the records. The loop must not decide by the old ones.
		if err := a.index.read(o.Attachment.ContainerID); err != nil {
			a.Log.Warn("a sandbox's checkpoints are not watched", "sandbox", o.Attachment.ContainerID, "error", err)
		}
		if o.IsAsRecorded() {
			delete(a.unindexed, o.Attachment)
			delete(a.awayNICs, o.Attachment)
		}
	}
	a.regroup()
	if why := failures(e.result, e.ready); why != "" {
		c.view.failures++
		c.view.why = why
	} else {
		c.view.failures, c.view.why = 0, ""
	}
	if e.result.Owed() > 0 {
		c.owes(e.result)
	}
	a.restored(c, e)
	a.observeTry(e)
}

// keysOf returns the keys of the records.
func keysOf(records []checkpoint.Record) map[attachment.Key]bool {
	keys := map[attachment.Key]bool{}
	for _, r := range records {
		keys[r.Attachment] = true
	}
	return keys
}

// failures says what failed of the attachments that were ready, or else of the host's devices. It is "" if nothing
// failed. Another attachment of the same sandboxes can lack a device of another base.
func failures(r *restore.Result, ready map[attachment.Key]bool) string {
	absent := map[attachment.Key]bool{}
	for _, key := range r.Absent {
		absent[key] = true
	}
	for _, o := range r.Attachments {
		if o.State == restore.Failed && ready[o.Attachment] && !absent[o.Attachment] {
			return o.Why()
		}
	}
	for _, step := range r.Parents {
		if step.Error != "" {
			return step.Error
		}
	}
	return ""
}

// lookAtUnindexed finds out what became of interfaces whose records do not have the index of the parent. An older
// relink and relink import write such records.
func (a *Agent) lookAtUnindexed(records []checkpoint.Record) {
	for _, r := range records {
		if !restore.Unindexed(r) {
			delete(a.unindexed, r.Attachment)
			continue
		}
		if a.unindexed[r.Attachment] != nil {
			continue
		}
		if loss := lossOfUnindexed(r); loss != nil {
			a.unindexed[r.Attachment] = loss
		}
	}
}

// lossOfUnindexed looks into the sandbox for a loss. It returns nil if it cannot look.
func lossOfUnindexed(r checkpoint.Record) *restore.Loss {
	base := netstate.ChainNames(r.Interface.Parents)[0]
	sandbox, err := kernel.OpenSame(r.Namespace)
	if err != nil {
		return nil
	}
	defer sandbox.Close()
	there, err := sandbox.Exists(r.Interface.Link.Name)
	switch {
	case err != nil:
		return nil
	case there:
		return &restore.Loss{Device: base, Member: true, Reason: "the checkpoint does not have the indices of the parents: the agent adds them"}
	}
	return &restore.Loss{Device: base, Reason: r.Interface.Link.Name + " is gone, and its checkpoint does not have the indices of the parents"}
}
