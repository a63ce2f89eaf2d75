package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/hostlocal"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/selection"
)

func newIPAMImport(dir *leaseDir, open storeOpener, v *verbosity) *cobra.Command {
	var output format
	var network string
	var retain time.Duration
	var opts hostlocal.Options
	cmd := &cobra.Command{
		Use:   "import DIR --network NETWORK",
		Short: "Take over the addresses that host-local has given",
		Long: `Take over the addresses that host-local has given, from its directory of the
network, /var/lib/cni/networks/<network>: all at once, or none. The running pods hold
them from then on, and the DEL of relink-ipam frees them. Pods and namespaces are
those that the CNI caches name. DIR stays as it is.

It can be run again. A lease that is there is kept, and completed where the caches know
more by now. What was imported and has no file in DIR any more is given up, unless its
sandbox may be alive: a runtime has sent that DEL to host-local.

An address whose sandbox is proven gone is taken over all the same: relink ipam reclaim
gives it up. One whose file is torn is held back until somebody releases it, since a
pod may have it: relink ipam release ADDRESS --network NETWORK --nobody.
Exit status 0: all are leased as DIR says; 1: one is not, or is kept without a file, or
DIR has other files, each said; 2: usage or environment, and nothing was taken over.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkSticky(cmd, opts.Policy.Sticky, retain); err != nil {
				return err
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
	addNetwork(cmd, &network, "the `network` that the addresses are of: the name of relink-ipam's configuration")
	addCacheDir(cmd, &opts.CacheDir)
	flags := cmd.Flags()
	flags.BoolVar(&opts.Policy.Sticky, "sticky", false, `keep what is imported for its pod when that gives it up, as "sticky": "pod" does, where the pod is known`)
	flags.DurationVar(&retain, "retain", 0, "keep it so long, such as 72h (default until it is released)")
	flags.BoolVar(&opts.DryRun, "dry-run", false, "print what would be taken over, and change nothing")
	addOutput(cmd, &output)
	return cmd
}

// checkSticky reports a --retain that makes no sense.
func checkSticky(cmd *cobra.Command, sticky bool, retain time.Duration) error {
	switch {
	case !cmd.Flags().Changed("retain"):
		return nil
	case !sticky:
		return fmt.Errorf("--retain %s needs --sticky: it says how long an address is kept for its pod", retain)
	case retain <= 0:
		return fmt.Errorf("invalid --retain %s: must be more than 0; leave it out to keep it until it is released", retain)
	}
	return nil
}

func importLeases(ctx context.Context, store *lease.Store, opts hostlocal.Options, output format, s *screen) error {
	report, err := hostlocal.Import(ctx, store, opts)
	if err != nil {
		return err
	}
	sayProblems(s, report.Problems)
	if output.isData() {
		if err := output.write(s.out, report); err != nil {
			return err
		}
	} else {
		writeImportedLeases(report, s)
	}
	if !report.Well() {
		return errDiffers
	}
	return nil
}

func writeImportedLeases(report hostlocal.Report, s *screen) {
	if len(report.Files) > 0 {
		t := newTable(false, columns("FILE", "SANDBOX", "INTERFACE", "POD", "STATE", "WHY")...)
		for _, f := range report.Files {
			name := cmp.Or(f.File, f.Address.String())
			t.row(fileCell(name), selection.ShortID(f.Attachment.ContainerID), f.Attachment.IfName, f.Owner.String(), string(f.State), f.Why)
		}
		t.write(s)
	}
	for _, last := range report.Last {
		s.say("range set %d: the next address comes after %s", last.Set, last.Address)
	}
	s.say("%s", importedLeasesSummary(report))
	if n := countFiles(report, isWithoutPod); n > 0 {
		s.say("%d without a known pod: no CNI cache names it, so that no address stays reserved for it", n)
	}
	if countFiles(report, func(f hostlocal.Outcome) bool { return f.State == hostlocal.NoSandbox }) > 0 {
		s.say("what has no live sandbox is given up by relink ipam reclaim --network %s", report.Network)
	}
}

func countFiles(report hostlocal.Report, is func(hostlocal.Outcome) bool) (n int) {
	for _, f := range report.Files {
		if is(f) {
			n++
		}
	}
	return n
}

// isWithoutPod says whether nobody knows the pod of an address whose sandbox may be there.
func isWithoutPod(f hostlocal.Outcome) bool {
	switch f.State {
	case hostlocal.Imported, hostlocal.ToImport, hostlocal.Completed, hostlocal.ToComplete, hostlocal.Kept:
		return f.Owner == (attachment.Owner{})
	case hostlocal.Present:
		return f.Owner == (attachment.Owner{}) && f.Why == ""
	}
	return false
}

// fileCell is a file's name, which can have any character but a slash.
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
