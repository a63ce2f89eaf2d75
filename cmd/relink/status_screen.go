package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/checkpoint/status"
	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/printable"
)

// screenLines is how many lines the screen has at most. With --verbose it has all.
const screenLines = 24

// maxEntries is how many entries a part of the screen shows at most. After them it says how many it leaves out.
const maxEntries = 6

// screenPart is a part of the screen.
type screenPart struct {
	heading string
	// lines are always shown. Of the entries the first are shown. details is nil, or has a second line for each entry.
	lines, entries, details []string
	// noun names an entry.
	noun string
}

// write writes the screen.
func (n nodeStatus) write(s *cli.Screen) {
	if s.Quiet {
		n.writeQuiet(s)
		return
	}
	for limit := maxEntries; ; limit-- {
		var text strings.Builder
		n.writeParts(&cli.Screen{Verbosity: s.Verbosity, Out: &printable.Writer{Output: &text}, Err: io.Discard, Width: s.Width}, limit)
		if limit == 0 || s.Verbose || strings.Count(text.String(), "\n") <= screenLines {
			n.writeParts(s, limit)
			return
		}
	}
}

// writeParts writes so many entries of each part.
func (n nodeStatus) writeParts(s *cli.Screen, limit int) {
	n.writeGuard(s)
	n.writeHead(s)
	n.writeParents(s, limit)
	remarks := screenPart{heading: "REMARKS", entries: slices.Concat(n.Problems, n.Notes), noun: "remark"}
	for _, p := range []screenPart{n.causesPart(s), n.toDoPart(), remarks, n.poolsPart(), n.lastRestorePart(), n.agentPart()} {
		p.write(s, limit)
	}
}

func (p screenPart) write(s *cli.Screen, limit int) {
	if len(p.lines)+len(p.entries) == 0 {
		return
	}
	s.PrintHeading(p.heading)
	for _, line := range p.lines {
		s.PrintFitted("  %s", line)
	}
	for i, entry := range firstN(p.entries, limit, s) {
		s.PrintFitted("  %s", entry)
		if p.details != nil {
			s.PrintFitted("      %s", p.details[i])
		}
	}
	printOmitted(len(p.entries), limit, p.noun, s)
}

// writeQuiet writes the first line if something is wrong, and what its counts do not say.
func (n nodeStatus) writeQuiet(s *cli.Screen) {
	n.writeGuard(s)
	if !n.Recorded {
		n.writeHead(s)
	}
	for _, problem := range n.Problems {
		s.PrintFitted("%s", problem)
	}
	for _, problem := range n.PoolProblems {
		s.PrintFitted("leases not known: %s", problem)
	}
	if n.AgentProblem != "" {
		s.PrintFitted("%s", n.AgentProblem)
	}
}

func (n nodeStatus) writeHead(s *cli.Screen) {
	total := 0
	for _, count := range n.Attachments {
		total += count
	}
	if total == 0 && n.Recorded {
		s.PrintHeading("nothing is remembered in " + n.dir)
		return
	}
	s.PrintHeading(s.Fitted("%s in %s: %s", printable.Count(total, "attachment"), printable.Count(n.Pods, "pod"), n.stateCounts()))
}

// stateCounts returns the numbers of attachments by state, first of those that are right.
func (n nodeStatus) stateCounts() string {
	parts := countStates([]change.State{
		restore.AsRecorded, restore.ToRestore, restore.ToRepair, restore.Waiting, status.NoLink, restore.Blocked, restore.SandboxGone,
	}, func(state change.State) int { return n.Attachments[state] })
	var awaited []string
	for _, c := range n.Causes {
		if c.Kind == status.CauseWaiting {
			awaited = append(awaited, c.Device)
		}
	}
	for i, part := range parts {
		if len(awaited) == 1 && strings.HasSuffix(part, " "+string(restore.Waiting)) {
			parts[i] += " for " + awaited[0]
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "none is remembered")
}

// writeParents writes the devices below the attachments, each one before the devices on it.
func (n nodeStatus) writeParents(s *cli.Screen, limit int) {
	t := cli.NewTable("PARENT | STATE | ATTACHMENTS")
	for _, d := range firstN(n.Parents, limit, s) {
		name := d.Name
		if d.Below != "" {
			name = "  " + name
		}
		t.Row(name, deviceState(d), fmt.Sprint(d.Attachments+d.Through))
	}
	t.Write(s)
	printOmitted(len(n.Parents), limit, "parent", s)
}

// deviceState returns the device's state.
func deviceState(d restore.DeviceState) string {
	switch {
	case !d.Present:
		return "gone"
	case !d.Up:
		return "down"
	case !d.Carrier:
		return string(status.NoLink)
	}
	return "up"
}

// causesPart says why attachments are not as recorded, names their pods, and says how to see all of them.
func (n nodeStatus) causesPart(s *cli.Screen) screenPart {
	p := screenPart{heading: causesHeading(n.Causes), noun: "cause"}
	for _, c := range n.Causes {
		see := "relink show " + n.Names[c.Attachments[0]]
		shows := "one of them"
		if c.Device != "" {
			see, shows = "relink check --parent "+c.Device, "them"
		}
		if len(c.Attachments) == 1 {
			shows = "it"
		}
		p.entries = append(p.entries, fmt.Sprintf("%s in %s: %s", printable.Count(len(c.Attachments), "attachment"), printable.Count(c.Pods, "pod"), c.Reason))
		p.details = append(p.details, fmt.Sprintf("%s shows %s: %s", see, shows, firstNames(c.Attachments, func(key attachment.Key) string { return n.Names[key] }, s)))
	}
	return p
}

// causesHeading says what the causes have in common: attachments without carrier are as recorded.
func causesHeading(causes []status.Cause) string {
	cutOff := 0
	for _, c := range causes {
		if c.Kind == status.CauseCarrier || c.Kind == status.CauseUnannounced {
			cutOff++
		}
	}
	switch cutOff {
	case 0:
		return "NOT AS RECORDED"
	case len(causes):
		return "AS RECORDED, BUT CUT OFF"
	}
	return "NOT AS RECORDED, OR CUT OFF"
}

// toDoPart says what to do.
func (n nodeStatus) toDoPart() screenPart {
	p := screenPart{heading: "TO DO", noun: "task"}
	for _, t := range n.ToDo {
		p.entries = append(p.entries, t.Subject+": "+t.Advice)
	}
	return p
}

func (n nodeStatus) poolsPart() screenPart {
	p := screenPart{heading: "POOLS NEARLY FULL", noun: "pool"}
	for _, full := range n.Pools {
		p.entries = append(p.entries, full.String())
	}
	for _, problem := range n.PoolProblems {
		p.entries = append(p.entries, "not known: "+problem)
	}
	return p
}

// lastRestorePart says what the last restore did.
func (n nodeStatus) lastRestorePart() screenPart {
	l := n.LastRestore
	if l == nil {
		return screenPart{}
	}
	line := humanDuration(n.Time.Sub(l.StartedAt)) + " ago"
	if len(l.Selection) > 0 {
		line += ", of " + strings.Join(l.Selection, " ") + " only"
	}
	line += fmt.Sprintf(", in %s", l.Duration.Round(time.Millisecond))
	if l.Interrupted {
		line += ", interrupted"
	}
	p := screenPart{heading: "LAST RESTORE", lines: []string{line + ": " + lastCounts(*l)}, noun: "failure"}
	for _, f := range l.Failed {
		p.entries = append(p.entries, fmt.Sprintf("failed: %s %s: %s", podCell(f.Pod, f.Attachment.ContainerID), f.Attachment.IfName, f.Reason))
	}
	return p
}

func lastCounts(l checkpoint.LastRestore) string {
	parts := countStates(slices.Sorted(maps.Keys(l.Counts)), func(state string) int { return l.Counts[state] })
	if l.Problems > 0 {
		parts = append(parts, printable.Count(l.Problems, "other problem"))
	}
	return cmp.Or(strings.Join(parts, ", "), "nothing was remembered")
}

// firstN returns the first n, or all on a verbose screen.
func firstN[T any](list []T, n int, s *cli.Screen) []T {
	if s.Verbose || len(list) <= n {
		return list
	}
	return list[:n]
}

// printOmitted says how many are left out after firstN, and the command that shows them.
func printOmitted(total, n int, thing string, s *cli.Screen) {
	const hint = "relink status --verbose"
	switch omitted := total - n; {
	case omitted <= 0 || s.Verbose:
	case n == 0:
		s.PrintFitted("  %s: %s", printable.Count(omitted, thing), hint)
	default:
		s.PrintFitted("  and %s more: %s", printable.Count(omitted, thing), hint)
	}
}

func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }
