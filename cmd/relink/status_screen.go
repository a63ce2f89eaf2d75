package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/restore"
)

// The screen has at most 24 lines, so it shows only the first few of each. With --verbose it shows all.
const (
	shownParents = 6
	shownCauses  = 4
	shownOthers  = 2
	shownPods    = 3
)

// write writes the screen.
func (now nodeStatus) write(s *screen) {
	now.writeHead(s)
	if s.quiet {
		now.writeUnknown(s)
		return
	}
	now.writeParents(s)
	now.writeCauses(s)
	now.writeOwed(s)
	now.writePools(s)
	now.writeLast(s)
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
}

// states returns the numbers of attachments by state, first of those that are right.
func (now nodeStatus) states() string {
	order := []restore.State{restore.AsRecorded, restore.ToRestore, restore.ToRepair, noCarrier, restore.Failed, restore.SandboxGone}
	var parts []string
	for _, state := range order {
		if n := now.Attachments[state]; n > 0 {
			parts = append(parts, inState(n, state))
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "none is remembered")
}

// writeParents writes the devices below the attachments, each one before the devices on it.
func (now nodeStatus) writeParents(s *screen) {
	if len(now.Parents) == 0 {
		return
	}
	t := newTable(true, columns("PARENT", "STATE", "ATTACHMENTS")...)
	for _, d := range limited(now.Parents, shownParents, s) {
		name := d.Name
		if d.On != "" {
			name = "  " + name
		}
		t.row(name, deviceState(d), fmt.Sprint(d.Attachments+d.Through))
	}
	t.write(s)
	more(len(now.Parents), shownParents, "parent", s)
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
func (now nodeStatus) writeCauses(s *screen) {
	if len(now.Causes) == 0 {
		return
	}
	s.heading("NOT AS RECORDED")
	for _, c := range limited(now.Causes, shownCauses, s) {
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
	more(len(now.Causes), shownCauses, "cause", s)
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
func (now nodeStatus) writeOwed(s *screen) {
	var lines []string
	if n := now.Owed.Announcements; n > 0 {
		lines = append(lines, fmt.Sprintf("%s whose neighbours were not told: relink restore", count(n, "attachment")))
	}
	if n := len(now.Owed.Unreadable); n > 0 {
		lines = append(lines, count(n, "checkpoint")+" that cannot be read:")
		for _, why := range limited(now.Owed.Unreadable, shownOthers, s) {
			lines = append(lines, "    "+why)
		}
	}
	if n := len(now.Owed.WithoutCheckpoint); n > 0 {
		lines = append(lines, fmt.Sprintf("%s without a checkpoint: relink capture", count(n, "interface")))
	}
	if n := now.Owed.SandboxesGone; n > 0 {
		lines = append(lines, fmt.Sprintf("%s of sandboxes that are gone: relink forget --stale", count(n, "checkpoint")))
	}
	lines = append(lines, limited(slices.Concat(now.Problems, now.Notes), shownOthers, s)...)
	if len(lines) == 0 {
		return
	}
	s.heading("TO DO")
	for _, line := range lines {
		s.fitted("  %s", line)
	}
	more(len(now.Problems)+len(now.Notes), shownOthers, "remark", s)
}

func (now nodeStatus) writePools(s *screen) {
	if len(now.Pools)+len(now.PoolProblems) == 0 {
		return
	}
	s.heading("POOLS NEARLY FULL")
	for _, p := range limited(now.Pools, shownOthers, s) {
		s.fitted("  %s: %s of %s addresses are held or reserved, %s are free: relink ipam usage --network %s",
			p.Network, percent(p.Share), countCell(p.Size), countCell(p.Free), p.Network)
	}
	more(len(now.Pools), shownOthers, "pool", s)
	for _, problem := range limited(now.PoolProblems, 1, s) {
		s.fitted("  not known: %s", problem)
	}
}

// writeLast writes what the last restore did.
func (now nodeStatus) writeLast(s *screen) {
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
	for _, f := range limited(l.Failed, shownOthers, s) {
		s.fitted("  failed: %s %s: %s", podCell(f.Pod, f.Attachment.ContainerID), f.Attachment.IfName, f.Reason)
	}
	more(len(l.Failed), shownOthers, "failure", s)
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

// more says how many are left out after limited.
func more(all, n int, thing string, s *screen) {
	if left := all - n; left > 0 && !s.verbose {
		s.fitted("  and %s more: relink status --verbose", count(left, thing))
	}
}

func percent(share float64) string { return fmt.Sprintf("%.1f%%", 100*share) }
