package agent

import (
	"cmp"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/printable"
)

// Fate is what has become of an interface.
type Fate string

const (
	// Lost says that what it was built on has gone.
	Lost Fate = "lost"
	// Back says that the interface was lost and is whole again, whoever restored it.
	Back Fate = "back"
	// Stuck says that the interface is lost and the agent cannot restore it. The agent goes on trying.
	Stuck Fate = "stuck"
)

// Change is what has become of the interface of a pod.
type Change struct {
	Attachment attachment.Key
	Pod        attachment.Pod
	Fate       Fate
	// Base is the NIC or the bond that the interface is on. It is empty for a NIC of the pod's own.
	Base string
	// Device is what has gone: the base, or a device on it. If Member is set, Device is a NIC of the bond, and the
	// interface is still there.
	Device string
	Member bool
	// Why says why an interface is stuck. Tries says how often the agent has tried to restore it.
	Why   string
	Tries int
	// For is how long the interface has been lost, since this agent first saw it.
	For time.Duration
}

// What makes an interface stuck. Tests lower both.
var (
	// stuckTries is a number of tries. Five take 8 s at least.
	stuckTries = 5
	// stuckAfter is how long the interface is blocked: an operator may be at work.
	stuckAfter = 10 * time.Second
)

// remindAfter is how often the agent repeats that an interface is lost or stuck. Kubernetes forgets an event after an
// hour by default.
const remindAfter = 30 * time.Minute

// fate is what the loop knows about a lost interface.
type fate struct {
	since time.Time
	tries int
	// why is the reason of the last failed try. blocked says what will not become better by waiting. blockedSince says
	// since when.
	why, blocked string
	blockedSince time.Time
	// told is what the observer heard last. toldAt is when it heard that.
	told   Fate
	toldAt time.Time
}

// next returns what to tell the observer now. It is "" if there is nothing new.
func (f *fate) next(now time.Time) Fate {
	is := Lost
	if f.tries >= stuckTries || f.blocked != "" && now.Sub(f.blockedSince) >= stuckAfter {
		is = Stuck
	}
	if f.told != "" && now.Sub(f.toldAt) < remindAfter && (is == f.told || is == Lost) {
		return ""
	}
	f.told, f.toldAt = is, now
	return is
}

// block notes a reason that will not become better by waiting, "" for none.
func (f *fate) block(why string, now time.Time) {
	f.blocked = why
	f.blockedSince = since(f.blockedSince, why != "", now)
}

// reason says why the interface is stuck.
func (f *fate) reason() string {
	if f.blocked != "" {
		return f.blocked
	}
	return f.why
}

// stuckAt is when a blocked interface becomes stuck. It is zero if the interface is not blocked, or if the observer
// knows.
func (f *fate) stuckAt() time.Time {
	if f.blocked == "" || f.told == Stuck {
		return time.Time{}
	}
	return f.blockedSince.Add(stuckAfter)
}

// tellChanges tells the observer what has become of interfaces. held says that the agent restores nothing now: it is
// paused, or a guard is at work.
func (a *Agent) tellChanges(held bool, now time.Time) {
	var changes []Change
	known := map[attachment.Key]bool{}
	for _, c := range a.chains {
		blocked := ""
		if !held && !c.view.running {
			blocked = blockedBy(c.outlook)
		}
		for i, r := range c.Records {
			known[r.Attachment] = true
			if change, is := a.change(r, c.losses[i], blocked, now); is {
				change.Attachment, change.Pod, change.Base = r.Attachment, r.Pod, c.Base
				changes = append(changes, change)
			}
		}
	}
	for key := range a.fates { // A sandbox that ends is not a change.
		if !known[key] {
			delete(a.fates, key)
		}
	}
	if len(changes) > 0 {
		a.Observer.Changed(changes)
	}
}

// blockedBy returns the reason that will not become better by waiting. It is "" if something can be restored, or may
// still appear.
func blockedBy(o restore.Outlook) string {
	if len(o.Missing)+len(o.Ready) > 0 {
		return ""
	}
	return strings.Join(o.Blocked, "; ")
}

// change returns what to tell the observer about the record, if there is anything.
func (a *Agent) change(r checkpoint.Record, loss *restore.Loss, blocked string, now time.Time) (change Change, is bool) {
	f := a.fates[r.Attachment]
	switch {
	case loss == nil && f == nil:
		return Change{}, false
	case loss == nil:
		delete(a.fates, r.Attachment)
		return Change{Fate: Back, For: now.Sub(f.since)}, true
	case loss.Member && a.unindexed[r.Attachment] == loss:
		return Change{}, false // Nothing has gone: only the indices have to be noted.
	case f == nil:
		f = &fate{since: now}
		a.fates[r.Attachment] = f
	}
	f.block(blocked, now)
	next := f.next(now)
	change = Change{Fate: next, Device: loss.Device, Member: loss.Member, For: now.Sub(f.since)}
	if next == Stuck {
		change.Why, change.Tries = printable.Line(f.reason()), f.tries
	}
	return change, next != ""
}

// noteTry notes a try for each interface that is still lost.
func (a *Agent) noteTry(c *chain, t Try) {
	if len(t.Outcomes) == 0 {
		for _, r := range c.Records {
			if f := a.fates[r.Attachment]; f != nil {
				f.tries, f.why = f.tries+1, t.Why
			}
		}
		return
	}
	for _, o := range t.Outcomes {
		if f := a.fates[o.Attachment]; f != nil {
			f.tries, f.why = f.tries+1, cmp.Or(o.Why(), t.Why)
		}
	}
}
