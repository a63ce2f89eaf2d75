package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/checkpoint/status"
	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/selection"
)

func newCheck() *cobra.Command {
	var cacheDir string
	opts := restore.Options{DryRun: true}
	cmd := newVerb("check", func(cmd *cobra.Command, _ []string) error {
		return check(cmd.Context(), opts, cacheDir, screenOf(cmd))
	})
	addSelection(cmd, &opts.Select, &opts.Store)
	addParent(cmd, &opts.Select)
	addCacheDir(cmd, &cacheDir)
	cli.AddOutput(cmd)
	return cmd
}

// checkReport is the report of a check as JSON. It has the report of a restore that does nothing, and the interfaces
// without a checkpoint.
type checkReport struct {
	restore.Report
	Uncaptured []capture.InterfaceOutcome `json:"unremembered"`
}

func check(ctx context.Context, opts restore.Options, cacheDir string, s *cli.Screen) error {
	missing, err := findUncaptured(ctx, opts.Store, cacheDir)
	if err != nil {
		return err
	}
	selected, missing, err := selectAll(opts.Store, opts.Select, missing)
	if err != nil {
		return err
	}
	report := restore.Report{Report: change.Report[restore.Outcome]{DryRun: true, Outcomes: []restore.Outcome{}}, Parents: []restore.Step{}}
	if selected != nil {
		opts.Select = *selected
		if report, err = inspectAttachments(ctx, opts); err != nil {
			return err
		}
	}
	missing, problems := status.SplitUnrecorded(missing)
	report.Problems = append(report.Problems, problems...)
	return s.Present(checkReport{report, missing}, report.Complete() && len(missing) == 0, func() { checkLines(report, missing, opts.Store.Dir(), s) })
}

// errInterrupted says that relink did not look at everything, so it does not know the rest.
var errInterrupted = errors.New("interrupted before everything was looked at")

// inspectAttachments returns the state of everything that is selected. A look that was interrupted returns an error instead of a
// report. In its report, the attachments that it did not reach would seem to have failed.
func inspectAttachments(ctx context.Context, opts restore.Options) (restore.Report, error) {
	report, err := restore.Run(ctx, opts)
	if err == nil && ctx.Err() != nil {
		err = errInterrupted
	}
	return report, err
}

// findUncaptured returns what capture.FindUnrecorded does. A look that was interrupted returns errInterrupted.
func findUncaptured(ctx context.Context, store *checkpoint.Store, cacheDir string) ([]capture.InterfaceOutcome, error) {
	missing, err := capture.FindUnrecorded(ctx, capture.Options{Store: store, CacheDir: cacheDir})
	if ctx.Err() != nil {
		return nil, errInterrupted
	}
	if len(missing) > 0 {
		if agent, failed := (control.Client{Patience: agentPatience}).Status(ctx); failed == nil {
			status.AddAgentReasons(missing, agent)
		}
	}
	return missing, err
}

// selectAll selects among the checkpoints and the interfaces without one together, because a name may
// belong to any of them. It returns two things: the selection among the checkpoints, nil for none of them; and the
// selected interfaces without a checkpoint.
func selectAll(store *checkpoint.Store, filter selection.Selection, missing []capture.InterfaceOutcome) (*selection.Selection, []capture.InterfaceOutcome, error) {
	if filter.MatchesAll() {
		return &filter, missing, nil
	}
	records, unreadable, err := store.List()
	if err != nil {
		return nil, nil, err
	}
	things, err := restore.Candidates(records, unreadable, filter)
	if err != nil {
		return nil, nil, err
	}
	remembered := len(things)
	for _, o := range missing {
		things = append(things, o.Candidate())
	}
	chosen, err := filter.Choose(things)
	if err != nil {
		return nil, nil, err
	}
	// The container IDs replace the names and the namespace. The pod of a torn checkpoint may be known only here.
	narrow := filter
	narrow.Names, narrow.Namespace = nil, ""
	for i, t := range things[:remembered] {
		if chosen[i] && !slices.Contains(narrow.Names, t.ContainerID) {
			narrow.Names = append(narrow.Names, t.ContainerID)
		}
	}
	missing = selection.Keep(missing, chosen[remembered:])
	if len(narrow.Names) == 0 {
		return nil, missing, nil
	}
	return &narrow, missing, nil
}

// attachmentLine is a line about an interface. place is where it is.
func attachmentLine(pod attachment.Pod, place, ifName, text string) reportLine {
	return reportLine{
		subject: fmt.Sprintf("%s %s %s", pod, cmp.Or(place, "-"), cmp.Or(ifName, "-")), short: pod.Or(place), noun: "interface", text: text,
	}
}

// outcomeLine is a line about an attachment. Its group stands for reasons that differ only in a path or a process.
func outcomeLine(o restore.Outcome, text string) reportLine {
	line := attachmentLine(o.Pod, selection.ShortID(o.Attachment.ContainerID), o.Attachment.IfName, text)
	if line.group = cmp.Or(o.Problem.Cause, withoutContainer(o.Reason, o.Attachment.ContainerID)); o.State == restore.SandboxGone {
		line.group = "the sandbox is gone"
	}
	return line
}

func checkLines(report restore.Report, missing []capture.InterfaceOutcome, dir string, s *cli.Screen) {
	var goneSandboxes, notCaptured, differ, unknown []reportLine
	for _, o := range report.Outcomes {
		switch {
		case o.State == restore.SandboxGone:
			goneSandboxes = append(goneSandboxes, outcomeLine(o, o.FullReason()))
		case o.Differs():
			differ = append(differ, outcomeLine(o, o.FullReason()))
		}
		for _, detail := range o.Interface.NotCaptured {
			notCaptured = append(notCaptured, outcomeLine(o, "not captured, would not be restored: "+detail))
		}
	}
	for _, u := range missing {
		unknown = append(unknown, attachmentLine(u.Pod, u.Namespace.Path, u.Interface.Link.Name, "it has no checkpoint: "+status.CaptureAdvice(u)))
	}
	if !s.Quiet {
		s.PrintLines(report.Notes)
		writeLines(goneSandboxes, s)
		writeLines(notCaptured, s)
	}
	writeLines(unknown, s)
	s.PrintLines(report.Problems)
	writeLines(differ, s)
	summary := fmt.Sprintf("%s as recorded, %d not", printable.Count(len(report.Outcomes)-len(differ)-len(goneSandboxes), "attachment"), len(differ))
	if len(goneSandboxes) > 0 {
		summary += fmt.Sprintf(", %s gone", printable.Count(len(goneSandboxes), "sandbox"))
	}
	if n := len(report.Problems) + len(missing); n > 0 {
		summary += ", " + printable.Count(n, "other problem")
	}
	if len(report.Outcomes) == 0 {
		summary += " (in " + dir + ")"
	}
	s.Info(summary)
}
