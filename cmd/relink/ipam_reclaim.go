package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/ipam/reclaim"
	"github.com/relink-cni/relink/pkg/sandbox"
	"github.com/relink-cni/relink/pkg/selection"
)

func newIPAMReclaim(dir *leaseDir, open storeOpener, v *verbosity) *cobra.Command {
	var output format
	var network string
	var yes bool
	var opts reclaim.Options
	cmd := &cobra.Command{
		Use:   "reclaim [--yes]",
		Short: "Give up what sandboxes hold that are proven gone",
		Long: `Give up the addresses whose sandboxes are proven gone, and print what proves it: the
lease is of an earlier boot, or no mount and no process has its network namespace any
more, and no CNI cache has the container. Where no namespace was recorded, as by an
older relink, no namespace of the node may have the address. What can't be known is
kept and said. Each address becomes what its DEL would have made of it.

Without --yes it prints what it would do, and changes nothing. Run it on the node
itself: in a container it does not see the node's processes and mounts.
Exit status 0: done; 1: something could not be given up, or not be looked at so that a
holder is unknown, each said; 2: usage or environment.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := cacheIsThere(cmd, opts.CacheDir); err != nil {
				return err
			}
			if err := complete(&opts.Sources, open); err != nil {
				return err
			}
			networks, err := dir.networks(network)
			if err != nil {
				return err
			}
			var stores []*lease.Store
			for _, n := range networks {
				store, err := dir.open(n)
				if err != nil {
					return err
				}
				stores = append(stores, store)
			}
			opts.DryRun = !yes
			return reclaimLeases(cmd.Context(), stores, opts, output, screenOf(cmd, v))
		},
	}
	addNetwork(cmd, &network, "only of this `network`")
	addCacheDir(cmd, &opts.CacheDir)
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	addOutput(cmd, &output)
	return cmd
}

func reclaimLeases(ctx context.Context, stores []*lease.Store, opts reclaim.Options, output format, s *screen) error {
	report, err := reclaim.Run(ctx, stores, opts)
	if err != nil {
		return err
	}
	for _, f := range report.Failures {
		sayError(s.err, errors.New(f))
	}
	sayProblems(s, report.Problems)
	if output.isData() {
		if err := output.write(s.out, report); err != nil {
			return err
		}
	} else {
		writeReclaimed(report, s)
	}
	if !report.Well() {
		return errDiffers
	}
	return nil
}

// sayProblems says what of the node could not be looked at.
func sayProblems(s *screen, problems []string) {
	for _, p := range problems {
		s.warn("not looked at: %s", p)
	}
}

func writeReclaimed(report reclaim.Report, s *screen) {
	becomes := "IS NOW"
	if report.DryRun {
		becomes = "BECOMES"
	}
	if len(report.Holders) > 0 {
		t := newTable(false, columns("ADDRESS", "NETWORK", "SANDBOX", "INTERFACE", "POD", "VERDICT", becomes, "EVIDENCE")...)
		for _, f := range report.Holders {
			then := string(f.Becomes)
			if f.State == reclaim.Failed || f.State == reclaim.Passed {
				then = string(f.State)
			}
			t.row(f.Address.String(), f.Network, selection.ShortID(f.Holder.ContainerID), f.Holder.IfName, f.Owner.String(), string(f.Verdict), then, f.Why())
		}
		t.write(s)
	}
	for _, f := range report.Holders {
		if f.Error != "" {
			s.say("%s is not given up: %s", f.Address, f.Error)
		}
	}
	s.say("%s", reclaimedSummary(report))
}

// reclaimedSummary counts the holders by what became of them, and says how to go on.
func reclaimedSummary(report reclaim.Report) string {
	states, verdicts := map[reclaim.State]int{}, map[reclaim.Verdict]int{reclaim.Alive: report.Alive}
	for _, f := range report.Holders {
		states[f.State]++
		if f.State == reclaim.Kept {
			verdicts[f.Verdict]++
		}
	}
	var parts []string
	for _, s := range []reclaim.State{reclaim.ToReclaim, reclaim.Reclaimed, reclaim.Passed, reclaim.Failed} {
		if states[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", states[s], s))
		}
	}
	for _, v := range []reclaim.Verdict{reclaim.Due, reclaim.Unknown, reclaim.Alive} {
		if verdicts[v] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", verdicts[v], v))
		}
	}
	switch {
	case len(parts) == 0:
		return "no address is held"
	case states[reclaim.ToReclaim] > 0:
		parts[len(parts)-1] += "; add --yes to do it"
	}
	return strings.Join(parts, ", ")
}

// complete adds what this node's checkpoints know of the sandboxes: an address that a NIC's loss took
// away is its pod's still. A checkpoint that can't be read hides that of its own container.
func complete(from *reclaim.Sources, open storeOpener) error {
	store, err := open()
	if err != nil {
		return err
	}
	records, unreadable, err := store.List()
	if err != nil {
		return err
	}
	from.AllProcesses = sandbox.SeesAllProcesses()
	from.Namespaces, from.Unreadable = map[string]attachment.Namespace{}, map[string]string{}
	for _, r := range records {
		from.Namespaces[r.Attachment.ContainerID] = r.Namespace
	}
	for _, u := range unreadable {
		from.Unreadable[u.ContainerID] = fmt.Sprintf("a checkpoint of %s can't be read (relink capture --refresh renews it): %v", u.ContainerID, u.Err)
	}
	return nil
}
