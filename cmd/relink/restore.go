package main

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/checkpoint/move"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/printable"
)

func newRestore() *cobra.Command {
	var parents []string
	opts := restore.Options{Wait: 30 * time.Second}
	cmd := newVerb("restore", func(cmd *cobra.Command, _ []string) (err error) {
		if opts.Select.Parent, opts.Mapped, err = parseParents(parents); err != nil {
			return err
		}
		s := screenOf(cmd)
		opts.Progress = s.Progress("sandbox")
		if !s.Quiet {
			opts.Waiting = restore.TellWaiting(opts.Wait, "; ^C ends the wait", func(text string) { cli.PrintLine(s.Err, "waiting: %s", text) })
		}
		return restoreAll(cmd.Context(), opts, s)
	})
	flags := cmd.Flags()
	flags.BoolVar(&opts.DryRun, "dry-run", false, "print what would be done and why, and change nothing")
	addSelection(cmd, &opts.Select, &opts.Store)
	cli.AddDuration(cmd, &opts.Wait, false, "wait", "how long to wait for missing devices, and again for their carrier")
	flags.BoolVar(&opts.RebuildBond, "rebuild-bond", false, "build a missing bond from its record: mode, options, MAC, MTU, members")
	flags.BoolVar(&opts.HostAddresses, "host-addresses", false, "bring back the addresses and routes that VLAN parents and bonds had themselves")
	flags.StringArrayVar(&parents, "parent", nil, "only attachments on this `device`; with OLD=NEW: the device OLD of the checkpoints is NEW now (repeatable)")
	completeParent(cmd)
	cli.AddOutput(cmd, cli.FormatWide)
	return cmd
}

// parseParents reads the values of --parent. A value is a device that selects, or a pair that maps one device to
// another.
func parseParents(values []string) (selected string, mapped map[string]string, err error) {
	mapped = map[string]string{}
	for _, value := range values {
		oldName, newName, pair := strings.Cut(value, "=")
		if !pair {
			if selected != "" && selected != value {
				return "", nil, fmt.Errorf("invalid --parent %q: --parent %s selects already; to say that a device has another name now, write OLD=NEW", value, selected)
			}
			selected = value
			continue
		}
		for _, name := range []string{oldName, newName} {
			if err := attachment.ValidateIfName(name); err != nil {
				return "", nil, fmt.Errorf("invalid --parent %q: device %q %w", value, name, err)
			}
		}
		if earlier, twice := mapped[oldName]; twice && earlier != newName {
			return "", nil, fmt.Errorf("invalid --parent %q: %s is %s already", value, oldName, earlier)
		}
		mapped[oldName] = newName
	}
	return selected, mapped, nil
}

// heapGrowth is the percentage by which the live heap may grow before a garbage collection. A restore ends soon, and
// 5,000 sandboxes stay below 250 MB.
const heapGrowth = 300

func restoreAll(ctx context.Context, opts restore.Options, s *cli.Screen) error {
	debug.SetGCPercent(heapGrowth)
	if !opts.DryRun {
		if err := move.FinishKilled(ctx, opts.Store); err != nil {
			s.Warnf("what a killed relink move has left: %v", err)
		}
	}
	report, err := restore.Run(ctx, opts)
	return restoredOutcomes(opts, report).present(s, err)
}

// restoredOutcomes are the attachments, in order by pod.
func restoredOutcomes(opts restore.Options, report restore.Report) outcomes {
	const header = "POD | SANDBOX:wide | INTERFACE:1 | PARENT:2 | ADDRESS:3 | MAC:4"
	restored := newOutcomes(report.Report, "no attachments are remembered in "+opts.Store.Dir(), header, func(a restore.Outcome) outcome {
		o := newOutcome(a.Outcome, "", podCell(a.Pod, a.Attachment.ContainerID), a.Attachment.ContainerID, a.Attachment.IfName, a.Parent,
			addressList(unexpired(a.Interface).Addresses), a.Interface.Link.MAC)
		o.line = outcomeLine(a, "")
		// The steps of the parents are printed above the table already, because they concern every row alike.
		o.reason, o.detail = cmp.Or(a.Reason, a.ParentReason), a.FullReason()
		o.differs, o.failed = a.Differs(), a.State == change.Failed || a.State == restore.Blocked || a.State == restore.Waiting
		if report.DryRun {
			o.steps = cli.Strings(a.Steps)
		}
		return o
	}, restore.Restored, restore.Repaired, restore.ToRestore, restore.ToRepair,
		restore.AsRecorded, restore.SandboxGone, change.Failed, restore.Waiting, restore.Blocked, change.NotTried)
	restored.report, restored.complete, restored.dryRun, restored.steps = report, report.Complete(), opts.DryRun, report.Parents
	if n := len(report.Problems); n > 0 {
		restored.summary += ", " + printable.Count(n, "other problem")
	}
	restored.summary += " in " + report.Duration.Round(time.Millisecond).String()
	if report.WaitDuration >= time.Millisecond {
		restored.summary += fmt.Sprintf(", %s of it waiting for devices and carrier", report.WaitDuration.Round(time.Millisecond))
	}
	return restored
}
