package main

import (
	"cmp"
	"slices"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/checkpoint/change"
	"github.com/relink-cni/relink/cmd/internal/cli"
)

func newCapture() *cobra.Command {
	var opts capture.Options
	cmd := newVerb("capture", func(cmd *cobra.Command, _ []string) error {
		report, err := capture.Run(cmd.Context(), opts)
		return capturedOutcomes(report).present(screenOf(cmd), err)
	})
	flags := cmd.Flags()
	flags.BoolVar(&opts.Refresh, "refresh", false, "also write the existing checkpoints anew")
	flags.BoolVar(&opts.DryRun, "dry-run", false, "print what would be written and why, and write nothing")
	addSelection(cmd, &opts.Select, &opts.Store)
	addParent(cmd, &opts.Select)
	flags.StringArrayVar(&opts.Attached, "attached", nil, "interfaces of this `name` were attached by the runtime, whatever the CNI caches say (repeatable)")
	addCacheDir(cmd, &opts.CacheDir)
	cli.AddOutput(cmd, cli.FormatWide)
	return cmd
}

// capturedOutcomes are the interfaces, in order by sandbox.
func capturedOutcomes(report capture.InterfaceReport) outcomes {
	captured := newOutcomes(report, "no interfaces to remember", "POD | SANDBOX:wide | INTERFACE | NETWORK:2 | PARENTS:1 | ADDRESSES:3", func(o capture.InterfaceOutcome) outcome {
		place, sandbox := cmp.Or(o.Namespace.Path, o.File), o.Pod.String()
		if o.Pod.Name == "" {
			sandbox = place
		}
		return newOutcome(o.Outcome, place, sandbox, o.Attachment.ContainerID, o.Attachment.IfName, o.Attachment.Network,
			parentNames(o.Interface.Parents), addressList(o.Interface.Addresses))
	}, capture.Captured, capture.Refreshed, capture.ToCapture, capture.ToRefresh, change.Kept, capture.Skipped, change.Refused, change.NotTried, change.Failed)
	slices.SortStableFunc(captured.list, func(a, b outcome) int {
		return cmp.Or(cmp.Compare(a.cells[0], b.cells[0]), cmp.Compare(a.cells[2], b.cells[2]))
	})
	return captured
}
