package agent

import (
	"cmp"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/printable"
)

// LossState is what has become of an interface.
type LossState string

const (
	// Lost says that what it was built on has gone.
	Lost LossState = "lost"
	// Back says that the interface was lost and is whole again, whoever restored it.
	Back LossState = "back"
	// Stuck says that the interface is lost and the agent cannot restore it. The agent goes on trying.
	Stuck LossState = "stuck"
)

// InterfaceChange is what has become of the interface of a pod.
type InterfaceChange struct {
	Attachment attachment.Key
	Pod        attachment.Pod
	State      LossState
	// Base is the NIC or the bond that the interface is on. It is empty for a NIC of the pod's own.
	Base string
	// Device is what has gone: the base, or a device on it. If Member is set, Device is a NIC of the bond, and the
	// interface is still there.
	Device string
	Member bool
	// Reason says why an interface is stuck. Tries says how often the agent has tried to restore it.
	Reason string
	Tries  int
	// Duration is how long the interface has been lost, since this agent first saw it.
	Duration time.Duration
}

// What makes an interface stuck. Tests lower both.
var (
	// stuckTries is a number of tries. Five take 8 s at least.
	stuckTries = 5
	// stuckAfter is how long the interface is blocked: an operator may be at work.
	stuckAfter = 10 * time.Second
)

// reminderInterval is how often the agent repeats that an interface is lost or stuck. Kubernetes forgets an event after an
// hour by default.
const reminderInterval = 30 * time.Minute

// lostInterface is what the loop knows about a lost interface.
type lostInterface struct {
	since time.Time
	tries int
	// failure is the reason of the last failed try. blocked says what will not become better by waiting. blockedSince says
	// since when.
	failure, blocked string
	blockedSince     time.Time
	// reported is what the observer heard last. reportedAt is when it heard that.
	reported   LossState
	reportedAt time.Time
}

// next returns what to tell the observer now. It is "" if there is nothing new.
func (f *lostInterface) next(instant time.Time) LossState {
	state := Lost
	if f.tries >= stuckTries || f.blocked != "" && instant.Sub(f.blockedSince) >= stuckAfter {
		state = Stuck
	}
	if f.reported != "" && instant.Sub(f.reportedAt) < reminderInterval && (state == f.reported || state == Lost) {
		return ""
	}
	f.reported, f.reportedAt = state, instant
	return state
}

// block notes a reason that will not become better by waiting, "" for none.
func (f *lostInterface) block(reason string, instant time.Time) {
	f.blocked = reason
	f.blockedSince = since(f.blockedSince, reason != "", instant)
}

// reason says why the interface is stuck.
func (f *lostInterface) reason() string { return cmp.Or(f.blocked, f.failure) }

// stuckAt is when a blocked interface becomes stuck. It is zero if the interface is not blocked, or if the observer
// knows.
func (f *lostInterface) stuckAt() time.Time {
	if f.blocked == "" || f.reported == Stuck {
		return time.Time{}
	}
	return f.blockedSince.Add(stuckAfter)
}

// reportChanges tells the observer what has become of interfaces. held says that the agent restores nothing now: it is
// paused, or a guard is at work.
func (a *Agent) reportChanges(held bool, instant time.Time) {
	var changes []InterfaceChange
	add := func(m *member, c *chain, loss *restore.Loss, blocked string) {
		if change, ok := m.change(loss, blocked, instant); ok {
			change.Attachment, change.Pod, change.Base = m.record.Attachment, m.record.Pod, c.base
			changes = append(changes, change)
		}
	}
	for _, c := range a.chains {
		blocked := ""
		if !held && !c.view.running {
			blocked = blockedBy(c.view.Outlook)
		}
		for _, s := range c.stacks {
			if loss := s.lossToRestore(); loss != nil {
				for m := range s.members {
					if a.concerns[m] = true; !m.absent {
						add(m, c, loss, blocked)
					}
				}
			}
		}
	}
	for m := range a.concerns {
		switch {
		case m.stack == nil: // A sandbox that ends is not a change.
			m.lost = nil
		case m.lost != nil && m.stack.lossToRestore() == nil:
			add(m, m.stack.chain, nil, "")
		}
	}
	if len(changes) > 0 {
		a.observe(Changes(changes))
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

// change returns what to tell the observer about the attachment, if there is anything. loss is nil if it is whole again.
func (m *member) change(loss *restore.Loss, blocked string, instant time.Time) (change InterfaceChange, ok bool) {
	if loss == nil {
		change = InterfaceChange{State: Back, Duration: instant.Sub(m.lost.since)}
		m.lost = nil
		return change, true
	}
	if m.lost == nil {
		m.lost = &lostInterface{since: instant}
	}
	f := m.lost
	f.block(blocked, instant)
	next := f.next(instant)
	change = InterfaceChange{State: next, Device: loss.Device, Member: loss.Member, Duration: instant.Sub(f.since)}
	if next == Stuck {
		change.Reason, change.Tries = printable.Line(f.reason()), f.tries
	}
	return change, next != ""
}

// countTry notes a try for each interface that is still lost.
func (a *Agent) countTry(c *chain, t Try) {
	count := func(m *member, failure string) {
		if m != nil && m.lost != nil {
			m.lost.tries, m.lost.failure = m.lost.tries+1, failure
		}
	}
	for _, o := range t.Outcomes {
		count(a.members[o.Attachment], cmp.Or(o.FullReason(), t.Reason))
	}
	for _, s := range c.stacks {
		for m := range s.members {
			if len(t.Outcomes) == 0 {
				count(m, t.Reason)
			}
		}
	}
}
