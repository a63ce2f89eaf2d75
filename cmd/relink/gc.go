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
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/printable"
)

func newGC() *cobra.Command {
	var cacheDir string
	var leases leaseDir
	var opts gc.Options
	var confirmed bool
	cmd := &cobra.Command{
		Use:   "gc " + nameUsage + " [--now]",
		Short: "Free addresses and checkpoints that are proven dead",
		Long: `Free what relink audit has proven dead: the address of a sandbox that is gone, the reservation of
an owner that is gone or scaled down, the checkpoint of a sandbox that is gone, and what host
access of pods that are gone has left in the host. A sandbox is gone if its network namespace is
gone and the container runtime does not have it. An owner is gone if the Kubernetes API itself
says so now. If somebody does not answer, what depends on the answer is kept.

A thing is freed when two passes have seen it dead, at least ten minutes apart. relink-agent
makes such passes, and both know what the other has seen. --now does not wait for the second
pass, but for reservations, and asks you first. If the runtime does not answer, no CNI cache may
have the sandbox. A reservation that an operator made is never freed. relink ipam show ADDRESS
says afterwards why an address was freed. Many equal lines become one: --verbose shows each. Run
it on the node itself: in a container it does not see the node's processes and mounts.

` + namingHelp + `

Exit status 0: done; 1: something could not be freed or looked at, and the output names it, or
the answer was no; 2: usage or environment.`,
		Example: `  relink gc --dry-run    # what would be freed, what waits, and why
  relink gc              # free it
  relink gc --now web-0  # free what a pod has that is gone`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if opts.Sources, err = auditSources(cmd, leases, cacheDir); err != nil {
				return err
			}
			return runGC(cmd, opts, confirmed || !opts.Now)
		},
	}
	addSelection(cmd, &opts.Select, &opts.Store)
	flags := cmd.Flags()
	flags.BoolVar(&opts.OnlyLeases, "leases", false, "only addresses")
	flags.BoolVar(&opts.OnlyCheckpoints, "checkpoints", false, "only checkpoints")
	flags.BoolVar(&opts.OnlyInterfaces, "interfaces", false, "only what host access of pods that are gone has left in the host")
	flags.BoolVar(&opts.Now, "now", false, "do not wait for a second pass")
	addConfirmation(cmd, &opts, &confirmed)
	addOnlyDataDir(flags, &leases)
	addCacheDir(cmd, &cacheDir)
	return cmd
}

func newForget() *cobra.Command {
	opts := gc.Options{Forget: true}
	var confirmed bool
	cmd := &cobra.Command{
		Use:   "forget " + nameUsage + " [--force] [--yes]",
		Short: "Drop checkpoints that you name",
		Long: `Drop the checkpoints of the pods and sandboxes that you name, if their network namespaces are
gone. --force drops them even if a sandbox is alive: relink restore will not bring its
interfaces back then. relink gc finds by itself what is proven gone.

It shows what it would drop and asks first. It leaves interfaces and addresses alone.

` + namingHelp + `

Exit status 0: done; 1: something is kept or failed, and the output names it; 2: usage or
environment.`,
		Example: `  relink forget shop/web-0
  relink forget shop/web-0 --force  # although the pod may run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return errors.New("relink forget needs the names of pods or sandboxes; relink gc finds what is proven gone")
			}
			opts.AllProcesses = allProcesses()
			return runGC(cmd, opts, confirmed)
		},
	}
	addSelection(cmd, &opts.Select, &opts.Store)
	cmd.Flags().BoolVar(&opts.Force, "force", false, "drop what is named, even if the sandbox may be alive")
	addConfirmation(cmd, &opts, &confirmed)
	return cmd
}

// addConfirmation adds the flags of a verb that asks before it frees anything.
func addConfirmation(cmd *cobra.Command, opts *gc.Options, confirmed *bool) {
	cmd.Flags().BoolVar(confirmed, "yes", false, "do not ask")
	cmd.Flags().BoolVar(&opts.DryRun, "dry-run", false, "print what would be freed and what is kept, and why; free nothing")
	addOutput(cmd)
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
			return s.confirm(cmd, "freed", func(s *screen) { gcLines(report, s) }, question, "y", "Y", "yes", "Yes", "YES")
		}
	}
	report, err := gc.Run(cmd.Context(), opts)
	if err != nil {
		return err
	}
	logGC(report)
	complete := report.Complete() && (!opts.Forget || report.Count(change.Kept) == 0)
	return s.present(report, complete, func() { gcLines(report, s) })
}

func gcLines(report gc.PassReport, s *screen) {
	shown := slices.Clone(report.Outcomes)
	if s.quiet {
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
		s.info(verb + ": host access: " + step)
	}
	printUnseen(report.Problems, report.Notes, report.OwnersUnasked, s)
	s.info(gcSummary(report))
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
	switch {
	case o.AddressState == "":
	case o.State == gc.ToFree:
		reason += ". Then it is " + nextState(o)
	default:
		reason += ". Now it is " + nextState(o)
	}
	return reason
}

// nextState says what the address is then.
func nextState(o gc.PassOutcome) string {
	switch o.AddressState {
	case lease.Held:
		return "held by another sandbox of its owner"
	case lease.Reserved:
		return "reserved for its owner"
	case lease.Quarantined:
		return "in quarantine"
	}
	return string(o.AddressState)
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
