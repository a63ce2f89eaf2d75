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

// amounts is how many of each thing the screen shows. After them it says how many it leaves out.
type amounts struct{ parents, causes, others int }

// fewerAndFewer are the amounts to try, until the screen has at most screenLines lines. With the last ones it has 24 if it
// has every part.
var fewerAndFewer = []amounts{{6, 4, 2}, {4, 3, 2}, {3, 3, 1}, {2, 2, 1}, {1, 1, 1}, {1, 1, 0}, {1, 0, 0}}

// write writes the screen.
func (now nodeStatus) write(s *screen) {
	if s.quiet {
		now.writeGuard(s)
		now.writeHead(s)
		now.writeUnknown(s)
		return
	}
	shown := fewerAndFewer[0]
	for _, shown = range fewerAndFewer {
		if s.verbose || now.lines(s, shown) <= screenLines {
			break
		}
	}
	now.writeParts(s, shown)
}

// lines counts the lines of the screen on its terminal. A line that is too wide takes several.
func (now nodeStatus) lines(s *screen, shown amounts) int {
	var text strings.Builder
	trial := &screen{verbosity: s.verbosity, out: &printable.Writer{To: &text}, err: io.Discard, width: s.width}
	now.writeParts(trial, shown)
	n := 0
	for line := range strings.Lines(text.String()) {
		n++
		if columns := utf8.RuneCountInString(line) - 1; s.width > 0 && columns > 0 {
			n += (columns - 1) / s.width
		}
	}
	return n
}

func (now nodeStatus) writeParts(s *screen, shown amounts) {
	now.writeGuard(s)
	now.writeHead(s)
	now.writeParents(s, shown)
	now.writeCauses(s, shown)
	now.writeOwed(s, shown)
	now.writePools(s, shown)
	now.writeLast(s, shown)
	now.writeAgent(s, shown)
}

func (now nodeStatus) writeHead(s *screen) {
	total := 0
	for _, n := range now.Attachments {
		total += n
	}
	switch {
	case total == 0 && now.recorded:
		s.heading("nothing is remembered in %s", now.dir)
	case now.recorded && s.quiet:
	default:
		s.heading("%s in %s: %s", count(total, "attachment"), count(now.Pods, "pod"), now.states())
	}
}

// writeUnknown writes on a quiet screen what the counts of the first line do not say.
func (now nodeStatus) writeUnknown(s *screen) {
	for _, problem := range now.Problems {
		s.fitted("%s", problem)
	}
	for _, problem := range now.PoolProblems {
		s.fitted("leases not known: %s", problem)
	}
	if now.AgentProblem != "" {
		s.fitted("%s", now.AgentProblem)
	}
}

// states returns the numbers of attachments by state, first of those that are right.
func (now nodeStatus) states() string {
	order := []restore.State{restore.AsRecorded, restore.ToRestore, restore.ToRepair, noCarrier, restore.Blocked, restore.SandboxGone}
	var parts []string
	for _, state := range order {
		if n := now.Attachments[state]; n > 0 {
			parts = append(parts, inState(n, state))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "none is remembered")
}

// writeParents writes the devices below the attachments, each one before the devices on it.
func (now nodeStatus) writeParents(s *screen, shown amounts) {
	if len(now.Parents) == 0 {
		return
	}
	t := newTable(true, columns("PARENT", "STATE", "ATTACHMENTS")...)
	for _, d := range limited(now.Parents, shown.parents, s) {
		name := d.Name
		if d.On != "" {
			name = "  " + name
		}
		t.row(name, deviceState(d), fmt.Sprint(d.Attachments+d.Through))
	}
	t.write(s)
	more(len(now.Parents), shown.parents, "parent", s)
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
func (now nodeStatus) writeCauses(s *screen, shown amounts) {
	if len(now.Causes) == 0 {
		return
	}
	s.heading("%s", headingOf(now.Causes))
	for _, c := range limited(now.Causes, shown.causes, s) {
		s.fitted("  %s in %s: %s", count(len(c.Attachments), "attachment"), count(c.Pods, "pod"), c.Reason)
		see := "relink show " + now.pods[c.Attachments[0]]
		shows := "one of them"
		if c.Device != "" {
			see, shows = "relink check --parent "+c.Device, "them"
		}
		if len(c.Attachments) == 1 {
			shows = "it"
		}
		s.fitted("      %s shows %s: %s", see, shows, now.someOf(c, s))
	}
	more(len(now.Causes), shown.causes, "cause", s)
}

// headingOf says what the causes have in common: attachments without carrier are as recorded.
func headingOf(causes []restore.Cause) string {
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

// someOf names the first pods of the cause.
func (now nodeStatus) someOf(c restore.Cause, s *screen) string {
	var names []string
	for _, key := range c.Attachments {
		if name := now.pods[key]; !slices.Contains(names, name) {
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

// writeOwed writes the work that is left to do, and the command for it.
func (now nodeStatus) writeOwed(s *screen, shown amounts) {
	var lines []string
	if n := now.Owed.Announcements; n > 0 {
		lines = append(lines, fmt.Sprintf("%s whose neighbours were not told: relink restore", count(n, "attachment")))
	}
	lines = append(lines, now.Owed.unreadable(s, shown)...)
	if n := len(now.Owed.WithoutCheckpoint); n > 0 {
		lines = append(lines, fmt.Sprintf("%s without a checkpoint: relink capture", count(n, "interface")))
	}
	if n := now.Owed.SandboxesGone; n > 0 {
		lines = append(lines, fmt.Sprintf("%s of sandboxes that are gone: relink forget --stale", count(n, "checkpoint")))
	}
	remarks := slices.Concat(now.Problems, now.Notes)
	if len(lines)+len(remarks) == 0 {
		return
	}
	s.heading("TO DO")
	for _, line := range slices.Concat(lines, limited(remarks, shown.others, s)) {
		s.fitted("  %s", line)
	}
	more(len(remarks), shown.others, "remark", s)
}

// unreadable returns lines about the checkpoints that cannot be read.
func (o owed) unreadable(s *screen, shown amounts) []string {
	if len(o.Unreadable) == 0 {
		return nil
	}
	first := count(len(o.Unreadable), "checkpoint") + " that cannot be read:"
	if shown.others == 0 && !s.verbose {
		return []string{first + " " + seeAll}
	}
	lines := []string{first}
	for _, why := range limited(o.Unreadable, shown.others, s) {
		lines = append(lines, "    "+why)
	}
	if left := leftOut(len(o.Unreadable), shown.others, "checkpoint", s); left != "" {
		lines = append(lines, "    "+left)
	}
	return lines
}

func (now nodeStatus) writePools(s *screen, shown amounts) {
	if len(now.Pools)+len(now.PoolProblems) == 0 {
		return
	}
	s.heading("POOLS NEARLY FULL")
	for _, p := range limited(now.Pools, shown.others, s) {
		s.fitted("  %s: %s of %s addresses are held or reserved, %s are free: relink ipam usage --network %s",
			p.Network, percent(p.Share), countCell(p.Size), countCell(p.Free), p.Network)
	}
	more(len(now.Pools), shown.others, "pool", s)
	for _, problem := range limited(now.PoolProblems, shown.others, s) {
		s.fitted("  not known: %s", problem)
	}
	more(len(now.PoolProblems), shown.others, "unreadable pool", s)
}

// writeLast writes what the last restore did.
func (now nodeStatus) writeLast(s *screen, shown amounts) {
	l := now.LastRestore
	if l == nil {
		return
	}
	s.heading("LAST RESTORE")
	line := passed(now.At.Sub(l.StartedAt)) + " ago"
	if len(l.Selection) > 0 {
		line += ", of " + strings.Join(l.Selection, " ") + " only"
	}
	line += fmt.Sprintf(", in %s", l.Took.Round(time.Millisecond))
	if l.Interrupted {
		line += ", interrupted"
	}
	s.fitted("  %s: %s", line, lastCounts(*l))
	for _, f := range limited(l.Failed, shown.others, s) {
		s.fitted("  failed: %s %s: %s", podCell(f.Pod, f.Attachment.ContainerID), f.Attachment.IfName, f.Reason)
	}
	// The note has the first failures alone. --verbose shows these, and Counts has all.
	if all := max(len(l.Failed), l.Counts[string(restore.Failed)]); s.verbose && all > len(l.Failed) {
		s.fitted("  and %s more: relink check shows what is not as recorded now", count(all-len(l.Failed), "failure"))
	} else {
		more(all, shown.others, "failure", s)
	}
}

func lastCounts(l checkpoint.LastRestore) string {
	var parts []string
	for _, state := range slices.Sorted(maps.Keys(l.Counts)) {
		if n := l.Counts[state]; n > 0 {
			parts = append(parts, inState(n, restore.State(state)))
		}
	}
	if l.Problems > 0 {
		parts = append(parts, count(l.Problems, "other problem"))
	}
	return cmp.Or(strings.Join(parts, ", "), "nothing was remembered")
}

// limited returns the first n, or all on a verbose screen.
func limited[T any](all []T, n int, s *screen) []T {
	if s.verbose || len(all) <= n {
		return all
	}
	return all[:n]
}

// seeAll is the command that shows everything.
const seeAll = "relink status --verbose"

// more says how many are left out after limited.
func more(all, n int, thing string, s *screen) {
	if left := leftOut(all, n, thing, s); left != "" {
		s.fitted("  %s", left)
	}
}

// leftOut returns the text of more, empty if nothing is left out.
func leftOut(all, n int, thing string, s *screen) string {
	switch left := all - n; {
	case left <= 0 || s.verbose:
		return ""
	case n == 0:
		return count(left, thing) + ": " + seeAll
	default:
		return fmt.Sprintf("and %s more: %s", count(left, thing), seeAll)
	}
}

func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }
