package agent

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/restore"
)

// Limits of the waits. The documents for operators name each of them.
const (
	// udevTimeout is how long the agent waits for a device that udev works on. udev itself gives up a rule after three
	// minutes. That is too long for pods.
	udevTimeout = 10 * time.Second
	// firstBackoff and lastBackoff bound the wait after a failure. The wait doubles with each failure.
	firstBackoff = 500 * time.Millisecond
	lastBackoff  = time.Minute
	// changeBackoff is the least time between two tries if something about the devices has changed since.
	changeBackoff = 500 * time.Millisecond
	// guardInterval is how often the agent looks at a loss again while a guard is at work. No event tells the end of a
	// guard.
	guardInterval = 500 * time.Millisecond
	// A base comes and goes if it was lost flaps times within flapTime. From then on, at least flapPause lies between
	// two restores.
	flaps     = 10
	flapTime  = 30 * time.Second
	flapPause = 3 * time.Second
)

// view is what decide knows about a chain.
type view struct {
	// attachments is the number of all attachments of the chain, and lost of those that are lost.
	attachments, lost int
	// reason says what was lost.
	reason string
	// Outlook has a record for each stack that can be restored now.
	restore.Outlook
	// udevSince is since when udev works on a device of the chain. backSince is since when a step of the network
	// manager is left to do. Both are zero if there is nothing to wait for.
	udevSince, backSince time.Time
	// running says that a restore of the chain is under way.
	running bool
	// failures is the number of failed tries since the last try that worked. lastTry is when the last try ended.
	// changed says that the outlook has changed since that try.
	failures int
	lastTry  time.Time
	changed  bool
	// failure is the reason of the last failure.
	failure string
	// restUntil is when a base that comes and goes may be restored again. It is zero for others.
	restUntil time.Time
}

// rules are what an operator chooses.
type rules struct {
	paused bool
	// pauseEnds is when the pause ends by itself. It is zero if only a resume ends it.
	pauseEnds time.Time
	// guarded says that a guard (checkpoint.Store.Guarded) has taken the parents away. The guard brings them back
	// itself.
	guarded bool
	// grace is how long the network manager has for a device that is back.
	grace time.Duration
}

// decision is what to do about a chain.
type decision struct {
	// Chain is what the control socket says. NextTry is when to decide again if no event comes first. It is zero if only an event can change something.
	control.Chain
	// restore says to restore now what is ready. allowManagerSteps says to take the network manager's steps, too.
	restore, allowManagerSteps bool
}

// leave returns the decision to restore nothing before next.
func leave(state control.ChainState, reason string, next time.Time) decision {
	return decision{Chain: control.Chain{State: state, Reason: reason, NextTry: next}}
}

// decide is a pure function: it says what to do about a chain at the time now.
func decide(v view, r rules, instant time.Time) decision {
	var noTime time.Time
	switch {
	case v.running:
		return leave(control.Restoring, v.reason, noTime)
	case v.lost == 0:
		return leave(control.Whole, "", noTime)
	case r.paused:
		return leave(control.Lost, v.reason+"; the agent is paused", r.pauseEnds)
	case r.guarded:
		return leave(control.Lost, v.reason+"; relink guard is at work", instant.Add(guardInterval))
	}
	if until := nextTry(v); instant.Before(until) {
		if v.lost < v.attachments { // A device that some attachments lack says nothing about the base.
			return leave(control.Lost, v.failure, until)
		}
		return leave(control.BackingOff, v.failure, until)
	}
	if instant.Before(v.restUntil) {
		return leave(control.Waiting, fmt.Sprintf("%s; it was lost %d times in %s, and is restored every %s at most", v.reason, flaps, flapTime, flapPause), v.restUntil)
	}
	if until := v.udevSince.Add(udevTimeout); len(v.UdevPending) > 0 && instant.Before(until) {
		return leave(control.Waiting, strings.Join(v.UdevPending, "; "), until)
	}
	graceEnds := v.backSince.Add(r.grace)
	allowManagerSteps := len(v.ManagerSteps) > 0 && !instant.Before(graceEnds)
	switch {
	case len(v.Ready) > 0 || allowManagerSteps:
		d := leave(control.Restoring, v.reason, noTime)
		d.restore, d.allowManagerSteps = true, allowManagerSteps
		return d
	case len(v.ManagerSteps) > 0:
		var steps []string
		for _, s := range v.ManagerSteps {
			steps = append(steps, s.String())
		}
		return leave(control.Waiting, fmt.Sprintf("the host's network manager has %s for this: %s", r.grace, strings.Join(steps, "; ")), graceEnds)
	case len(v.Missing)+len(v.Blocked) > 0:
		return leave(control.Lost, strings.Join(slices.Concat(v.Missing, v.Blocked), "; "), noTime)
	}
	return leave(control.Lost, v.reason, noTime)
}

// nextTry is when the agent may try the chain again after a failure. It is in the past if there was no failure.
func nextTry(v view) time.Time {
	if v.failures == 0 {
		return time.Time{}
	}
	if v.changed {
		return v.lastTry.Add(changeBackoff)
	}
	return v.lastTry.Add(backoff(v.failures))
}

// backoff is the wait after this number of failures.
func backoff(failures int) time.Duration {
	wait := firstBackoff
	for range failures - 1 {
		if wait *= 2; wait >= lastBackoff {
			return lastBackoff
		}
	}
	return wait
}
