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

// chain is what the loop knows of a chain of parents and of the attachments on it.
type chain struct {
	restore.Chain
	// name tells it from other chains.
	name    string
	losses  []*restore.Loss
	outlook restore.Outlook
	// picture is what the outlook says, to compare outlooks by. tried is that of the last try.
	picture, tried string
	view           view
	// inVain is the number of tries in a row that changed nothing.
	inVain  int
	decided decision
	// since is when the chain came into its state.
	since time.Time
	// lostAt is when the loss was seen, and backAt when something of it could be restored. Both are zero for a chain that is
	// whole.
	lostAt, backAt time.Time
	// wholeAt is when the last restore since lostAt ended. over is an outage that has ended and that the observer has not
	// heard of. uncarried is when something was lost that is restored, and that the neighbours were not told of.
	wholeAt, uncarried time.Time
	over               *Outage
	// losts are when the chain was lost last, flaps times at most. endedAt is when a restore of it ended last.
	losts   []time.Time
	endedAt time.Time
	// owed are the results of restores whose neighbours are not told yet.
	owed []*restore.Result
}

// look compares the chain with the devices as they are now.
func (c *chain) look(there netstate.Devices, losses []*restore.Loss, nics []netstate.Member, rebuildBond bool, now time.Time) {
	c.losses, c.view.lost, c.view.reason = losses, 0, ""
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
		c.view, c.inVain = view{running: c.view.running}, 0
		if !c.view.running { // What was restored is told with these times.
			c.endOutage()
		}
		return
	}
	if c.lostAt.IsZero() {
		c.lostAt = now
		c.losts = append(c.losts[max(len(c.losts)-flaps+1, 0):], now)
	}
	o := c.task(nics, rebuildBond, false).Outlook(there, udev.Done)
	c.outlook, c.picture = o, pictureOf(o)
	v := &c.view
	v.ready, v.missing, v.blocked, v.unnamed, v.theirs = len(o.Ready), o.Missing, o.Blocked, o.Unnamed, nil
	for _, step := range o.Theirs {
		v.theirs = append(v.theirs, step.String())
	}
	v.unnamedSince = since(v.unnamedSince, len(o.Unnamed) > 0, now)
	v.backSince = since(v.backSince, len(o.Theirs) > 0, now)
	v.changed, v.restUntil = c.picture != c.tried, c.restUntil(now)
	c.noteInVain()
	if c.backAt.IsZero() && (v.ready > 0 || len(v.theirs) > 0) {
		c.backAt = now
	}
}

// noteInVain counts a try that failed at nothing and changed nothing as a failure: the next one waits.
func (c *chain) noteInVain() {
	switch v := &c.view; {
	case v.changed:
		c.inVain = 0
	case v.failures == 0 && !v.running && !v.lastTry.IsZero():
		c.inVain++
		v.failures, v.why = c.inVain, "the last restore changed nothing: "+v.reason
	}
}

// restUntil is when a base that comes and goes may be restored again, zero for another one.
func (c *chain) restUntil(now time.Time) time.Time {
	if len(c.losts) < flaps || now.Sub(c.losts[0]) >= flapTime {
		return time.Time{}
	}
	return c.endedAt.Add(flapPause)
}

// since returns when something began that is now, zero if it is not.
func since(began time.Time, is bool, now time.Time) time.Time {
	switch {
	case !is:
		return time.Time{}
	case began.IsZero():
		return now
	}
	return began
}

// task is what may be restored of the chain. theirs says that the network manager has had its time.
func (c *chain) task(nics []netstate.Member, rebuildBond, theirs bool) restore.Task {
	return restore.Task{Chain: c.Chain, Losses: c.losses, NICs: nics, RebuildBond: rebuildBond, Theirs: theirs}
}

// pictureOf returns what the outlook says as one text.
func pictureOf(o restore.Outlook) string {
	var b strings.Builder
	for _, r := range o.Ready {
		b.WriteString(r.Attachment.String() + "\n")
	}
	for _, text := range slices.Concat(o.Missing, o.Blocked, o.Unnamed) {
		b.WriteString(text + "\n")
	}
	for _, s := range slices.Concat(o.Ours, o.Theirs) {
		b.WriteString(s.String() + "\n")
	}
	return b.String()
}

// decide decides what to do now, and notes since when that is so.
func (c *chain) decide(r rules, now time.Time) decision {
	d := decide(c.view, r, now)
	if d.state != c.decided.state {
		c.since = now
	}
	c.decided = d
	return d
}

// status is what the control socket says of the chain.
func (c *chain) status() control.Chain {
	return control.Chain{
		Base: c.Base, State: c.decided.state, Since: c.since, Reason: c.decided.reason, NextTry: c.decided.next,
		Attachments: len(c.Records), Lost: c.view.lost,
	}
}

// nameOf is the base's name. Chains in sandboxes of their own have none.
func nameOf(c restore.Chain) string {
	if c.Base == "" {
		return "in sandbox " + c.Records[0].Attachment.ContainerID
	}
	return c.Base
}

// owes adds a result with announcements that are owed, in the place of earlier ones for the same attachments.
func (c *chain) owes(result *restore.Result) {
	now := map[attachment.Key]bool{}
	for _, o := range result.Attachments {
		now[o.Attachment] = true
	}
	c.owed = slices.DeleteFunc(c.owed, func(r *restore.Result) bool {
		return slices.ContainsFunc(r.Attachments, func(o restore.Outcome) bool { return now[o.Attachment] })
	})
	c.owed = append(c.owed, result)
}

// unknownOwed returns the records with an announcement that is owed, and that no result of this agent has: those of
// another restore, or of an agent before.
func (c *chain) unknownOwed() (unknown []checkpoint.Record) {
	known := map[attachment.Key]bool{}
	for _, result := range c.owed {
		for _, o := range result.Attachments {
			known[o.Attachment] = true
		}
	}
	for _, r := range c.Records {
		if r.AnnouncementOwed && !known[r.Attachment] && !c.view.running {
			unknown = append(unknown, r)
		}
	}
	return unknown
}

// beside returns the other records of the sandboxes of the given ones, without those that are lost.
func beside(ready []checkpoint.Record, all map[string][]checkpoint.Record, lost map[attachment.Key]bool) (others []checkpoint.Record) {
	mine, seen := map[attachment.Key]bool{}, map[string]bool{}
	for _, r := range ready {
		mine[r.Attachment] = true
	}
	for _, r := range ready {
		id := r.Attachment.ContainerID
		if seen[id] {
			continue
		}
		seen[id] = true
		for _, other := range all[id] {
			if !mine[other.Attachment] && !lost[other.Attachment] {
				others = append(others, other)
			}
		}
	}
	return others
}
