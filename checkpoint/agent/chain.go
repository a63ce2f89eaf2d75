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
	// picture is the outlook as text, for comparison. tried is the picture of the last try.
	picture, tried string
	view           view
	// inVain is the number of tries in a row that changed nothing.
	inVain  int
	decided decision
	// since is when the chain came into its state.
	since time.Time
	// lostAt is when the loop saw the loss. backAt is when a part of it could be restored. Both are zero for a chain
	// that is whole.
	lostAt, backAt time.Time
	// wholeAt is when the last restore since lostAt ended. over is an outage that has ended, and that the observer does
	// not know yet. uncarried is the time of a loss that is restored, but whose neighbours were not told yet.
	wholeAt, uncarried time.Time
	over               *Outage
	// losts are the times of the last losses, at most flaps of them. endedAt is when the last restore of the chain
	// ended.
	losts   []time.Time
	endedAt time.Time
	// owed are the results of restores that still have to be announced to neighbours.
	owed []*restore.Result
}

// look compares the chain with the devices as they are now.
func (c *chain) look(there netstate.Devices, losses []*restore.Loss, nics []netstate.Member, rebuildBond bool, now time.Time) {
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
		c.view, c.inVain = view{running: c.view.running}, 0
		if !c.view.running { // observeTry still needs these times.
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

// noteInVain counts a try without an error that changed nothing as a failure. So the next try waits.
func (c *chain) noteInVain() {
	switch v := &c.view; {
	case v.changed:
		c.inVain = 0
	case v.failures == 0 && !v.running && !v.lastTry.IsZero():
		c.inVain++
		v.failures, v.why = c.inVain, "the last restore changed nothing: "+v.reason
	}
}

// restUntil is when a base that comes and goes may be restored again. It is zero for a base that does not.
func (c *chain) restUntil(now time.Time) time.Time {
	if len(c.losts) < flaps || now.Sub(c.losts[0]) >= flapTime {
		return time.Time{}
	}
	return c.endedAt.Add(flapPause)
}

// since returns when a condition began. It returns zero if the condition does not hold now.
func since(began time.Time, is bool, now time.Time) time.Time {
	switch {
	case !is:
		return time.Time{}
	case began.IsZero():
		return now
	}
	return began
}

// task says what of the chain may be restored. theirs says that the network manager has had its time.
func (c *chain) task(nics []netstate.Member, rebuildBond, theirs bool) restore.Task {
	return restore.Task{Chain: c.Chain, Losses: c.losses, NICs: nics, RebuildBond: rebuildBond, Theirs: theirs}
}

// pictureOf returns the outlook as one text.
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

// decide decides what to do now, and notes since when the chain is in its state.
func (c *chain) decide(r rules, now time.Time) decision {
	d := decide(c.view, r, now)
	if d.state != c.decided.state {
		c.since = now
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

// nameOf returns the base's name, "" for a chain that is only in its sandbox.
func nameOf(c restore.Chain) string {
	if c.Base == "" {
		return "in sandbox " + c.Records[0].Attachment.ContainerID
	}
	return c.Base
}

// owes adds a result whose announcements are owed. It replaces earlier results for the same attachments.
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

// unknownOwed returns the records that owe an announcement and are in no result of this agent. They come from another
// restore, or from an earlier agent.
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

// beside returns the other records that are in the sandboxes of ready. It leaves out lost ones.
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
