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
	"github.com/relink-cni/relink/pkg/printable"
)

// agentPatience is how long a status waits for the agent. The agent answers from memory.
const agentPatience = 2 * time.Second

// addAgent asks the agent how it is. An agent that runs and does not answer is a problem. A node without an agent is
// none.
func (status *nodeStatus) addAgent(ctx context.Context) {
	s, err := control.Client{Patience: agentPatience}.Status(ctx)
	switch {
	case err == nil:
		status.Agent = &s
	case !errors.Is(err, control.ErrNoAgent):
		status.AgentProblem, status.recorded = err.Error(), false
	}
}

// addGuard adds a guard that is under way, or that was killed before it had finished.
func (status *nodeStatus) addGuard() {
	view, ok, err := guard.LoadView()
	switch {
	case err != nil:
		status.Problems, status.recorded = append(status.Problems, err.Error()), false
	case ok && view.Finished.IsZero():
		status.Guard = &view
		status.recorded = status.recorded && view.Alive
	}
}

// writeGuard writes where the guard is. The line comes first: the rest of the screen depends on it.
func (status nodeStatus) writeGuard(s *screen) {
	switch g := status.Guard; {
	case g == nil:
	case g.Alive:
		s.printFitted("relink guard is at the step %q for %s: relink guard --follow", g.Step, humanDuration(status.Time.Sub(g.Since)))
	default:
		s.printFitted("relink guard was killed at the step %q: relink guard --resume", g.Step)
	}
}

// writeAgent writes what the agent does.
func (status nodeStatus) writeAgent(s *screen, shown screenLimits) {
	s.printHeading("AGENT")
	switch {
	case status.AgentProblem != "":
		s.printFitted("  %s", status.AgentProblem)
		return
	case status.Agent == nil:
		s.printFitted("  none runs: after a loss, type relink restore")
		return
	}
	line, notWhole := agentLines(*status.Agent, status.Time)
	s.printFitted("  %s", line)
	if found := auditLine(status.Agent.Audit, status.Time); found != "" {
		s.printFitted("  %s", found)
	}
	printFirst(notWhole, shown.entries, "base", s, func(chain string) { s.printFitted("  %s", chain) })
}

// agentLines returns the line that is always shown of an agent, and a line for each base that is not whole.
func agentLines(a control.Status, instant time.Time) (line string, notWhole []string) {
	counts := map[control.ChainState]int{}
	for _, c := range a.Chains {
		counts[c.State]++
		if c.State != control.Whole {
			notWhole = append(notWhole, chainLine(c, instant))
		}
	}
	var parts []string
	for _, state := range []control.ChainState{control.Whole, control.Lost, control.Waiting, control.Restoring, control.BackingOff} {
		if n := counts[state]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %s", printable.Count(n, "base"), state))
		}
	}
	if len(a.Chains) == 0 {
		parts = append(parts, "it knows no attachment")
	}
	line = "up for " + humanDuration(instant.Sub(a.StartedAt)) + ": " + strings.Join(parts, ", ")
	if a.Paused != nil {
		line += "; " + pausedText(*a.Paused, instant)
	}
	return line, notWhole
}

// auditLine says what the agent's last audit has found, empty before the first one. What is wrong comes first: the
// screen can be too narrow for all.
func auditLine(a *control.Audit, instant time.Time) string {
	if a == nil {
		return ""
	}
	var parts []string
	if a.Errors > 0 {
		parts = append(parts, printable.Count(a.Errors, "error")+" (relink audit)")
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
	return "audit " + humanDuration(instant.Sub(a.Time)) + " ago: " + strings.Join(parts, ", ")
}

// chainLine says how a base is that is not whole, and when the agent tries again.
func chainLine(c control.Chain, instant time.Time) string {
	line := fmt.Sprintf("%s: %s for %s, %d of %s", c.Base, c.State, humanDuration(instant.Sub(c.Since)), c.Lost, printable.Count(c.Attachments, "attachment")+" lost")
	if c.Reason != "" {
		line += ": " + c.Reason
	}
	if wait := c.NextTry.Sub(instant); wait > 0 {
		line += "; next try in " + humanDuration(wait)
	}
	return line
}
