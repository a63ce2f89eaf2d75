package agent

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/printable"
)

const (
	// idleScanInterval is the least time between two looks at the devices. busyScanInterval replaces it during a restore: each step of
	// a restore causes an event.
	idleScanInterval = 10 * time.Millisecond
	busyScanInterval = 100 * time.Millisecond
	// roundInterval is how often the loop looks at everything without an event. Some changes cause no event, such as the
	// carrier of a NIC in a sandbox. An event of the file system can be lost.
	roundInterval = time.Minute
	// owedInterval is the round while announcements are owed, or a restore is under way that may be killed.
	owedInterval = 500 * time.Millisecond
	// absentInterval is how often the agent searches again for a sandbox that was not found.
	absentInterval = 5 * time.Minute
	// holdLimit bounds the wait for checkpoints that are out of date. Reading 250 sandboxes takes much less.
	holdLimit = 2 * time.Second
)

// loop handles one event after the other until ctx is done.
func (a *Agent) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		a.recordRound()
		timer.Reset(a.nextWake(time.Now()))
		var source WakeSource
		select {
		case <-ctx.Done():
			return
		case <-a.watch.Changed():
			source = WakeDevices
			changes := a.watch.Take()
			if changes.Overrun {
				a.overruns++
			}
			a.stale = a.stale || changes.Overrun || len(changes.List) > 0
		case <-a.index.changed:
			source = WakeCheckpoints
			a.outdated = true
		case <-a.findings:
			source = WakeFindings
			a.findingsChanged = true
		case end := <-a.ends:
			source = WakeRestores
			end()
		case request := <-a.requests:
			source = WakeRequests
			request()
		case <-timer.C:
			source = WakeTimer
			a.checkPeriodic(time.Now())
		}
		a.observe(source)
		if (a.stale || a.outdated || a.findingsChanged) && time.Now().Before(a.earliestLook()) {
			continue // The timer ends when the loop may look.
		}
		if a.outdated {
			a.readIndex()
		}
		if a.stale {
			if err := a.scanDevices(ctx); err != nil {
				a.Log.Error("the agent cannot read the host's devices", "error", err)
			}
			continue
		}
		a.decide(ctx)
	}
}

// readIndex reads the checkpoints that have changed.
func (a *Agent) readIndex() {
	a.outdated = false
	if err := a.index.readChanges(); err != nil {
		a.Log.Warn("some checkpoints are not watched: the agent reads them once a minute", "error", err)
	}
	a.stale = a.stale || a.regrouping // What a new record is on can be newer than the last look.
}

// earliestLook is when the loop may look at the devices, the checkpoints and the findings again.
func (a *Agent) earliestLook() time.Time {
	if a.running > 0 {
		return a.decidedAt.Add(busyScanInterval)
	}
	return a.decidedAt.Add(idleScanInterval)
}

// nextWake is how long the loop may wait for an event.
func (a *Agent) nextWake(instant time.Time) time.Duration {
	until := instant.Add(a.LoopInterval)
	earlier := func(t time.Time) {
		if !t.IsZero() && t.Before(until) {
			until = t
		}
	}
	concerns := a.concerns
	if a.stale || a.outdated || a.findingsChanged {
		earlier(a.earliestLook())
		concerns = nil // They are not as soon.
	}
	if a.driftsChanged {
		earlier(a.driftsSavedAt.Add(driftDelay))
	}
	earlier(a.verifiedAt.Add(roundInterval))
	earlier(a.pauseEnds(instant))
	for m := range concerns {
		if d := m.drift; d != nil && !d.Confirmed {
			earlier(d.Since.Add(driftDelay))
		} else if d != nil && d.lookSkipped {
			earlier(d.nextLook)
		}
		if m.lost != nil {
			earlier(m.lost.stuckAt())
		}
	}
	for _, c := range a.chains {
		earlier(c.decided.NextTry)
	}
	if a.hasPending() {
		earlier(a.scannedAt.Add(owedInterval))
	}
	return max(until.Sub(instant), 0)
}

// checkPeriodic looks again at what causes no event.
func (a *Agent) checkPeriodic(instant time.Time) {
	if instant.Sub(a.verifiedAt) >= roundInterval { // scannedAt does not serve here: on a node with events every second it is never a round ago.
		a.verifiedAt = instant
		a.index.checkWatches()
	}
	if instant.Sub(a.scannedAt) >= roundInterval || a.hasPending() && instant.Sub(a.scannedAt) >= owedInterval {
		a.stale = true
	}
	a.expireAbsent(instant)
	if ends := a.pauseEnds(instant); !ends.IsZero() && !instant.Before(ends) {
		a.endPause("its time is over")
	}
}

func (a *Agent) hasPending() bool {
	return a.hasUnfinishedMove.Load() || slices.ContainsFunc(a.chains, func(c *chain) bool { return c.owed > 0 })
}

// scanDevices looks at the devices. Then it decides.
func (a *Agent) scanDevices(ctx context.Context) error {
	a.stale, a.scannedAt, a.decidedAt = false, time.Now(), time.Now()
	devices, err := a.restorer.Host().Devices()
	if err != nil {
		a.stale = true
		return err
	}
	a.devices = devices
	a.judge(slices.Collect(maps.Values(a.stacks))...)
	a.regroup()
	a.announceOwed()
	a.startFinishingMoves() // Not in decide: the end of this wakes the loop.
	a.decide(ctx)
	return nil
}

// announceOwed announces the addresses of which records say that they are owed, and that have carrier now. A record that a restore by hand has
// written, or an earlier agent, counts like any other.
func (a *Agent) announceOwed() {
	owed, records := map[*chain]int{}, map[*chain][]checkpoint.Record{}
	for m := range a.concerns {
		if m.record.AnnouncementOwed && m.stack != nil {
			c := m.stack.chain
			if owed[c]++; !m.isLost() {
				records[c] = append(records[c], m.record)
			}
		}
	}
	for _, c := range a.chains {
		if c.view.running {
			continue
		}
		c.owed = owed[c]
		if waiting := len(records[c]); waiting > 0 {
			rest, err := a.restorer.Unannounced(records[c]).AnnounceConnected()
			if err != nil {
				a.Log.Warn("the neighbours cannot be told", "base", c.name(), "error", err)
			}
			if rest < waiting {
				c.owed -= waiting - rest
				a.Log.Info("the neighbours are told", "base", c.name(), "attachments", waiting-rest)
			}
		}
		a.observeConnected(c)
	}
}

// decide decides about all chains, and starts their restores.
func (a *Agent) decide(ctx context.Context) {
	instant := time.Now()
	a.decidedAt, a.findingsChanged = instant, false
	a.updateDrifts(instant)
	a.regroup()
	a.tellHostAccess()
	lost := 0
	for _, c := range a.chains {
		before := c.view.lost
		c.update(a.devices, a.nics, a.RebuildBond, instant)
		if lost += c.view.lost; before == 0 && c.view.lost > 0 {
			a.Log.Warn("interfaces are lost", "base", c.name(), "attachments", c.view.lost, "why", printable.Line(c.view.reason))
			a.observe(LossCount(c.view.lost))
		}
		if c.outage != nil {
			a.observe(*c.outage)
			c.outage = nil
		}
	}
	rules := rules{paused: a.paused != nil, pauseEnds: a.pauseEnds(instant), guarded: lost > 0 && a.Store.Guarded(), grace: a.HostGrace}
	a.reportChanges(rules.paused || rules.guarded, instant)
	a.tellConnectivity()
	for _, c := range a.chains {
		previous := c.decided
		d := c.decide(rules, instant)
		if d.Reason != previous.Reason || d.State != previous.State {
			a.Log.Debug("chain", "base", c.name(), "state", string(d.State), "reason", d.Reason)
		}
		if d.restore && ctx.Err() == nil {
			a.startRestore(ctx, c, d.allowManagerSteps)
		}
	}
	a.updateStatus()
}

// startRestore starts a restore of the attachments on the stacks that are ready in the chain.
func (a *Agent) startRestore(ctx context.Context, c *chain, allowManagerSteps bool) {
	task := c.task(a.nics, a.RebuildBond, allowManagerSteps)
	var ready []checkpoint.Record
	for _, r := range task.Outlook(a.devices, noUdev).Ready {
		s := a.stacks[r.Attachment.ContainerID]
		for m := range s.members {
			ready, task.Records, task.Losses = append(ready, m.record), append(task.Records, m.record), append(task.Losses, s.loss)
		}
	}
	siblings := a.siblingRecords(ready)
	c.view.running, c.triedPicture = true, c.picture
	a.running++
	task.Ready, task.Beside = ready, siblings
	held, records := sandboxIDs(ready), slices.Concat(ready, siblings)
	go func() {
		began := time.Now()
		// The refresher writes what it knows about the sandboxes. After that it leaves them alone.
		holding, cancel := context.WithTimeout(ctx, holdLimit)
		if !a.refresher.Hold(holding, held...) {
			a.forgetDetached(records)
		}
		cancel()
		// The end of ctx does not stop a restore: a half-built interface helps nobody.
		result, err := a.restorer.Run(context.WithoutCancel(ctx), restore.Options{Task: &task})
		e := restoreEnd{chain: c, result: result, err: err, duration: time.Since(began), ready: checkpoint.KeysOf(ready), records: records, held: held}
		a.ends <- func() { a.finishRestore(e) }
	}()
}

// sandboxIDs returns the container IDs of the records, each once.
func sandboxIDs(records []checkpoint.Record) (ids []string) {
	for _, r := range records {
		ids = append(ids, r.Attachment.ContainerID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// noUdev is for an outlook that does not ask udev, because the wait for udev is over.
func noUdev(int) (bool, error) { return true, nil }

// finishRestore handles the end of a restore.
func (a *Agent) finishRestore(e restoreEnd) {
	a.running--
	defer func() { // After the index: the pods are whole before they are read.
		for _, id := range e.held {
			a.refresher.Release(id)
		}
	}()
	c := e.chain
	c.view.running, c.view.lastTry = false, time.Now()
	a.stale, a.decidedAt, a.regrouping = true, time.Time{}, true
	absent := map[attachment.Key]bool{}
	for _, key := range e.result.Absent {
		absent[key] = true
	}
	if e.err == nil { // Otherwise it has not searched.
		a.noteAbsent(e.records, absent, time.Now())
	}
	// The restore has changed the records. The loop must not decide by the old ones.
	if err := a.index.read(e.held...); err != nil {
		a.Log.Warn("some checkpoints are not watched", "error", err)
	}
	for i := range e.result.Outcomes {
		o := &e.result.Outcomes[i]
		if absent[o.Attachment] {
			o.State = restore.SandboxGone
		}
		if m := a.members[o.Attachment]; m != nil && m.stack != nil && o.IsAsRecorded() {
			m.stack.away = nil
		}
	}
	if c.view.failure = failureReason(e); c.view.failure == "" {
		c.view.failures = 0
	} else {
		c.view.failures++
	}
	c.owed = e.result.CountPending()
	a.logTry(c, e)
	a.observeTry(c, Try{Duration: e.duration, Outcomes: e.result.Outcomes, Reason: c.view.failure})
}

// failureReason says why the restore could look at nothing, or what failed of the attachments that were ready, or else of the host's devices.
// It is "" if nothing failed. Another attachment of the same sandboxes can lack a device of another base.
func failureReason(e restoreEnd) string {
	if e.err != nil {
		return printable.Joined(e.err)
	}
	for _, o := range e.result.Outcomes {
		if o.State == change.Failed && e.ready[o.Attachment] {
			return o.FullReason()
		}
	}
	for _, step := range e.result.Parents {
		if step.Error != "" {
			return step.Error
		}
	}
	return ""
}
