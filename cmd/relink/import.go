package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/capture/netfix"
	"github.com/relink-cni/relink/pkg/netstate"
)

func newImport(open storeOpener, v *verbosity) *cobra.Command {
	var output format
	var opts netfix.Options
	cmd := &cobra.Command{
		Use:   "import DIR --parent DEVICE[,DEVICE...] [--vlan ID] [--replace]",
		Short: "Write checkpoints of the pods that i40e_net_fix remembers",
		Long: `Write checkpoints of the pods that the tool i40e_net_fix remembers, so that relink restore can
bring them back. DIR has that tool's files. An interface that is there with the file's MAC and
addresses is recorded as it is. An interface that is gone is recorded from the file, as a
macvlan on --parent or on its VLAN. A file is refused if its sandbox may be another pod's now.

A checkpoint that is there stays as it is, so you can run import again. If you named the wrong
--parent or --vlan, run it again with --replace: this writes anew what an import wrote from a
file alone, while the interface is gone.

Exit status 0: every pod has its checkpoint; 1: one has none, and the output names it; 2: usage
or environment.`,
		Example: `  relink import /var/lib/i40e_net_fix --parent bond4 --vlan 3 --dry-run
  relink import /var/lib/i40e_net_fix --parent bond4,eth0 --vlan 3
  relink import /var/lib/i40e_net_fix --parent bond4 --vlan 4 --replace`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if opts.Store, err = open(); err != nil {
				return err
			}
			opts.Dir = args[0]
			return importAll(cmd.Context(), opts, output, screenOf(cmd, v))
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&opts.Parent.Devices, "parent", nil, "`device` of the host that the lost interfaces were on; of several, the first that exists")
	flags.IntVar(&opts.Parent.VLAN, "vlan", 0, "802.1q `VLAN` of that device; 0: the device itself")
	flags.IntVar(&opts.Parent.MTU, "mtu", 0, "MTU of the lost interfaces in `bytes`; 0: that of the device they are on")
	flags.BoolVar(&opts.Replace, "replace", false, "write a checkpoint anew if an import wrote it from a file alone and the interface is gone")
	flags.BoolVar(&opts.DryRun, "dry-run", false, "print what would be written and why, and write nothing")
	addOutput(cmd, &output, formatWide)
	return cmd
}

func importAll(ctx context.Context, opts netfix.Options, output format, s *screen) error {
	report, err := netfix.Run(ctx, opts)
	logImport(opts.DryRun, report, opts.Dir, err)
	if err != nil {
		return err
	}
	if output.isData() {
		err = output.write(s.out, report)
	} else {
		writeImported(report, opts.Dir, output.wide(), s)
	}
	if err != nil {
		return err
	}
	if !report.Complete() {
		return errDiffers
	}
	return nil
}

func writeImported(report netfix.FileReport, dir string, wide bool, s *screen) {
	t := newTable(wide, column{name: "FILE"}, column{name: "POD"}, column{name: "INTERFACE", spare: 1}, column{name: "PARENTS", spare: 3},
		column{name: "MAC", wide: true}, column{name: "ADDRESSES", spare: 2}, column{name: stateColumn}, column{name: "WHY"})
	var notImported []checkLine // Written below the table, which can cut a reason short.
	for _, o := range report.Files {
		failed := o.State == netfix.Refused || o.State == netfix.Failed
		if failed {
			notImported = append(notImported, failureLine(filepath.Base(o.Path), o.PodName, o.Attachment.IfName, string(o.State), o.Reason))
		} else if s.quiet {
			continue
		}
		var i netstate.Interface
		if o.Interface != nil {
			i = *o.Interface
		}
		t.row(filepath.Base(o.Path), o.PodName, o.Attachment.IfName, parentNames(i.Parents), i.Link.MAC,
			addressList(i.Addresses), string(o.State), o.Reason)
	}
	t.write(s)
	writeLines(notImported, s)
	s.info(importedSummary(report, dir))
}

// importedSummary counts the files by state.
func importedSummary(report netfix.FileReport, dir string) string {
	counts := map[netfix.FileState]int{}
	for _, o := range report.Files {
		counts[o.State]++
	}
	var parts []string
	for _, s := range []netfix.FileState{netfix.Imported, netfix.Replaced, netfix.ToImport, netfix.ToReplace, netfix.Kept, netfix.Refused, netfix.Failed} {
		if counts[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[s], s))
		}
	}
	if len(parts) == 0 {
		return "no checkpoints of i40e_net_fix in " + dir
	}
	return strings.Join(parts, ", ")
}
