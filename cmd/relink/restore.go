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
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/printable"
)

func newRestore() *cobra.Command {
	var parents []string
	opts := restore.Options{Wait: 30 * time.Second}
	cmd := &cobra.Command{
		Use:   "restore " + nameUsage,
		Short: "Rebuild what was lost: VLAN parents, bond members, interfaces of pods",
		Long: `Rebuild what was lost: make NICs that came back members of their bonds again, create VLAN
parents, create or repair the interfaces of running pods with their old MAC, addresses and
routes, tell the neighbours, and verify.

It leaves alone what is right, so you can run it at any time. A sandbox that is gone is reported
and is no failure.

` + namingHelp + `

Exit status 0: everything is as recorded; 1: something is not, and the output names it;
2: usage or environment.`,
		Example: `  relink restore --dry-run            # what would be done, and why
  relink restore                      # rebuild what was lost
  relink restore shop/web-0           # only this pod
  relink restore --parent eth0        # only what is on this device
  relink restore --parent eth0=ens5f0 # the NIC was replaced by another one`,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if opts.Select.Parent, opts.Mapped, err = parseParents(parents); err != nil {
				return err
			}
			s := screenOf(cmd)
			opts.Progress = s.progress()
			if !s.quiet {
				opts.Waiting = restore.TellWaiting(opts.Wait, "; ^C ends the wait", func(text string) { printLine(s.err, "waiting: %s", text) })
			}
			return restoreAll(cmd.Context(), opts, s)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&opts.DryRun, "dry-run", false, "print what would be done and why, and change nothing")
	addSelection(cmd, &opts.Select, &opts.Store)
	addDuration(cmd, &opts.Wait, false, "wait", "how long to wait for missing devices, and again for their carrier")
	flags.BoolVar(&opts.RebuildBond, "rebuild-bond", false, "build a missing bond from its record: mode, options, MAC, MTU, members")
	flags.BoolVar(&opts.HostAddresses, "host-addresses", false, "bring back the addresses and routes that VLAN parents and bonds had themselves")
	flags.StringArrayVar(&parents, "parent", nil, "only attachments on this `device`; with OLD=NEW: the device OLD of the checkpoints is NEW now (repeatable)")
	completeParent(cmd)
	addOutput(cmd, formatWide)
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

func restoreAll(ctx context.Context, opts restore.Options, s *screen) error {
	debug.SetGCPercent(heapGrowth)
	if !opts.DryRun {
		if err := move.FinishKilled(ctx, opts.Store); err != nil {
			s.warnf("what a killed relink move has left: %v", err)
		}
	}
	report, err := restore.Run(ctx, opts)
	return restoredOutcomes(opts, report).present(s, err)
}

// restoredOutcomes are the attachments, in order by pod.
func restoredOutcomes(opts restore.Options, report restore.Report) outcomes {
	restored := outcomes{report: report, complete: report.Complete(), dryRun: opts.DryRun, notes: report.Notes, steps: report.Parents,
		problems: report.Problems, summary: summary(report, opts.Store.Dir()), header: "POD | SANDBOX:wide | INTERFACE:1 | PARENT:2 | ADDRESS:3 | MAC:4"}
	for _, a := range report.Outcomes {
		// The steps of the parents are printed above the table already, because they concern every row alike.
		o := outcome{
			line: outcomeLine(a, ""), name: attachmentName(a.Pod, a.Attachment), state: string(a.State), reason: cmp.Or(a.Reason, a.ParentReason), detail: a.FullReason(),
			differs: a.Differs(), failed: a.State == change.Failed || a.State == restore.Blocked || a.State == restore.Waiting,
			cells: []string{podCell(a.Pod, a.Attachment.ContainerID), a.Attachment.ContainerID, a.Attachment.IfName, a.Parent,
				addressList(unexpired(a.Interface).Addresses), a.Interface.Link.MAC},
		}
		if report.DryRun {
			o.steps = texts(a.Steps, restore.Step.String)
		}
		restored.list = append(restored.list, o)
	}
	return restored
}

// summary counts the attachments by state. dir is the directory of their checkpoints.
func summary(report restore.Report, dir string) string {
	parts := countStates([]change.State{
		restore.Restored, restore.Repaired, restore.ToRestore, restore.ToRepair,
		restore.AsRecorded, restore.SandboxGone, change.Failed, restore.Waiting, restore.Blocked, change.NotTried,
	}, report.Count)
	if len(parts) == 0 {
		parts = []string{"no attachments are remembered in " + dir}
	}
	if n := len(report.Problems); n > 0 {
		parts = append(parts, printable.Count(n, "other problem"))
	}
	line := strings.Join(parts, ", ") + " in " + report.Duration.Round(time.Millisecond).String()
	if report.WaitDuration >= time.Millisecond {
		line += fmt.Sprintf(", %s of it waiting for devices and carrier", report.WaitDuration.Round(time.Millisecond))
	}
	return line
}
