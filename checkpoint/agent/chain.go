package agent

import (
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/netstate"
	"github.com/relink-cni/relink/pkg/udev"
)

// chain is what the loop knows about a chain of parents and the attachments on it.
type chain struct {
	restore.Chain
	// name is different for each chain.
	name    string
	losses  []*restore.Loss
	outlook restore.Outlook
	// picture is the outlook as text, for comparison. triedPicture is the picture of the last try.
	picture, triedPicture string
	view                  view
	// uselessTries is the number of tries in a row that changed nothing.
	uselessTries int
	decided      decision
	// since is when the chain came into its state.
	since time.Time
	// lostAt is when the loop saw the loss. backAt is when a part of it could be restored. Both are zero for a chain
	// that is whole.
	lostAt, backAt time.Time
	// wholeAt is when the last restore since lostAt ended. outage is an outage that has ended, and that the observer does
	// not know yet. unconnectedSince is the time of a loss that is restored, but whose neighbours were not told yet.
	wholeAt, unconnectedSince time.Time
	outage                    *Outage
	// lossTimes are the times of the last losses, at most flaps of them. endedAt is when the last restore of the chain
	// ended.
	lossTimes []time.Time
	endedAt   time.Time
	// owed are the results of restores that still have to be announced to neighbours.
	owed []*restore.Result
}

// update compares the chain with the devices as they are now.
func (c *chain) update(devices netstate.Devices, losses []*restore.Loss, nics []netstate.Member, rebuildBond bool, instant time.Time) {
	c.losses, c.view.attachments, c.view.lost, c.view.reason = losses, len(c.Records), 0, ""
	for _, l := range losses {
		if l == nil {
			continue
		}
		if c.view.lost++; c.view.reason == "" {
			c.view.reason = l.Reason
		}
	}
	if c.view.lost == 0 {
		c.outlook, c.picture = restore.Outlook{}, ""
		c.view, c.uselessTries = view{running: c.view.running}, 0
		if !c.view.running { // observeTry still needs these times.
			c.endOutage()
		}
		return
	}
	if c.lostAt.IsZero() {
		c.lostAt = instant
		c.lossTimes = append(c.lossTimes[max(len(c.lossTimes)-flaps+1, 0):], instant)
	}
	o := c.task(nics, rebuildBond, false).Outlook(devices, udev.Initialized)
	c.outlook, c.picture = o, outlookText(o)
	v := &c.view
	v.ready, v.missing, v.blocked, v.udevPending, v.managerSteps = len(o.Ready), o.Missing, o.Blocked, o.UdevPending, nil
	for _, step := range o.ManagerSteps {
		v.managerSteps = append(v.managerSteps, step.String())
	}
	v.udevSince = since(v.udevSince, len(o.UdevPending) > 0, instant)
	v.backSince = since(v.backSince, len(o.ManagerSteps) > 0, instant)
	v.changed, v.restUntil = c.picture != c.triedPicture, c.restUntil(instant)
	c.countUselessTry()
	if c.backAt.IsZero() && (v.ready > 0 || len(v.managerSteps) > 0) {
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
		v.failures, v.failure = c.uselessTries, "the last restore changed nothing: "+v.reason
	}
}

// restUntil is when a base that comes and goes may be restored again. It is zero for a base that does not.
func (c *chain) restUntil(instant time.Time) time.Time {
	if len(c.lossTimes) < flaps || instant.Sub(c.lossTimes[0]) >= flapTime {
		return time.Time{}
	}
	return c.endedAt.Add(flapPause)
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

// task says what of the chain may be restored. allowManagerSteps says that the network manager has had its time.
func (c *chain) task(nics []netstate.Member, rebuildBond, allowManagerSteps bool) restore.Task {
	return restore.Task{Chain: c.Chain, Losses: c.losses, NICs: nics, RebuildBond: rebuildBond, AllowManagerSteps: allowManagerSteps}
}

// outlookText returns the outlook as one text.
func outlookText(o restore.Outlook) string {
	var b strings.Builder
	for _, r := range o.Ready {
		b.WriteString(r.Attachment.String() + "\n")
	}
	for _, text := range slices.Concat(o.Missing, o.Blocked, o.UdevPending) {
		b.WriteString(text + "\n")
	}
	for _, s := range slices.Concat(o.Steps, o.ManagerSteps) {
		b.WriteString(s.String() + "\n")
	}
	return b.String()
}

// decide decides what to do now, and notes since when the chain is in its state.
func (c *chain) decide(r rules, instant time.Time) decision {
	d := decide(c.view, r, instant)
	if d.state != c.decided.state {
		c.since = instant
	}
	c.decided = d
	return d
}

// status is what the control socket says about the chain.
func (c *chain) status() control.Chain {
	return control.Chain{
		Base: c.Base, State: c.decided.state, Since: c.since, Reason: c.decided.reason, NextTry: c.decided.next,
		Attachments: len(c.Records), Lost: c.view.lost,
	}
}

// chainName returns the base's name, "" for a chain that is only in its sandbox.
func chainName(c restore.Chain) string {
	if c.Base == "" {
		return "in sandbox " + c.Records[0].Attachment.ContainerID
	}
	return c.Base
}

// addOwed adds a result whose announcements are owed. It replaces earlier results for the same attachments.
func (c *chain) addOwed(result *restore.Result) {
	renewed := map[attachment.Key]bool{}
	for _, o := range result.Attachments {
		renewed[o.Attachment] = true
	}
	c.owed = slices.DeleteFunc(c.owed, func(r *restore.Result) bool {
		return slices.ContainsFunc(r.Attachments, func(o restore.Outcome) bool { return renewed[o.Attachment] })
	})
	c.owed = append(c.owed, result)
}

// unlistedOwed returns the records that owe an announcement and are in no result of this agent. They come from another
// restore, or from an earlier agent.
func (c *chain) unlistedOwed() (unknown []checkpoint.Record) {
	owing := map[attachment.Key]bool{}
	for _, result := range c.owed {
		for _, o := range result.Attachments {
			owing[o.Attachment] = true
		}
	}
	for _, r := range c.Records {
		if r.AnnouncementOwed && !owing[r.Attachment] && !c.view.running {
			unknown = append(unknown, r)
		}
	}
	return unknown
}

// siblingRecords returns the other records that are in the sandboxes of ready. It leaves out lost ones.
func siblingRecords(ready []checkpoint.Record, bySandbox map[string]indexedSandbox, lost map[attachment.Key]bool) (siblings []checkpoint.Record) {
	selected, visited := checkpoint.KeysOf(ready), map[string]bool{}
	for _, r := range ready {
		id := r.Attachment.ContainerID
		if visited[id] {
			continue
		}
		visited[id] = true
		for _, sibling := range bySandbox[id].records {
			if !selected[sibling.Attachment] && !lost[sibling.Attachment] {
				siblings = append(siblings, sibling)
			}
		}
	}
	return siblings
}
