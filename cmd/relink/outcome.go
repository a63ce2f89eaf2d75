package main

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/runlog"
)

// outcome is what became of one thing. It is a row of a table, and a line below the table and in the log if it went wrong.
type outcome struct {
	// line is the line below the table, but for its text. Its group stands for reasons that differ only in a path. name names it in the log.
	line reportLine
	name string
	// cells are those of its row before STATE and WHY.
	cells []string
	// reason is what a table says. detail is all of it.
	state, reason, detail string
	// differs says that it is not as it should be. failed says that it has a line below the table, which can cut a reason short.
	differs, failed bool
	// steps are rows of their own.
	steps []string
}

// newOutcome returns what became of an attachment. place says where it is.
func newOutcome(o change.Outcome, place string, cells ...string) outcome {
	line := attachmentLine(o.Pod, place, o.Attachment.IfName, "")
	line.group = withoutContainer(o.Reason, o.Attachment.ContainerID)
	return outcome{
		line: line, name: attachmentName(o.Pod, o.Attachment), cells: cells,
		state: string(o.State), reason: o.Reason, detail: o.Reason, differs: o.IsWrong(), failed: o.IsWrong(),
	}
}

// temporaryName is the name of a file that is being written, which ends with a random number.
var temporaryName = regexp.MustCompile(`(\.json)[0-9]+`)

// withoutContainer returns the reason without what it names of one container alone: an error names the path of the checkpoint. It is empty
// if there is nothing to leave out.
func withoutContainer(reason, containerID string) string {
	if containerID == "" || !strings.Contains(reason, containerID) {
		return ""
	}
	return temporaryName.ReplaceAllString(strings.ReplaceAll(reason, containerID, "ID"), "$1")
}

// attachmentName names the attachment, and its pod if it is known.
func attachmentName(pod attachment.Pod, key attachment.Key) string {
	if pod == (attachment.Pod{}) {
		return key.ContainerID + " " + key.IfName
	}
	return fmt.Sprintf("%s %s (%s)", pod, key.IfName, key.ContainerID)
}

// outcomes is what became of everything that a verb has dealt with.
type outcomes struct {
	// report is what programs get. complete says that everything is as it should be.
	report           any
	complete, dryRun bool
	notes            []string
	// steps were done to devices of the host.
	steps []restore.Step
	// header has the columns of the table before STATE and WHY.
	header   string
	list     []outcome
	problems []string
	summary  string
}

// newOutcomes returns what became of everything in a report. The summary counts the states in their order, or says empty if there is nothing to
// count.
func newOutcomes[O interface{ Common() change.Outcome }](
	report change.Report[O], empty, header string, row func(O) outcome, states ...change.State,
) outcomes {
	r := outcomes{report: report, complete: report.Complete(), dryRun: report.DryRun, notes: report.Notes, problems: report.Problems, header: header}
	for _, o := range report.Outcomes {
		r.list = append(r.list, row(o))
	}
	r.summary = cmp.Or(strings.Join(countStates(states, report.Count), ", "), empty)
	return r
}

// present logs what was done, and prints it for programs or for people. err says why the run has ended early.
func (r outcomes) present(s *cli.Screen, err error) error {
	r.log(err)
	if err != nil {
		return err
	}
	return s.Present(r.report, r.complete, func() { r.write(s) })
}

// write writes what was done to the host, the table, what failed, and the summary.
func (r outcomes) write(s *cli.Screen) {
	for _, note := range r.notes {
		s.Info(note)
	}
	for _, step := range r.steps {
		printStep(step, s)
	}
	r.writeTable(s)
	var failures []reportLine
	for _, o := range r.list {
		if o.failed {
			o.line.text = strings.ToUpper(o.state) + ": " + o.detail
			failures = append(failures, o.line)
		}
	}
	writeLines(failures, s)
	s.PrintLines(r.problems)
	s.Info(r.summary)
}

// writeTable writes one row for each outcome, or one for many that are alike. Failures come last.
func (r outcomes) writeTable(s *cli.Screen) {
	shown := slices.Clone(r.list)
	if s.Quiet {
		shown = slices.DeleteFunc(shown, func(o outcome) bool { return !o.differs })
	}
	slices.SortStableFunc(shown, func(a, b outcome) int { return compareBool(a.differs, b.differs) })
	t := cli.NewTable(r.header + " | STATE | WHY")
	for _, alike := range foldEqual(shown, s, func(o outcome) string { return o.state + cmp.Or(o.line.group, o.reason) }) {
		o := alike[0]
		if len(alike) > 1 {
			o.cells, o.reason = commonCells(alike), cmp.Or(o.line.group, o.reason)
		}
		t.Row(slices.Concat(o.cells, []string{o.state, o.reason})...)
		for _, step := range o.steps {
			t.Row(append(slices.Repeat([]string{" "}, len(t.Columns)-1), step)...)
		}
	}
	t.Write(s)
}

// commonCells are the cells that are the same in all rows, behind the number of rows.
func commonCells(alike []outcome) []string {
	cells := slices.Clone(alike[0].cells)
	for _, o := range alike {
		for i, text := range o.cells {
			if text != cells[i] {
				cells[i] = ""
			}
		}
	}
	cells[0] = printable.Count(len(alike), "interface")
	return cells
}

// log writes what a run has changed to the journal or to syslog.
func (r outcomes) log(err error) {
	var failures []string
	for _, o := range r.list {
		if o.differs {
			failures = append(failures, o.name+": "+o.detail)
		}
	}
	logRun(r.dryRun, r.summary, append(failures, r.problems...), err)
}

// logRun writes what a run has changed to the journal or to syslog. A dry run changes nothing.
func logRun(dryRun bool, summary string, failures []string, err error) {
	if !dryRun {
		runlog.Current().Write(runlog.Run{Summary: summary, Failures: failures, Err: err})
	}
}

// countStates says how many things are in each state.
func countStates[S ~string](states []S, countOf func(S) int) (parts []string) {
	for _, state := range states {
		if n := countOf(state); n > 0 {
			parts = append(parts, stateCount(n, state))
		}
	}
	return parts
}

// printStep writes what was done to a device.
func printStep(step restore.Step, s *cli.Screen) {
	line := fmt.Sprintf("%s: %s", step, step.Reason)
	if step.Error != "" {
		s.Printf("%s: FAILED: %s", line, step.Error)
	} else {
		s.Info(line)
	}
}
