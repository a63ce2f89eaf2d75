package agent

import (
	"fmt"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/capture/watch"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
)

// Observer hears what the agent does. The loop calls its methods, so they return at once.
type Observer interface {
	// LoopWoke is called each time the loop wakes, with the cause.
	LoopWoke(WakeSource)
	// Lost is called when a chain that was whole loses interfaces.
	Lost(base string, lost []checkpoint.Record)
	// RestoreTried is called at the end of each try to restore.
	RestoreTried(Try)
	// OutageEnded is called when nothing of a chain is lost any more, and the agent has restored something of it.
	OutageEnded(Outage)
	// Connected is called when there was carrier and the neighbours know all restored addresses. It gets the time since
	// the loss.
	Connected(sinceLoss time.Duration)
	// Changed is called with what has become of interfaces. The list is never empty.
	Changed([]InterfaceChange)
}

// Observers passes each call to all its members, one after the other. An Observer that needs only some methods embeds
// an empty Observers.
type Observers []Observer

// LoopWoke implements Observer.
func (list Observers) LoopWoke(s WakeSource) {
	for _, o := range list {
		o.LoopWoke(s)
	}
}

// Lost implements Observer.
func (list Observers) Lost(base string, lost []checkpoint.Record) {
	for _, o := range list {
		o.Lost(base, lost)
	}
}

// RestoreTried implements Observer.
func (list Observers) RestoreTried(t Try) {
	for _, o := range list {
		o.RestoreTried(t)
	}
}

// OutageEnded implements Observer.
func (list Observers) OutageEnded(out Outage) {
	for _, o := range list {
		o.OutageEnded(out)
	}
}

// Connected implements Observer.
func (list Observers) Connected(sinceLoss time.Duration) {
	for _, o := range list {
		o.Connected(sinceLoss)
	}
}

// Changed implements Observer.
func (list Observers) Changed(changes []InterfaceChange) {
	for _, o := range list {
		o.Changed(changes)
	}
}

// WakeSource is what wakes the loop.
type WakeSource string

// All sources.
const (
	WakeDevices     WakeSource = "devices"
	WakeCheckpoints WakeSource = "checkpoints"
	WakeFindings    WakeSource = "findings"
	WakeRestores    WakeSource = "restores"
	WakeRequests    WakeSource = "requests"
	WakeTimer       WakeSource = "timer"
)

// WakeSources are all sources.
var WakeSources = []WakeSource{WakeDevices, WakeCheckpoints, WakeFindings, WakeRestores, WakeRequests, WakeTimer}

// Try is one try to restore the lost interfaces of a chain.
type Try struct {
	Base     string
	Duration time.Duration
	// Outcomes has an entry for each attachment of the try. It is empty if the restore could not look at anything.
	Outcomes []restore.Outcome
	// Reason says what failed. It is empty if nothing failed.
	Reason string
}

// Outage is a time during which interfaces of a chain were lost.
type Outage struct {
	Base string
	// LostAt is when the agent saw the loss. BackAt is when it could restore a part. WholeAt is when the last restore
	// ended.
	LostAt, BackAt, WholeAt time.Time
}

// Figures are numbers about the agent that Status does not have.
type Figures struct {
	// Unreadable is the number of checkpoints that cannot be read. Absent is the number of attachments whose sandboxes were not
	// found.
	Unreadable, Absent int
	// Oldest and Newest are when the oldest and the newest checkpoint were written. Both are zero if there is no
	// checkpoint.
	Oldest, Newest time.Time
	// LastRound is the time of the loop's last round.
	LastRound time.Time
	// HostOverruns is how often the kernel sent messages about the host's devices faster than the agent read them.
	HostOverruns uint64
	// Refresher has the counters of the refresher, which keeps checkpoints fresh.
	Refresher watch.Counters
}

// Figures returns the agent's numbers. It waits for nothing, and several goroutines may call it at once.
func (a *Agent) Figures() Figures {
	a.mu.Lock()
	f := a.figures
	a.mu.Unlock()
	f.LastRound, f.Refresher = time.Now().Add(-a.sinceRound()), a.refresher.Counters()
	return f
}

// maxRoundDelay is how late a round of the loop may be. A look at the devices of a busy node takes less than a second.
const maxRoundDelay = 30 * time.Second

// Healthy returns an error if the loop's last round is too long ago. It waits for nothing.
func (a *Agent) Healthy() error {
	limit := min(a.LoopInterval, roundInterval) + maxRoundDelay
	if since := a.sinceRound(); since > limit {
		return fmt.Errorf("the working loop has not come round for %s; it must every %s", since.Round(time.Second), min(a.LoopInterval, roundInterval))
	}
	return nil
}

// sinceRound is the time since the loop's last round.
func (a *Agent) sinceRound() time.Duration {
	return time.Since(a.started) - time.Duration(a.lastRound.Load())
}

// recordRound notes a round of the loop: its sign of life.
func (a *Agent) recordRound() {
	a.lastRound.Store(int64(time.Since(a.started)))
	if a.Alive != nil {
		a.Alive()
	}
}

// countFigures collects the numbers that only the loop can see.
func (a *Agent) countFigures() Figures {
	f := Figures{Absent: len(a.absent), HostOverruns: a.overruns}
	for _, n := range a.index.unreadable {
		f.Unreadable += n
	}
	for _, records := range a.index.sandboxes {
		for _, r := range records {
			if f.Oldest.IsZero() || r.CapturedAt.Before(f.Oldest) {
				f.Oldest = r.CapturedAt
			}
			if r.CapturedAt.After(f.Newest) {
				f.Newest = r.CapturedAt
			}
		}
	}
	return f
}

// observeLoss tells the observer which records of the chain are lost.
func (a *Agent) observeLoss(c *chain) {
	var lost []checkpoint.Record
	for i, l := range c.losses {
		if l != nil {
			lost = append(lost, c.Records[i])
		}
	}
	a.Observer.Lost(c.Base, lost)
}

// observeTry tells the observer of the end of a restore.
func (a *Agent) observeTry(e restoreEnd) {
	c := e.chain
	try := Try{Base: c.Base, Duration: e.duration, Reason: c.view.failure}
	if e.result != nil {
		absent := map[attachment.Key]bool{}
		for _, key := range e.result.Absent {
			absent[key] = true
		}
		for _, o := range e.result.Attachments {
			if absent[o.Attachment] {
				o.State = restore.SandboxGone
			}
			try.Outcomes = append(try.Outcomes, o)
		}
	}
	a.Observer.RestoreTried(try)
	a.countTry(c, try)
	for _, o := range try.Outcomes {
		if o.State == restore.Restored || o.State == restore.Repaired {
			c.noteRestored(time.Now())
			break
		}
	}
	a.observeConnected(c)
}

// noteRestored notes that a part of the present loss is restored.
func (c *chain) noteRestored(instant time.Time) {
	c.wholeAt = instant
	if c.unconnectedSince.IsZero() {
		c.unconnectedSince = c.lostAt
	}
}

// observeConnected tells the observer when the neighbours know all restored addresses of the chain.
func (a *Agent) observeConnected(c *chain) {
	if !c.unconnectedSince.IsZero() && len(c.owed) == 0 && c.view.failure == "" {
		a.Observer.Connected(time.Since(c.unconnectedSince))
		c.unconnectedSince = time.Time{}
	}
}

// observeOutageEnd tells the observer of an outage that is over.
func (a *Agent) observeOutageEnd(c *chain) {
	if o := c.outage; o != nil {
		c.outage = nil
		a.Observer.OutageEnded(*o)
	}
}

// endOutage ends the chain's loss.
func (c *chain) endOutage() {
	if !c.wholeAt.IsZero() {
		c.outage = &Outage{Base: c.Base, LostAt: c.lostAt, BackAt: c.backAt, WholeAt: c.wholeAt}
	}
	c.lostAt, c.backAt, c.wholeAt = time.Time{}, time.Time{}, time.Time{}
}
