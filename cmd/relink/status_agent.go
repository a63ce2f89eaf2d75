package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/printable"
)

// agentPatience is how long a status waits for the agent. The agent answers from memory.
const agentPatience = 2 * time.Second

// writeGuard writes where the guard is. The line comes first: the rest of the screen depends on it.
func (n nodeStatus) writeGuard(s *cli.Screen) {
	switch g := n.Guard; {
	case g == nil:
	case g.Alive:
		s.PrintFitted("relink guard is at the step %q for %s: relink guard --follow", g.Step, humanDuration(n.Time.Sub(g.Since)))
	default:
		s.PrintFitted("relink guard was killed at the step %q: relink guard --resume", g.Step)
	}
}

// agentPart says what the agent does.
func (n nodeStatus) agentPart() screenPart {
	p := screenPart{heading: "AGENT", noun: "base"}
	switch {
	case n.AgentProblem != "":
		p.lines = []string{n.AgentProblem}
	case n.Agent == nil:
		p.lines = []string{"none runs: after a loss, type relink restore"}
	default:
		var line string
		line, p.entries = agentLines(*n.Agent, n.Time)
		p.lines = []string{line}
		if found := auditLine(n.Agent.Audit, n.Time); found != "" {
			p.lines = append(p.lines, found)
		}
	}
	return p
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
