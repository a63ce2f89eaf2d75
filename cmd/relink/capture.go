package main

import (
	"cmp"
	"slices"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/checkpoint/change"
)

func newCapture() *cobra.Command {
	var opts capture.Options
	cmd := &cobra.Command{
		Use:   "capture " + nameUsage,
		Short: "Write checkpoints for pods that run without one",
		Long: `Write checkpoints for pods that run without one, as they are now, whoever attached them.
relink looks into every network namespace that is mounted or that a process is in. It records
each interface that is stacked on a device of the host. The CNI caches (of libcni and Multus)
name networks, container IDs and pods. A pod can stack a macvlan or ipvlan on its own. If a
cache has one and lacks the other, the other is taken to be the pod's own: --attached NAME
says that it is not.

A checkpoint that is there stays as it is. --refresh writes it anew, unless the interface is
worse now: gone, down, on another parent, or without a recorded address or route. It also
writes a torn (damaged) checkpoint anew.

` + namingHelp + `

Exit status 0: every attachment has a checkpoint; 1: one has none, or was refused, and the
output names it; 2: usage or environment.`,
		Example: `  relink capture --dry-run          # what would be recorded
  relink capture                    # record all that runs without a checkpoint
  relink capture --refresh shop/db  # record how a pod is now`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report, err := capture.Run(cmd.Context(), opts)
			return capturedOutcomes(report).present(screenOf(cmd), err)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&opts.Refresh, "refresh", false, "also write the existing checkpoints anew")
	flags.BoolVar(&opts.DryRun, "dry-run", false, "print what would be written and why, and write nothing")
	addSelection(cmd, &opts.Select, &opts.Store)
	addParent(cmd, &opts.Select)
	flags.StringArrayVar(&opts.Attached, "attached", nil, "interfaces of this `name` were attached by the runtime, whatever the CNI caches say (repeatable)")
	addCacheDir(cmd, &opts.CacheDir)
	addOutput(cmd, formatWide)
	return cmd
}

// capturedOutcomes are the interfaces, in order by sandbox.
func capturedOutcomes(report capture.InterfaceReport) outcomes {
	captured := newOutcomes(report, "no interfaces to remember", "POD | SANDBOX:wide | INTERFACE | NETWORK:2 | PARENTS:1 | ADDRESSES:3", func(o capture.InterfaceOutcome) (string, []string) {
		place, sandbox := cmp.Or(o.Namespace.Path, o.File), o.Pod.String()
		if o.Pod.Name == "" {
			sandbox = place
		}
		return place, []string{sandbox, o.Attachment.ContainerID, o.Attachment.IfName, o.Attachment.Network, parentNames(o.Interface.Parents), addressList(o.Interface.Addresses)}
	}, capture.Captured, capture.Refreshed, capture.ToCapture, capture.ToRefresh, change.Kept, capture.Skipped, change.Refused, change.NotTried, change.Failed)
	slices.SortStableFunc(captured.list, func(a, b outcome) int {
		return cmp.Or(cmp.Compare(a.cells[0], b.cells[0]), cmp.Compare(a.cells[2], b.cells[2]))
	})
	return captured
}
