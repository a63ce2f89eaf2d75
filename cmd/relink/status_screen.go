package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/pkg/printable"
)

// screenLines is how many lines the screen has at most. With --verbose it has all.
const screenLines = 24

// shownPods is how many pods of one cause the screen names.
const shownPods = 3

// screenLimits is how many of each thing the screen shows. After them it says how many it leaves out.
type screenLimits struct{ parents, causes, entries int }

// screenLimitSteps are the amounts to try, until the screen has at most screenLines lines. With the last ones it has 24 if it
// has every part.
var screenLimitSteps = []screenLimits{{6, 4, 2}, {4, 3, 2}, {3, 3, 1}, {2, 2, 1}, {1, 1, 1}, {1, 1, 0}, {1, 0, 0}}

// write writes the screen.
func (status nodeStatus) write(s *screen) {
	if s.quiet {
		status.writeGuard(s)
		status.writeHead(s)
		status.writeUnknown(s)
		return
	}
	shown := screenLimitSteps[0]
	for _, shown = range screenLimitSteps {
		if s.verbose || status.countLines(s, shown) <= screenLines {
			break
		}
	}
	status.writeParts(s, shown)
}

// countLines counts the lines of the screen on its terminal. A line that is too wide takes several.
func (status nodeStatus) countLines(s *screen, shown screenLimits) int {
	var text strings.Builder
	trial := &screen{verbosity: s.verbosity, out: &printable.Writer{Output: &text}, err: io.Discard, width: s.width}
	status.writeParts(trial, shown)
	n := 0
	for line := range strings.Lines(text.String()) {
		n++
		if columns := utf8.RuneCountInString(line) - 1; s.width > 0 && columns > 0 {
			n += (columns - 1) / s.width
		}
	}
	return n
}

func (status nodeStatus) writeParts(s *screen, shown screenLimits) {
	status.writeGuard(s)
	status.writeHead(s)
	status.writeParents(s, shown)
	status.writeCauses(s, shown)
	status.writePending(s, shown)
	status.writePools(s, shown)
	status.writeLastRestore(s, shown)
	status.writeAgent(s, shown)
}

func (status nodeStatus) writeHead(s *screen) {
	total := 0
	for _, n := range status.Attachments {
		total += n
	}
	switch {
	case total == 0 && status.recorded:
		s.printHeading("nothing is remembered in %s", status.dir)
	case status.recorded && s.quiet:
	default:
		s.printHeading("%s in %s: %s", printable.Count(total, "attachment"), printable.Count(status.Pods, "pod"), status.stateCounts())
	}
}

// writeUnknown writes on a quiet screen what the counts of the first line do not say.
func (status nodeStatus) writeUnknown(s *screen) {
	for _, problem := range status.Problems {
		s.printFitted("%s", problem)
	}
	for _, problem := range status.PoolProblems {
		s.printFitted("leases not known: %s", problem)
	}
	if status.AgentProblem != "" {
		s.printFitted("%s", status.AgentProblem)
	}
}

// stateCounts returns the numbers of attachments by state, first of those that are right.
func (status nodeStatus) stateCounts() string {
	order := []restore.State{restore.AsRecorded, restore.ToRestore, restore.ToRepair, noCarrier, restore.Blocked, restore.SandboxGone}
	parts := countStates(order, func(state restore.State) int { return status.Attachments[state] })
	return cmp.Or(strings.Join(parts, ", "), "none is remembered")
}

// writeParents writes the devices below the attachments, each one before the devices on it.
func (status nodeStatus) writeParents(s *screen, shown screenLimits) {
	if len(status.Parents) == 0 {
		return
	}
	t := newTable(columns("PARENT", "STATE", "ATTACHMENTS"))
	for _, d := range firstN(status.Parents, shown.parents, s) {
		name := d.Name
		if d.Below != "" {
			name = "  " + name
		}
		t.row(name, deviceState(d), fmt.Sprint(d.Attachments+d.Through))
	}
	uncut := *s
	uncut.width = 0
	t.write(&uncut)
	printOmitted(len(status.Parents), shown.parents, "parent", s)
}

// deviceState returns the device's state.
func deviceState(d restore.DeviceState) string {
	switch {
	case !d.Present:
		return "gone"
	case !d.Up:
		return "down"
	case !d.Carrier:
		return string(noCarrier)
	}
	return "up"
}

// writeCauses writes why attachments are not as recorded, names their pods, and says how to see all of them.
func (status nodeStatus) writeCauses(s *screen, shown screenLimits) {
	if len(status.Causes) == 0 {
		return
	}
	s.printHeading("%s", causesHeading(status.Causes))
	printFirst(status.Causes, shown.causes, "cause", s, func(c restore.Cause) {
		s.printFitted("  %s in %s: %s", printable.Count(len(c.Attachments), "attachment"), printable.Count(c.Pods, "pod"), c.Reason)
		see := "relink show " + status.pods[c.Attachments[0]]
		shows := "one of them"
		if c.Device != "" {
			see, shows = "relink check --parent "+c.Device, "them"
		}
		if len(c.Attachments) == 1 {
			shows = "it"
		}
		s.printFitted("      %s shows %s: %s", see, shows, status.firstPods(c, s))
	})
}

// causesHeading says what the causes have in common: attachments without carrier are as recorded.
func causesHeading(causes []restore.Cause) string {
	cutOff := func(c restore.Cause) bool {
		return c.Kind == restore.CauseCarrier || c.Kind == restore.CauseUnannounced
	}
	switch n := len(slices.DeleteFunc(slices.Clone(causes), cutOff)); n {
	case len(causes):
		return "NOT AS RECORDED"
	case 0:
		return "AS RECORDED, BUT CUT OFF"
	}
	return "NOT AS RECORDED, OR CUT OFF"
}

// firstPods names the first pods of the cause.
func (status nodeStatus) firstPods(c restore.Cause, s *screen) string {
	var names []string
	for _, key := range c.Attachments {
		if name := status.pods[key]; !slices.Contains(names, name) {
			names = append(names, name)
		}
		if len(names) == shownPods && !s.verbose {
			break
		}
	}
	line := strings.Join(names, ", ")
	if c.Pods > len(names) {
		line += fmt.Sprintf(" and %d more", c.Pods-len(names))
	}
	return line
}

// writePending writes the work that is left to do, and the command for it.
func (status nodeStatus) writePending(s *screen, shown screenLimits) {
	var lines []string
	if n := status.Pending.Announcements; n > 0 {
		lines = append(lines, fmt.Sprintf("%s whose neighbours were not told: relink restore", printable.Count(n, "attachment")))
	}
	lines = append(lines, status.Pending.unreadable(s, shown)...)
	if n := len(status.Pending.WithoutCheckpoint); n > 0 {
		lines = append(lines, fmt.Sprintf("%s without a checkpoint: relink capture", printable.Count(n, "interface")))
	}
	if n := status.Pending.SandboxesGone; n > 0 {
		lines = append(lines, fmt.Sprintf("%s of sandboxes that are gone: relink gc --checkpoints", printable.Count(n, "checkpoint")))
	}
	remarks := slices.Concat(status.Problems, status.Notes)
	if len(lines)+len(remarks) == 0 {
		return
	}
	s.printHeading("TO DO")
	for _, line := range slices.Concat(lines, firstN(remarks, shown.entries, s)) {
		s.printFitted("  %s", line)
	}
	printOmitted(len(remarks), shown.entries, "remark", s)
}

// unreadable returns lines about the checkpoints that cannot be read.
func (o pendingWork) unreadable(s *screen, shown screenLimits) []string {
	if len(o.Unreadable) == 0 {
		return nil
	}
	first := printable.Count(len(o.Unreadable), "checkpoint") + " that cannot be read:"
	if shown.entries == 0 && !s.verbose {
		return []string{first + " " + verboseHint}
	}
	lines := []string{first}
	for _, reason := range firstN(o.Unreadable, shown.entries, s) {
		lines = append(lines, "    "+reason)
	}
	if omitted := omittedText(len(o.Unreadable), shown.entries, "checkpoint", s); omitted != "" {
		lines = append(lines, "    "+omitted)
	}
	return lines
}

func (status nodeStatus) writePools(s *screen, shown screenLimits) {
	if len(status.Pools)+len(status.PoolProblems) == 0 {
		return
	}
	s.printHeading("POOLS NEARLY FULL")
	printFirst(status.Pools, shown.entries, "pool", s, func(p fullSet) {
		s.printFitted("  %s: %s of %s addresses are held or reserved, %s are free: relink ipam usage --network %s",
			p.Network, percent(p.Share), countCell(p.Size), countCell(p.Free), p.Network)
	})
	printFirst(status.PoolProblems, shown.entries, "unreadable pool", s, func(problem string) { s.printFitted("  not known: %s", problem) })
}

// writeLastRestore writes what the last restore did.
func (status nodeStatus) writeLastRestore(s *screen, shown screenLimits) {
	l := status.LastRestore
	if l == nil {
		return
	}
	s.printHeading("LAST RESTORE")
	line := humanDuration(status.Time.Sub(l.StartedAt)) + " ago"
	if len(l.Selection) > 0 {
		line += ", of " + strings.Join(l.Selection, " ") + " only"
	}
	line += fmt.Sprintf(", in %s", l.Duration.Round(time.Millisecond))
	if l.Interrupted {
		line += ", interrupted"
	}
	s.printFitted("  %s: %s", line, lastCounts(*l))
	for _, f := range firstN(l.Failed, shown.entries, s) {
		s.printFitted("  failed: %s %s: %s", podCell(f.Pod, f.Attachment.ContainerID), f.Attachment.IfName, f.Reason)
	}
	// The note has the first failures alone. --verbose shows these, and Counts has all.
	if total := max(len(l.Failed), l.Counts[string(restore.Failed)]); s.verbose && total > len(l.Failed) {
		s.printFitted("  and %s more: relink check shows what is not as recorded now", printable.Count(total-len(l.Failed), "failure"))
	} else {
		printOmitted(total, shown.entries, "failure", s)
	}
}

func lastCounts(l checkpoint.LastRestore) string {
	parts := countStates(slices.Sorted(maps.Keys(l.Counts)), func(state string) int { return l.Counts[state] })
	if l.Problems > 0 {
		parts = append(parts, printable.Count(l.Problems, "other problem"))
	}
	return cmp.Or(strings.Join(parts, ", "), "nothing was remembered")
}

// firstN returns the first n, or all on a verbose screen.
func firstN[T any](list []T, n int, s *screen) []T {
	if s.verbose || len(list) <= n {
		return list
	}
	return list[:n]
}

// verboseHint is the command that shows everything.
const verboseHint = "relink status --verbose"

// printFirst prints the first n, and says how many are left out.
func printFirst[T any](list []T, n int, thing string, s *screen, print func(T)) {
	for _, element := range firstN(list, n, s) {
		print(element)
	}
	printOmitted(len(list), n, thing, s)
}

// printOmitted says how many are left out after firstN.
func printOmitted(total, n int, thing string, s *screen) {
	if omitted := omittedText(total, n, thing, s); omitted != "" {
		s.printFitted("  %s", omitted)
	}
}

// omittedText returns the text of printOmitted, empty if nothing is left out.
func omittedText(total, n int, thing string, s *screen) string {
	switch omitted := total - n; {
	case omitted <= 0 || s.verbose:
		return ""
	case n == 0:
		return printable.Count(omitted, thing) + ": " + verboseHint
	default:
		return fmt.Sprintf("and %s more: %s", printable.Count(omitted, thing), verboseHint)
	}
}

func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }
