package agent

import (
	"fmt"
	"slices"
	"time"

	"github.com/relink-cni/relink/checkpoint/capture/watch"
	"github.com/relink-cni/relink/checkpoint/restore"
)

// Event is what an observer hears: a WakeSource, a LossCount, a Try, an Outage, a Connection, Changes or a Connectivity. The loop calls the
// observers one after the other, so they return at once.
type Event any

// observe tells each observer.
func (a *Agent) observe(e Event) {
	for _, observer := range a.Observers {
		observer(e)
	}
}

// LossCount is how many interfaces a chain loses that was whole.
type LossCount int

// Connection says that there was carrier, and that the neighbours know all restored addresses. It is the time since the loss.
type Connection time.Duration

// Changes are what has become of interfaces. The list is never empty.
type Changes []InterfaceChange

// WakeSource is what has woken the loop.
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

// Try is one try to restore the lost interfaces of a chain. It is over.
type Try struct {
	Duration time.Duration
	// Outcomes has an entry for each attachment of the try. It is empty if the restore could not look at anything.
	Outcomes []restore.Outcome
	// Reason says what failed. It is empty if nothing failed.
	Reason string
}

// Outage is a time during which interfaces of a chain were lost. It is over, and the agent has restored something of them.
type Outage struct {
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
	f.LastRound, f.Refresher = *a.lastRound.Load(), a.refresher.Counters()
	return f
}

// maxRoundDelay is how late a round of the loop may be. A look at the devices of a busy node takes less than a second.
const maxRoundDelay = 30 * time.Second

// Healthy returns an error if the loop's last round is too long ago. It waits for nothing.
func (a *Agent) Healthy() error {
	if delay := time.Since(*a.lastRound.Load()); delay > a.LoopInterval+maxRoundDelay {
		return fmt.Errorf("the working loop has not come round for %s; it must every %s", delay.Round(time.Second), a.LoopInterval)
	}
	return nil
}

// recordRound notes a round of the loop: its sign of life.
func (a *Agent) recordRound() {
	instant := time.Now()
	a.lastRound.Store(&instant)
	if a.Alive != nil {
		a.Alive()
	}
}

// capturedTimes are when the oldest and the newest checkpoint were written. stale says that one of the two was written again or forgotten.
type capturedTimes struct {
	oldest, newest time.Time
	stale          bool
}

// count takes over that a checkpoint has another time than before. Zero stands for none.
func (t *capturedTimes) count(before, after time.Time) {
	t.stale = t.stale || !before.Equal(after) && !before.IsZero() && (before.Equal(t.oldest) || before.Equal(t.newest))
	if after.IsZero() {
		return
	}
	if t.oldest.IsZero() || after.Before(t.oldest) {
		t.oldest = after
	}
	if after.After(t.newest) {
		t.newest = after
	}
}

// countFigures collects the numbers that only the loop can see.
func (a *Agent) countFigures() Figures {
	if a.captured.stale {
		a.captured = capturedTimes{}
		for _, m := range a.members {
			a.captured.count(time.Time{}, m.record.CapturedAt)
		}
	}
	absent := 0
	for m := range a.concerns {
		if !m.searchedAt.IsZero() {
			absent++
		}
	}
	return Figures{Unreadable: a.unreadable, Absent: absent, HostOverruns: a.overruns, Oldest: a.captured.oldest, Newest: a.captured.newest}
}

// observeTry tells the observer of the end of a restore.
func (a *Agent) observeTry(c *chain, try Try) {
	a.observe(try)
	a.countTry(c, try)
	if slices.ContainsFunc(try.Outcomes, func(o restore.Outcome) bool { return o.State == restore.Restored || o.State == restore.Repaired }) {
		c.wholeAt = time.Now()
		if c.unconnectedSince.IsZero() {
			c.unconnectedSince = c.lostAt
		}
	}
	a.observeConnected(c)
}

// observeConnected tells the observer when the neighbours know all restored addresses of the chain.
func (a *Agent) observeConnected(c *chain) {
	if !c.unconnectedSince.IsZero() && c.owed == 0 && c.view.failure == "" {
		a.observe(Connection(time.Since(c.unconnectedSince)))
		c.unconnectedSince = time.Time{}
	}
}

// endOutage ends the chain's loss.
func (c *chain) endOutage() {
	if !c.wholeAt.IsZero() {
		c.outage = &Outage{LostAt: c.lostAt, BackAt: c.backAt, WholeAt: c.wholeAt}
	}
	c.lostAt, c.backAt, c.wholeAt = time.Time{}, time.Time{}, time.Time{}
}
