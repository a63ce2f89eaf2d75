package agent

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/udev"
)

// chain is what the loop knows about a chain of parents and the attachments on it.
type chain struct {
	// base is the recorded name of the lowest device. It is empty if that is in the sandbox. Two chains can have one name.
	base   string
	stacks []*stack
	// records and losses are those of the stacks that are not whole, as far as the agent restores them: one for each stack.
	records []checkpoint.Record
	losses  []*restore.Loss
	// picture is the outlook as text, for comparison. triedPicture is the picture of the last try.
	picture, triedPicture string
	view                  view
	// uselessTries is the number of tries in a row that changed nothing.
	uselessTries int
	decided      decision
	// lostAt is when the loop saw the loss. backAt is when a part of it could be restored. Both are zero for a chain
	// that is whole.
	lostAt, backAt time.Time
	// wholeAt is when the last restore since lostAt ended. outage is an outage that has ended, and that the observer does
	// not know yet. unconnectedSince is the time of a loss that is restored, but whose neighbours were not told yet.
	wholeAt, unconnectedSince time.Time
	outage                    *Outage
	// lossTimes are the times of the last losses, at most flaps of them.
	lossTimes []time.Time
	// owed is how many attachments still have to be announced to neighbours.
	owed int
}

// setStacks gives the chain these stacks.
func (c *chain) setStacks(stacks []*stack) {
	c.stacks = stacks
	for _, s := range stacks {
		s.chain = c
	}
}

// name says which chain this is.
func (c *chain) name() string {
	if c.base == "" && len(c.stacks) > 0 {
		for m := range c.stacks[0].members {
			return "in sandbox " + m.record.Attachment.ContainerID
		}
	}
	return c.base
}

// update compares the chain with the devices as they are now.
func (c *chain) update(devices netstate.Devices, nics []netstate.Member, rebuildBond bool, instant time.Time) {
	v := &c.view
	c.records, c.losses, v.attachments, v.lost, v.reason = nil, nil, 0, 0, ""
	changes := 0
	for _, s := range c.stacks {
		v.attachments += len(s.members)
		changes += s.changes
		if loss := s.lossToRestore(); loss != nil {
			c.records, c.losses = append(c.records, s.record), append(c.losses, loss)
			v.lost, v.reason = v.lost+len(s.members), cmp.Or(v.reason, loss.Reason)
		}
	}
	if v.lost == 0 {
		c.picture, c.triedPicture, c.uselessTries = "", "", 0
		c.view = view{running: v.running, attachments: v.attachments, lastTry: v.lastTry}
		if !v.running { // observeTry still needs these times.
			c.endOutage()
		}
		return
	}
	if c.lostAt.IsZero() {
		c.lostAt = instant
		c.lossTimes = append(c.lossTimes[max(len(c.lossTimes)-flaps+1, 0):], instant)
	}
	v.Outlook = c.task(nics, rebuildBond, false).Outlook(devices, udev.Initialized)
	c.picture = fmt.Sprint(changes, checkpoint.KeysOf(v.Ready), v.Missing, v.Blocked, v.UdevPending, v.Steps, v.ManagerSteps)
	v.udevSince = since(v.udevSince, len(v.UdevPending) > 0, instant)
	v.backSince = since(v.backSince, len(v.ManagerSteps) > 0, instant)
	v.changed, v.restUntil = c.picture != c.triedPicture, c.restUntil(instant)
	c.countUselessTry()
	if c.backAt.IsZero() && len(v.Ready)+len(v.ManagerSteps) > 0 {
		c.backAt = instant
	}
}

// countUselessTry counts a try without an error that changed nothing as a failure. So the next try waits.
func (c *chain) countUselessTry() {
	switch v := &c.view; {
	case v.changed:
		c.uselessTries = 0
	case v.failures == 0 && !v.running && !v.lastTry.IsZero():
		c.uselessTries++
		v.failures, v.failure = c.uselessTries, "the last restore changed nothing: "+cmp.Or(strings.Join(v.Blocked, "; "), v.reason)
	}
}

// restUntil is when a base that comes and goes may be restored again. It is zero for a base that does not.
func (c *chain) restUntil(instant time.Time) time.Time {
	if len(c.lossTimes) < flaps || instant.Sub(c.lossTimes[0]) >= flapTime {
		return time.Time{}
	}
	return c.view.lastTry.Add(flapPause)
}

// since returns when a condition began. It returns zero if the condition does not hold now.
func since(began time.Time, active bool, instant time.Time) time.Time {
	switch {
	case !active:
		return time.Time{}
	case began.IsZero():
		return instant
	}
	return began
}

// task says what of the chain may be restored, with a record for each stack. allowManagerSteps says that the network manager has had its time.
func (c *chain) task(nics []netstate.Member, rebuildBond, allowManagerSteps bool) restore.Task {
	return restore.Task{
		Chain: restore.Chain{Base: c.base, Records: c.records}, Losses: c.losses, NICs: nics, RebuildBond: rebuildBond, AllowManagerSteps: allowManagerSteps,
	}
}

// decide decides what to do now, and notes since when the chain is in its state.
func (c *chain) decide(r rules, instant time.Time) decision {
	d := decide(c.view, r, instant)
	d.Base, d.Attachments, d.Lost, d.Since = c.base, c.view.attachments, c.view.lost, c.decided.Since
	if d.State != c.decided.State {
		d.Since = instant
	}
	c.decided = d
	return d
}

// siblingRecords returns the other records that are in the sandboxes of ready. It leaves out lost ones.
func (a *Agent) siblingRecords(ready []checkpoint.Record) (siblings []checkpoint.Record) {
	selected := checkpoint.KeysOf(ready)
	for _, id := range sandboxIDs(ready) {
		for _, r := range a.index.sandboxes[id].records {
			if !selected[r.Attachment] && !a.members[r.Attachment].isLost() {
				siblings = append(siblings, r)
			}
		}
	}
	return siblings
}
