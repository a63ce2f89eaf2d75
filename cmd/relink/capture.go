package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/capture"
)

func newCapture(open storeOpener, v *verbosity) *cobra.Command {
	var output format
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
writes a torn (damaged) checkpoint anew. A checkpoint that capture or import wrote is dropped
if its sandbox is proven gone.

` + namingHelp + `

Exit status 0: every attachment has a checkpoint; 1: one has none, or was refused, and the
output names it; 2: usage or environment.`,
		Example: `  relink capture --dry-run          # what would be recorded
  relink capture                    # record all that runs without a checkpoint
  relink capture --refresh shop/db  # record how a pod is now`,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			opts.Select.Names = args
			if err := checkCacheDir(cmd, opts.CacheDir); err != nil {
				return err
			}
			if opts.Store, err = open(); err != nil {
				return err
			}
			return captureAll(cmd.Context(), opts, output, screenOf(cmd, v))
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&opts.Refresh, "refresh", false, "also write the existing checkpoints anew")
	flags.BoolVar(&opts.DryRun, "dry-run", false, "print what would be written and why, and write nothing")
	addSelection(cmd, open, &opts.Select)
	addParent(cmd, open, &opts.Select)
	flags.StringArrayVar(&opts.Attached, "attached", nil, "interfaces of this `name` were attached by the runtime, whatever the CNI caches say (repeatable)")
	addCacheDir(cmd, &opts.CacheDir)
	addOutput(cmd, &output, formatWide)
	return cmd
}

// checkCacheDir reports a directory that the user named and that does not exist. Without it, every sandbox would go
// without its name. The first ADD makes the default directory.
func checkCacheDir(cmd *cobra.Command, dir string) error {
	if !cmd.Flags().Changed("cni-cache") {
		return nil
	}
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "open", Path: dir, Err: errors.New("not a directory")}
	}
	if err != nil {
		return fmt.Errorf("invalid --cni-cache: %w", err)
	}
	return nil
}

func captureAll(ctx context.Context, opts capture.Options, output format, s *screen) error {
	report, err := capture.Run(ctx, opts)
	logCapture(opts.DryRun, report, err)
	if err != nil {
		return err
	}
	for _, note := range report.Notes {
		s.warnf("%s", note)
	}
	if output.isData() {
		err = output.write(s.out, report)
	} else {
		writeCaptured(report, output.wide(), s)
	}
	if err != nil {
		return err
	}
	if !report.Complete() {
		return errDiffers
	}
	return nil
}

func writeCaptured(report capture.InterfaceReport, wide bool, s *screen) {
	outcomes := slices.Clone(report.Interfaces)
	slices.SortStableFunc(outcomes, func(a, b capture.InterfaceOutcome) int {
		return cmp.Or(compareBool(hasFailed(a), hasFailed(b)), strings.Compare(captureCell(a), captureCell(b)),
			strings.Compare(a.Attachment.IfName, b.Attachment.IfName))
	})
	if s.quiet {
		outcomes = slices.DeleteFunc(outcomes, func(o capture.InterfaceOutcome) bool { return !hasFailed(o) })
	}
	t := newTable(wide, column{name: "POD"}, column{name: "SANDBOX", wide: true}, column{name: "INTERFACE"}, column{name: "NETWORK", spare: 2},
		column{name: "PARENTS", spare: 1}, column{name: "ADDRESSES", spare: 3}, column{name: stateColumn}, column{name: "WHY"})
	for _, alike := range foldEqual(outcomes, s, func(o capture.InterfaceOutcome) string { return string(o.State) + o.Reason }) {
		o := alike[0]
		if len(alike) > 1 {
			t.row(count(len(alike), "interface"), "", "", "", "", "", string(o.State), o.Reason)
			continue
		}
		t.row(captureCell(o), o.Attachment.ContainerID, o.Attachment.IfName, o.Attachment.Network, parentNames(o.Interface.Parents),
			addressList(o.Interface.Addresses), string(o.State), o.Reason)
	}
	t.write(s)
	writeNotCaptured(outcomes, s)
	for _, p := range report.Problems {
		s.printf("%s", p)
	}
	s.info(capturedSummary(report))
}

// writeNotCaptured lists below the table what was refused or failed. The table can cut a reason short.
func writeNotCaptured(outcomes []capture.InterfaceOutcome, s *screen) {
	var lines []checkLine
	for _, o := range outcomes {
		if hasFailed(o) {
			lines = append(lines, failureLine(o.Pod.String(), o.Namespace.Path, o.Attachment.IfName, string(o.State), o.Reason))
		}
	}
	writeLines(lines, s)
}

func hasFailed(o capture.InterfaceOutcome) bool {
	return o.State == capture.Refused || o.State == capture.Failed
}

// captureCell returns the text that names the interface's sandbox.
func captureCell(o capture.InterfaceOutcome) string {
	if o.Pod.Name == "" {
		return o.Namespace.Path
	}
	return o.Pod.String()
}

// capturedSummary counts the interfaces by state.
func capturedSummary(report capture.InterfaceReport) string {
	counts := map[capture.InterfaceState]int{}
	for _, o := range report.Interfaces {
		counts[o.State]++
	}
	var parts []string
	for _, s := range []capture.InterfaceState{
		capture.Captured, capture.Refreshed, capture.Forgotten, capture.ToCapture, capture.ToRefresh, capture.ToForget,
		capture.Kept, capture.Skipped, capture.Refused, capture.Failed,
	} {
		if counts[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[s], s))
		}
	}
	if len(parts) == 0 {
		return "no interfaces to remember"
	}
	return strings.Join(parts, ", ")
}
