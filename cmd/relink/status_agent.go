package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/guard"
)

// agentPatience is how long a status waits for the agent. The agent answers from memory.
const agentPatience = 2 * time.Second

// addAgent asks the agent how it is. An agent that runs and does not answer is a problem. A node without an agent is
// none.
func (now *nodeStatus) addAgent(ctx context.Context) {
	s, err := control.Client{Patience: agentPatience}.Status(ctx)
	switch {
	case err == nil:
		now.Agent = &s
	case !errors.Is(err, control.ErrNoAgent):
		now.AgentProblem, now.recorded = err.Error(), false
	}
}

// addGuard adds a guard that is under way, or that was killed before it had finished.
func (now *nodeStatus) addGuard() {
	view, ok, err := guard.Look()
	switch {
	case err != nil:
		now.Problems, now.recorded = append(now.Problems, err.Error()), false
	case ok && view.Finished.IsZero():
		now.Guard = &view
		now.recorded = now.recorded && view.Alive
	}
}

// writeGuard writes where the guard is. The line comes first: the rest of the screen depends on it.
func (now nodeStatus) writeGuard(s *screen) {
	switch g := now.Guard; {
	case g == nil:
	case g.Alive:
		s.fitted("relink guard is at the step %q for %s: relink guard --follow", g.Step, passed(now.At.Sub(g.Since)))
	default:
		s.fitted("relink guard was killed at the step %q: relink guard --resume", g.Step)
	}
}

// writeAgent writes what the agent does.
func (now nodeStatus) writeAgent(s *screen, shown amounts) {
	s.heading("AGENT")
	switch {
	case now.AgentProblem != "":
		s.fitted("  %s", now.AgentProblem)
		return
	case now.Agent == nil:
		s.fitted("  none runs: after a loss, type relink restore")
		return
	}
	line, notWhole := agentLines(*now.Agent, now.At)
	s.fitted("  %s", line)
	if found := auditLine(now.Agent.Audit, now.At); found != "" {
		s.fitted("  %s", found)
	}
	for _, chain := range limited(notWhole, shown.others, s) {
		s.fitted("  %s", chain)
	}
	more(len(notWhole), shown.others, "base", s)
}

// agentLines returns the line that is always shown of an agent, and a line for each base that is not whole.
func agentLines(a control.Status, now time.Time) (line string, notWhole []string) {
	counts := map[control.ChainState]int{}
	for _, c := range a.Chains {
		counts[c.State]++
		if c.State != control.Whole {
			notWhole = append(notWhole, chainLine(c, now))
		}
	}
	var parts []string
	for _, state := range []control.ChainState{control.Whole, control.Lost, control.Waiting, control.Restoring, control.BackingOff} {
		if n := counts[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", count(n, "base"), state))
		}
	}
	if len(a.Chains) == 0 {
		parts = append(parts, "it knows no attachment")
	}
	line = "up for " + passed(now.Sub(a.StartedAt)) + ": " + strings.Join(parts, ", ")
	if a.Paused != nil {
		line += "; " + pausedText(*a.Paused, now)
	}
	return line, notWhole
}

// auditLine says what the agent's last audit has found, empty before the first one. What is wrong comes first: the
// screen can be too narrow for all.
func auditLine(a *control.Audit, now time.Time) string {
	if a == nil {
		return ""
	}
	var parts []string
	if a.Errors > 0 {
		parts = append(parts, count(a.Errors, "error")+" (relink audit)")
	}
	if a.Problem != "" {
		parts = append(parts, "not everything could be looked at (relink audit)")
	}
	if a.Failed > 0 {
		parts = append(parts, fmt.Sprintf("%d not freed (relink gc)", a.Failed))
	}
	for _, kind := range audit.Kinds {
		if n := a.Findings[string(kind)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, kind))
		}
	}
	if len(parts) == 0 {
		parts = append(parts, "nothing to look at")
	}
	return "audit " + passed(now.Sub(a.At)) + " ago: " + strings.Join(parts, ", ")
}

// chainLine says how a base is that is not whole, and when the agent tries again.
func chainLine(c control.Chain, now time.Time) string {
	line := fmt.Sprintf("%s: %s for %s, %d of %s", c.Base, c.State, passed(now.Sub(c.Since)), c.Lost, count(c.Attachments, "attachment")+" lost")
	if c.Reason != "" {
		line += ": " + c.Reason
	}
	if wait := c.NextTry.Sub(now); wait > 0 {
		line += "; next try in " + passed(wait)
	}
	return line
}
