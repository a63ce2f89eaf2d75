package agent

import (
	"fmt"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/fresh"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
)

// Observer hears what the agent does. The loop calls its methods, so they return at once.
type Observer interface {
	// Woke is called each time the loop wakes, with the cause.
	Woke(Source)
	// Lost is called when a chain that was whole loses interfaces.
	Lost(base string, lost []checkpoint.Record)
	// Tried is called at the end of each try to restore.
	Tried(Try)
	// Whole is called when nothing of a chain is lost any more, and the agent has restored something of it.
	Whole(Outage)
	// Connected is called when there was carrier and the neighbours know all restored addresses. It gets the time since
	// the loss.
	Connected(sinceLoss time.Duration)
	// Changed is called with what has become of interfaces. The list is never empty.
	Changed([]Change)
}

// Observers passes each call to all its members, one after the other. An Observer that needs only some methods embeds
// an empty Observers.
type Observers []Observer

// Woke implements Observer.
func (all Observers) Woke(s Source) {
	for _, o := range all {
		o.Woke(s)
	}
}

// Lost implements Observer.
func (all Observers) Lost(base string, lost []checkpoint.Record) {
	for _, o := range all {
		o.Lost(base, lost)
	}
}

// Tried implements Observer.
func (all Observers) Tried(t Try) {
	for _, o := range all {
		o.Tried(t)
	}
}

// Whole implements Observer.
func (all Observers) Whole(out Outage) {
	for _, o := range all {
		o.Whole(out)
	}
}

// Connected implements Observer.
func (all Observers) Connected(sinceLoss time.Duration) {
	for _, o := range all {
		o.Connected(sinceLoss)
	}
}

// Changed implements Observer.
func (all Observers) Changed(changes []Change) {
	for _, o := range all {
		o.Changed(changes)
	}
}

// Source is what wakes the loop.
type Source string

// All sources.
const (
	FromDevices     Source = "devices"
	FromCheckpoints Source = "checkpoints"
	FromFindings    Source = "findings"
	FromRestores    Source = "restores"
	FromRequests    Source = "requests"
	FromTimer       Source = "timer"
)

// Sources are all sources.
var Sources = []Source{FromDevices, FromCheckpoints, FromFindings, FromRestores, FromRequests, FromTimer}

// Try is one try to restore the lost interfaces of a chain.
type Try struct {
	Base string
	Took time.Duration
	// Outcomes has an entry for each attachment of the try. It is empty if the restore could not look at anything.
	Outcomes []restore.Outcome
	// Why says what failed. It is empty if nothing failed.
	Why string
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
	// CameRound is the time of the loop's last round.
	CameRound time.Time
	// HostOverruns is how often the kernel sent messages about the host's devices faster than the agent read them.
	HostOverruns uint64
	// Refresher has the counters of the refresher, which keeps checkpoints fresh.
	Refresher fresh.Counters
}

// Figures returns the agent's numbers. It waits for nothing, and several goroutines may call it at once.
func (a *Agent) Figures() Figures {
	a.mu.Lock()
	f := a.figures
	a.mu.Unlock()
	f.CameRound, f.Refresher = time.Now().Add(-a.sinceRound()), a.refresher.Counters()
	return f
}

// late is how late a round of the loop may be. A look at the devices of a busy node takes less than a second.
const late = 30 * time.Second

// Healthy returns an error if the loop's last round is too long ago. It waits for nothing.
func (a *Agent) Healthy() error {
	limit := min(a.Patience, round) + late
	if since := a.sinceRound(); since > limit {
		return fmt.Errorf("the working loop has not come round for %s; it must every %s", since.Round(time.Second), min(a.Patience, round))
	}
	return nil
}

// sinceRound is the time since the loop's last round.
func (a *Agent) sinceRound() time.Duration {
	return time.Since(a.started) - time.Duration(a.cameRound.Load())
}

// comesRound notes a round of the loop: its sign of life.
func (a *Agent) comesRound() {
	a.cameRound.Store(int64(time.Since(a.started)))
	if a.Alive != nil {
		a.Alive()
	}
}

// count collects the numbers that only the loop can see.
func (a *Agent) count() Figures {
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
func (a *Agent) observeTry(e ended) {
	c := e.chain
	try := Try{Base: c.Base, Took: e.took, Why: c.view.why}
	if e.result != nil {
		gone := map[attachment.Key]bool{}
		for _, key := range e.result.Absent {
			gone[key] = true
		}
		for _, o := range e.result.Attachments {
			if gone[o.Attachment] {
				o.State = restore.SandboxGone
			}
			try.Outcomes = append(try.Outcomes, o)
		}
	}
	a.Observer.Tried(try)
	a.noteTry(c, try)
	for _, o := range try.Outcomes {
		if o.State == restore.Restored || o.State == restore.Repaired {
			c.noteRestored(time.Now())
			break
		}
	}
	a.observeConnected(c)
}

// noteRestored notes that a part of the present loss is restored.
func (c *chain) noteRestored(now time.Time) {
	c.wholeAt = now
	if c.uncarried.IsZero() {
		c.uncarried = c.lostAt
	}
}

// observeConnected tells the observer when the neighbours know all restored addresses of the chain.
func (a *Agent) observeConnected(c *chain) {
	if !c.uncarried.IsZero() && len(c.owed) == 0 && c.view.why == "" {
		a.Observer.Connected(time.Since(c.uncarried))
		c.uncarried = time.Time{}
	}
}

// observeWhole tells the observer of an outage that is over.
func (a *Agent) observeWhole(c *chain) {
	if o := c.over; o != nil {
		c.over = nil
		a.Observer.Whole(*o)
	}
}

// endOutage ends the chain's loss.
func (c *chain) endOutage() {
	if !c.wholeAt.IsZero() {
		c.over = &Outage{Base: c.Base, LostAt: c.lostAt, BackAt: c.backAt, WholeAt: c.wholeAt}
	}
	c.lostAt, c.backAt, c.wholeAt = time.Time{}, time.Time{}, time.Time{}
}
