package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/checkpoint/reclaim"
	"github.com/relink-cni/relink/pkg/ipam/lease"
)

func newGC() *cobra.Command {
	var cacheDir string
	var leases leaseDir
	var opts reclaim.Options
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Free addresses and checkpoints that are proven dead",
		Long: `Free what relink audit has proven dead: the address of a sandbox that is gone, the reservation of
an owner that is gone or scaled down, and the checkpoint of a sandbox that is gone. A sandbox is
gone if its network namespace is gone and the container runtime does not have it. An owner is
gone if the Kubernetes API itself says so now. If somebody does not answer, what depends on the
answer is kept.

A thing is freed when two passes have seen it dead, at least the time of --grace apart.
relink-agent makes such passes, and both know what the other has seen. A reservation that an
operator made is never freed. relink ipam show ADDRESS says afterwards why an address was freed.
Many equal lines become one: --verbose shows each.

Exit status 0: done; 1: something could not be freed or looked at, and the output names it;
2: usage or environment.`,
		Example: `  relink gc --dry-run  # what would be freed, what waits, and why
  relink gc            # free it`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if opts.Grace < reclaim.MinGrace {
				return fmt.Errorf("invalid --grace %s: must be at least %s, because an ADD can take nearly that long", opts.Grace, reclaim.MinGrace)
			}
			if opts.Sources, err = auditSources(cmd, leases, cacheDir); err != nil {
				return err
			}
			report, err := reclaim.Run(cmd.Context(), opts)
			if err != nil {
				return err
			}
			logGC(report)
			s := screenOf(cmd)
			return s.present(report, report.Complete(), func() { gcLines(report, s) })
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&opts.DryRun, "dry-run", false, "print what would be freed, what waits and what is kept, and free nothing")
	flags.DurationVar(&opts.Grace, "grace", reclaim.DefaultGrace, "least `time` between the two passes that see a thing dead")
	addOnlyDataDir(flags, &leases)
	addCacheDir(cmd, &cacheDir)
	addOutput(cmd)
	return cmd
}

func gcLines(report reclaim.GCReport, s *screen) {
	shown := slices.Clone(report.Outcomes)
	if s.quiet {
		shown = slices.DeleteFunc(shown, func(o reclaim.GCOutcome) bool { return o.State != reclaim.Failed })
	}
	slices.SortStableFunc(shown, func(a, b reclaim.GCOutcome) int {
		return slices.Index(reclaim.GCStates, a.State) - slices.Index(reclaim.GCStates, b.State)
	})
	var lines []findingLine
	for _, o := range shown {
		lines = append(lines, findingLine{head: gcHead(o), finding: o.Finding, text: gcReason(o)})
	}
	writeFindings(lines, s)
	printUnseen(report.Problems, report.Notes, report.OwnersUnasked, s)
	s.info(gcSummary(report))
}

// gcHead says what becomes of the thing.
func gcHead(o reclaim.GCOutcome) string {
	head := string(o.State)
	if !o.Until.IsZero() {
		head += " until " + o.Until.Local().Format(time.TimeOnly)
	}
	if o.Kind == audit.CheckpointWithoutSandbox || o.Subject.Unreadable != nil {
		return head + ": checkpoint"
	}
	return head
}

// gcReason is the evidence, and what follows from it.
func gcReason(o reclaim.GCOutcome) string {
	reason := strings.Join(o.Evidence, "; ")
	if next := o.Reason; next != "" && (o.State != reclaim.Kept || o.Proven) {
		reason += ". " + strings.ToUpper(next[:1]) + next[1:]
	}
	switch {
	case o.AddressState == "":
	case o.State == reclaim.ToFree:
		reason += ". Then it is " + nextState(o)
	default:
		reason += ". Now it is " + nextState(o)
	}
	return reason
}

// nextState says what the address is then.
func nextState(o reclaim.GCOutcome) string {
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
func gcSummary(report reclaim.GCReport) string {
	return cmp.Or(strings.Join(countStates(reclaim.GCStates, report.Count), ", "), "nothing to free")
}

func logGC(report reclaim.GCReport) {
	var failures []string
	for _, o := range report.Outcomes {
		if o.State == reclaim.Failed {
			failures = append(failures, attachmentName(o.Pod, o.Attachment)+": "+o.Reason)
		}
	}
	logRun(report.DryRun, gcSummary(report), append(failures, report.Problems...), nil)
}
