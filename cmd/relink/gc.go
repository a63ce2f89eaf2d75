package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/gc"
	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/printable"
)

func newGC() *cobra.Command {
	var files nodeFiles
	var opts gc.Options
	var confirmed bool
	cmd := newVerb("gc", func(cmd *cobra.Command, _ []string) (err error) {
		if opts.Sources, err = files.openAudited(cmd); err != nil {
			return err
		}
		return runGC(cmd, opts, confirmed || !opts.Now)
	})
	addSelection(cmd, &opts.Select, &opts.Store)
	flags := cmd.Flags()
	flags.BoolVar(&opts.OnlyLeases, "leases", false, "only addresses")
	flags.BoolVar(&opts.OnlyCheckpoints, "checkpoints", false, "only checkpoints")
	flags.BoolVar(&opts.OnlyInterfaces, "interfaces", false, "only what host access of pods that are gone has left in the host")
	flags.BoolVar(&opts.Now, "now", false, "do not wait for a second pass")
	addConfirmation(cmd, &opts, &confirmed)
	files.addFlags(cmd)
	return cmd
}

func newForget() *cobra.Command {
	opts := gc.Options{Forget: true}
	var confirmed bool
	cmd := newVerb("forget", func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return errors.New("relink forget needs the names of pods or sandboxes; relink gc finds what is proven gone")
		}
		opts.AllProcesses = allProcesses()
		return runGC(cmd, opts, confirmed)
	})
	addSelection(cmd, &opts.Select, &opts.Store)
	cmd.Flags().BoolVar(&opts.Force, "force", false, "drop what is named, even if the sandbox may be alive")
	addConfirmation(cmd, &opts, &confirmed)
	return cmd
}

// addConfirmation adds the flags of a verb that asks before it frees anything.
func addConfirmation(cmd *cobra.Command, opts *gc.Options, confirmed *bool) {
	cmd.Flags().BoolVar(confirmed, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&opts.DryRun, "dry-run", false, "print what would be freed and what is kept, and why; free nothing")
	cli.AddOutput(cmd)
}

// runGC makes one pass, and asks first unless that is confirmed.
func runGC(cmd *cobra.Command, opts gc.Options, confirmed bool) error {
	s := screenOf(cmd)
	if !confirmed {
		opts.Confirm = func(report gc.PassReport) error {
			n := report.Count(gc.ToFree)
			if n == 0 {
				return nil
			}
			report.DryRun = true // What is wrong in the host is still to be put right.
			question := fmt.Sprintf("Free %s? [y/N] ", printable.Count(n, "thing"))
			return s.Confirm(cmd, "freed", func(s *cli.Screen) { gcLines(report, s) }, question, "y", "Y", "yes", "Yes", "YES")
		}
	}
	report, err := gc.Run(cmd.Context(), opts)
	if err != nil {
		return err
	}
	logGC(report)
	complete := report.Complete() && (!opts.Forget || report.Count(change.Kept) == 0)
	return s.Present(report, complete, func() { gcLines(report, s) })
}

func gcLines(report gc.PassReport, s *cli.Screen) {
	shown := slices.Clone(report.Outcomes)
	if s.Quiet {
		shown = slices.DeleteFunc(shown, func(o gc.PassOutcome) bool { return !o.Common().IsWrong() })
	}
	slices.SortStableFunc(shown, func(a, b gc.PassOutcome) int {
		return slices.Index(gc.States, a.State) - slices.Index(gc.States, b.State)
	})
	var lines []reportLine
	for _, o := range shown {
		lines = append(lines, findingLine(o.Finding, gcHead(o), gcReason(o)))
	}
	writeLines(lines, s)
	for _, step := range report.Host {
		verb := "put right"
		if report.DryRun {
			verb = "to put right"
		}
		s.Info(verb + ": host access: " + step)
	}
	printUnseen(report.Problems, report.Notes, report.OwnersUnasked, s)
	s.Info(gcSummary(report))
}

// gcHead says what becomes of the thing.
func gcHead(o gc.PassOutcome) string {
	head := string(o.State)
	if !o.Until.IsZero() {
		head += " until " + o.Until.Local().Format(time.TimeOnly)
	}
	if o.Subject.Checkpoint != nil || o.Subject.Unreadable != nil {
		return head + ": checkpoint"
	}
	return head
}

// gcReason says what follows from the evidence.
func gcReason(o gc.PassOutcome) (reason string) {
	if next := o.Reason; next != "" {
		reason = ". " + strings.ToUpper(next[:1]) + next[1:]
	}
	moment := "Now"
	if o.State == gc.ToFree {
		moment = "Then"
	}
	if o.AddressState != "" {
		reason += ". " + moment + " it is " + cmp.Or(nextStates[o.AddressState], string(o.AddressState))
	}
	return reason
}

// nextStates say what an address is then.
var nextStates = map[lease.State]string{
	lease.Held: "held by another sandbox of its owner", lease.Reserved: "reserved for its owner", lease.Quarantined: "in quarantine",
}

// gcSummary counts the things by state.
func gcSummary(report gc.PassReport) string {
	parts := countStates(gc.States, report.Count)
	if n := len(report.Host); n > 0 {
		parts = append(parts, printable.Count(n, "difference")+" in the host")
	}
	return cmp.Or(strings.Join(parts, ", "), "nothing to free")
}

func logGC(report gc.PassReport) {
	var failures []string
	for _, o := range report.Outcomes {
		if o.Common().IsWrong() {
			failures = append(failures, attachmentName(o.Pod, o.Attachment)+": "+o.Reason)
		}
	}
	logRun(report.DryRun, gcSummary(report), append(failures, report.Problems...), nil)
}
