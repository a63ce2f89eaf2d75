package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/hostlocal"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/selection"
)

func newIPAMImport(dir *leaseDir, open storeOpener, v *verbosity) *cobra.Command {
	var output format
	var network string
	var retain lasting
	var opts hostlocal.Options
	cmd := &cobra.Command{
		Use:   "import DIR --network NETWORK",
		Short: "Take over the addresses that host-local has given",
		Long: `Take over the addresses that host-local has given, from its directory of the network,
/var/lib/cni/networks/<network>: all of them, or none. From then on the running pods hold
them, and the DEL of relink-ipam frees them. The CNI caches name the pods and the network
namespaces. DIR stays as it is. No pod may start on the network meanwhile.

You can run it again. A lease that is there is kept, and completed if the caches know more by
now. If the file of an imported lease is gone from DIR, the lease is given up, unless its
sandbox may be alive: the runtime has sent that DEL to host-local.

An address whose sandbox is proven gone is taken over too: relink ipam reclaim gives it up.
The address of a torn (damaged) file is reserved until somebody releases it, because a pod may
have it: relink ipam release ADDRESS --nobody. --quiet shows only what needs a look. --verbose
shows one line for each file, even if many are alike.

Exit status 0: all are leased as DIR says; 1: one is not, or is kept without a file, or DIR has
other files, and the output names it; 2: usage or environment, and nothing was taken over.`,
		Example: `  relink ipam import /var/lib/cni/networks/lan --network lan --dry-run
  relink ipam import /var/lib/cni/networks/lan --network lan --sticky --retain 72h`,
		Args: takes("DIR"),
		ValidArgsFunction: eachCompletes(func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveFilterDirs
		}),
		RunE: func(cmd *cobra.Command, args []string) error {
			if retain != 0 && !opts.Policy.Sticky {
				return fmt.Errorf("--retain %s needs --sticky: it says how long an address is kept for its pod", &retain)
			}
			if err := cacheIsThere(cmd, opts.CacheDir); err != nil {
				return err
			}
			if err := complete(&opts.Sources, open); err != nil {
				return err
			}
			store, err := dir.open(network)
			if err != nil {
				return err
			}
			opts.Dir, opts.Policy.Retain = args[0], lease.Duration(retain)
			return importLeases(cmd.Context(), store, opts, output, screenOf(cmd, v))
		},
	}
	addNetwork(cmd, dir, &network, "the `network` of the addresses: the name in relink-ipam's configuration")
	addCacheDir(cmd, &opts.CacheDir)
	flags := cmd.Flags()
	flags.BoolVar(&opts.Policy.Sticky, "sticky", false, `keep imported addresses for their pods, as "sticky": "pod" does, if the pod is known`)
	flags.Var(&retain, "retain", "how long to keep them, such as 72h (default until they are released)")
	flags.BoolVar(&opts.DryRun, "dry-run", false, "print what would be taken over, and change nothing")
	addOutput(cmd, &output, formatWide)
	return cmd
}

func importLeases(ctx context.Context, store *lease.Store, opts hostlocal.Options, output format, s *screen) error {
	report, err := hostlocal.Import(ctx, store, opts)
	if err != nil {
		return err
	}
	if output.isData() {
		if err := output.write(s.out, report); err != nil {
			return err
		}
	} else {
		writeImportedLeases(report, output.wide(), s)
	}
	sayProblems(s, report.Problems)
	if !report.Complete() {
		return errDiffers
	}
	return nil
}

func writeImportedLeases(report hostlocal.Report, wide bool, s *screen) {
	writeImportedFiles(report.Files, wide, s)
	for _, last := range report.Last {
		s.inform(fmt.Sprintf("range set %d: the next address comes after %s", last.Set, last.Address))
	}
	s.inform(importedLeasesSummary(report))
	if n := countFiles(report, isWithoutPod); n > 0 {
		s.inform(fmt.Sprintf("%d without a known pod: no CNI cache names the pod, so no address stays reserved for it", n))
	}
	if countFiles(report, func(f hostlocal.Outcome) bool { return f.State == hostlocal.NoSandbox }) > 0 {
		s.inform(fmt.Sprintf("to give up what has no live sandbox: relink ipam reclaim --network %s", report.Network))
	}
}

// writeImportedFiles writes the table. Files that need attention come last.
func writeImportedFiles(files []hostlocal.Outcome, wide bool, s *screen) {
	shown := slices.Clone(files)
	if s.quiet {
		shown = slices.DeleteFunc(shown, func(f hostlocal.Outcome) bool { return f.State.Done() })
	}
	if len(shown) == 0 {
		return
	}
	slices.SortStableFunc(shown, func(a, b hostlocal.Outcome) int { return compareBool(!a.State.Done(), !b.State.Done()) })
	t := newTable(wide, column{name: "FILE"}, column{name: "POD"}, column{name: "SANDBOX", spare: 1}, column{name: "INTERFACE", spare: 2},
		column{name: stateColumn}, column{name: "WHY"})
	for _, alike := range folded(shown, s, func(f hostlocal.Outcome) string { return string(f.State) + f.Why }) {
		f := alike[0]
		if len(alike) > 1 {
			t.row(count(len(alike), "file"), "", "", "", string(f.State), f.Why)
			continue
		}
		t.row(fileCell(cmp.Or(f.File, f.Address.String())), ownerName(f.Owner), selection.ShortID(f.Attachment.ContainerID), f.Attachment.IfName, string(f.State), f.Why)
	}
	t.write(s)
}

func countFiles(report hostlocal.Report, is func(hostlocal.Outcome) bool) (n int) {
	for _, f := range report.Files {
		if is(f) {
			n++
		}
	}
	return n
}

// isWithoutPod reports whether the pod of an address is unknown although its sandbox may exist.
func isWithoutPod(f hostlocal.Outcome) bool {
	switch f.State {
	case hostlocal.Imported, hostlocal.ToImport, hostlocal.Completed, hostlocal.ToComplete, hostlocal.Kept:
		return f.Owner == (attachment.Owner{})
	case hostlocal.Present:
		return f.Owner == (attachment.Owner{}) && f.Why == ""
	}
	return false
}

// fileCell is a file's name in a table. The name can have any character but a slash.
func fileCell(name string) string {
	if quoted := fmt.Sprintf("%q", name); quoted != `"`+name+`"` {
		return quoted
	}
	return name
}

// importedLeasesSummary counts the files by state, and says how to go on.
func importedLeasesSummary(report hostlocal.Report) string {
	counts := map[hostlocal.State]int{}
	for _, f := range report.Files {
		counts[f.State]++
	}
	var parts []string
	for _, s := range []hostlocal.State{
		hostlocal.Imported, hostlocal.ToImport, hostlocal.Completed, hostlocal.ToComplete, hostlocal.Present, hostlocal.NoSandbox,
		hostlocal.GivenUp, hostlocal.ToGiveUp, hostlocal.OutOfDate, hostlocal.Kept, hostlocal.Torn, hostlocal.Conflict, hostlocal.Ignored,
	} {
		if counts[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[s], s))
		}
	}
	if len(parts) == 0 {
		return "no address is given in " + report.Dir
	}
	return strings.Join(parts, ", ")
}
