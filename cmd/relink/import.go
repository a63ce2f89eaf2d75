package main

import (
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/capture/netfix"
)

func newImport() *cobra.Command {
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
			if opts.Store, err = openStore(cmd); err != nil {
				return err
			}
			opts.Dir = args[0]
			report, err := netfix.Run(cmd.Context(), opts)
			return importedOutcomes(opts, report).present(screenOf(cmd), err)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&opts.Parent.Devices, "parent", nil, "`device` of the host that the lost interfaces were on; of several, the first that exists")
	flags.IntVar(&opts.Parent.VLAN, "vlan", 0, "802.1q `VLAN` of that device; 0: the device itself")
	flags.IntVar(&opts.Parent.MTU, "mtu", 0, "MTU of the lost interfaces in `bytes`; 0: that of the device they are on")
	flags.BoolVar(&opts.Replace, "replace", false, "write a checkpoint anew if an import wrote it from a file alone and the interface is gone")
	flags.BoolVar(&opts.DryRun, "dry-run", false, "print what would be written and why, and write nothing")
	addOutput(cmd, formatWide)
	return cmd
}

func importedOutcomes(opts netfix.Options, report netfix.FileReport) outcomes {
	imported := outcomes{report: report, complete: report.Complete(), dryRun: opts.DryRun, columns: []column{
		{name: "FILE"}, {name: "POD"}, {name: "INTERFACE", spare: 1}, {name: "PARENTS", spare: 3}, {name: "MAC", wide: true}, {name: "ADDRESSES", spare: 2},
	}}
	for _, o := range report.Files {
		i, file := o.Interface, filepath.Base(o.Path)
		entry := newOutcome(o.Pod, o.PodName, o.Attachment, o.State, o.Reason, o.State == netfix.Refused || o.State == netfix.Failed,
			file, o.PodName, o.Attachment.IfName, parentNames(i.Parents), i.Link.MAC, addressList(i.Addresses))
		entry.name, entry.subject.pod = o.Path, file
		imported.list = append(imported.list, entry)
	}
	imported.summary = summarize(imported.list, "no checkpoints of i40e_net_fix in "+opts.Dir,
		netfix.Imported, netfix.Replaced, netfix.ToImport, netfix.ToReplace, netfix.Kept, netfix.Refused, netfix.Failed)
	return imported
}
