package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/forget"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/sandbox"
	"github.com/relink-cni/relink/pkg/selection"
)

func newForget() *cobra.Command {
	var confirmed, dryRun bool
	var opts forget.Options
	cmd := &cobra.Command{
		Use:   "forget " + nameUsage + " [--stale] [--force] [--yes]",
		Short: "Drop checkpoints of sandboxes that are gone",
		Long: `Drop the checkpoints of sandboxes that are proven gone: no mount, no process and no socket of
the node keeps the network namespace, or it is of an earlier boot. If relink cannot find out,
it keeps the checkpoint and reports it. A torn checkpoint is dropped too, if the rest of it or
another checkpoint of its container names the namespace.

--stale is for all sandboxes that are gone, and leaves the others alone. --force drops what you
name even if the sandbox is alive: relink restore will not bring its interfaces back then.

It shows what it would drop and asks first. With --yes it does not ask. Without a terminal
--yes is needed. It leaves interfaces and addresses alone: relink ipam reclaim gives up the
addresses of sandboxes that are gone. Run it on the node itself: in a container it does not see
the node's processes and mounts.

` + namingHelp + `

Exit status 0: done; 1: something is kept or failed, and the output names it; 2: usage or
environment.`,
		Example: `  relink forget --stale --dry-run  # what would be dropped
  relink forget --stale --yes      # all checkpoints of sandboxes that are gone
  relink forget shop/web-0`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if opts.Store, err = openStore(cmd); err != nil {
				return err
			}
			opts.Select.Names, opts.AllProcesses = args, sandbox.SeesAllProcesses()
			s := screenOf(cmd)
			plan, err := forget.NewPlan(cmd.Context(), opts)
			if err != nil {
				return err
			}
			report := plan.Report()
			if !confirmed && !dryRun && report.Count(forget.ToForget) > 0 {
				question := fmt.Sprintf("Forget %s? [y/N] ", printable.Count(report.Count(forget.ToForget), "checkpoint"))
				show := func(s *screen) { forgottenOutcomes(report).writeTable(s) }
				if err := s.confirm(cmd, "forgotten", show, question, "y", "Y", "yes", "Yes", "YES"); err != nil {
					return err
				}
			}
			if !dryRun {
				report = plan.Run(cmd.Context())
			}
			return presentForgotten(report, s, dryRun)
		},
	}
	addSelection(cmd, &opts.Select)
	addParent(cmd, &opts.Select)
	flags := cmd.Flags()
	flags.BoolVar(&opts.Stale, "stale", false, "all checkpoints of sandboxes that are gone")
	flags.BoolVar(&confirmed, "yes", false, "do not ask")
	flags.BoolVar(&opts.Force, "force", false, "drop what is named, even if the sandbox may be alive")
	flags.BoolVar(&dryRun, "dry-run", false, "print what would be dropped and why, and drop nothing")
	addOutput(cmd, formatWide)
	return cmd
}

func presentForgotten(report forget.CheckpointReport, s *screen, dryRun bool) error {
	forgotten := forgottenOutcomes(report)
	forgotten.dryRun = dryRun
	forgotten.log(nil)
	return s.present(report, report.Complete(), func() {
		forgotten.write(s)
		if report.LeasesMayRemain() {
			s.info("their addresses may still be leased: relink ipam reclaim shows those of sandboxes that are gone")
		}
	})
}

func forgottenOutcomes(report forget.CheckpointReport) outcomes {
	forgotten := outcomes{columns: []column{{name: "POD"}, {name: "SANDBOX", spare: 1}, {name: "INTERFACE"}}}
	for _, o := range report.Checkpoints {
		id := selection.ShortID(o.Attachment.ContainerID)
		forgotten.list = append(forgotten.list, newOutcome(o.Pod, id, o.Attachment, o.State, o.Reason, o.State == forget.Kept || o.State == forget.Failed,
			o.Pod.String(), id, o.Attachment.IfName))
	}
	parts := countStates([]forget.CheckpointState{forget.ToForget, forget.Forgotten, forget.Kept, forget.Failed}, report.Count)
	if report.Alive > 0 {
		parts = append(parts, fmt.Sprintf("%d of living sandboxes", report.Alive))
	}
	forgotten.summary = cmp.Or(strings.Join(parts, ", "), "no checkpoints")
	return forgotten
}
