package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/pkg/ipam"
)

func newIPAMImport(dir *leaseDir) *cobra.Command {
	var output format
	var network string
	var dryRun bool
	cmd := &cobra.Command{
		Use:   "import DIR --network NETWORK",
		Short: "Take over the addresses that host-local has given",
		Long: `Take over the addresses that host-local has given, from its directory of the
network, /var/lib/cni/networks/<network>: all at once, or none. The running pods hold
them from then on, and the DEL of relink-ipam frees them. DIR stays as it is.

An address whose file is torn is held back until somebody releases it, since a pod
may have it: relink ipam release ADDRESS --network NETWORK --nobody. A lease that is
there is kept: import can be run again.
Exit status 0: all are leased as DIR says; 1: one is not, or DIR has other files, each
said; 2: usage or environment, and nothing was taken over.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := dir.open(network)
			if err != nil {
				return err
			}
			return importLeases(cmd.Context(), store, args[0], dryRun, output, cmd.OutOrStdout())
		},
	}
	addNetwork(cmd, &network, "the `network` that the addresses are of: the name of relink-ipam's configuration")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "print what would be taken over, and change nothing")
	addOutput(cmd, &output)
	return cmd
}

func importLeases(ctx context.Context, store *ipam.Store, dir string, dryRun bool, output format, stdout io.Writer) error {
	report, err := store.Import(ctx, dir, dryRun)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(stdout)
	if output == formatJSON {
		err = writeJSON(w, report)
	} else {
		err = writeImportedLeases(report, w)
	}
	if err := errors.Join(err, w.Flush()); err != nil {
		return err
	}
	if !report.Well() {
		return errDiffers
	}
	return nil
}

func writeImportedLeases(report ipam.ImportReport, w io.Writer) error {
	if len(report.Files) > 0 {
		t := newTable(w, "FILE", "SANDBOX", "INTERFACE", "STATE", "WHY")
		for _, f := range report.Files {
			t.row(fileCell(f.File), shortID(f.Attachment.ContainerID), f.Attachment.IfName, string(f.State), f.Why)
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	for _, last := range report.Last {
		say(w, "range set %d: the next address comes after %s", last.Set, last.Address)
	}
	say(w, "%s", importedLeasesSummary(report))
	return nil
}

// fileCell is a file's name, which can have any character but a slash.
func fileCell(name string) string {
	if quoted := fmt.Sprintf("%q", name); quoted != `"`+name+`"` {
		return quoted
	}
	return name
}

// importedLeasesSummary counts the files by state.
func importedLeasesSummary(report ipam.ImportReport) string {
	counts := map[ipam.ImportState]int{}
	for _, f := range report.Files {
		counts[f.State]++
	}
	var parts []string
	for _, s := range []ipam.ImportState{
		ipam.ImportDone, ipam.ToImport, ipam.ImportPresent, ipam.ImportTorn, ipam.ImportConflict, ipam.ImportIgnored,
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
