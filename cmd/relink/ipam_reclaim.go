package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/ipam/reclaim"
	"github.com/relink-cni/relink/pkg/sandbox"
	"github.com/relink-cni/relink/pkg/selection"
)

func newIPAMReclaim(dir *leaseDir) *cobra.Command {
	var filter selection.Selection
	var confirmed bool
	var opts reclaim.Options
	cmd := &cobra.Command{
		Use:   "reclaim " + leaseNameUsage,
		Short: "Give up the addresses of sandboxes that are proven gone",
		Long: `Give up the addresses of sandboxes that are proven gone, and print the proof: the lease is of an
earlier boot, or no mount and no process has the sandbox's network namespace any more, and no
CNI cache has the container. If no namespace was recorded, as by an import, no namespace of the
node may have the address. If relink cannot find out, it keeps the address and reports it. Each
address becomes what its DEL would have made of it.

Without --yes it prints what it would do, and changes nothing. Run it on the node itself: in a
container it does not see the node's processes and mounts. --verbose also lists the holders
that are alive. --quiet leaves out those that were reclaimed.

` + leaseNamingHelp + `

Exit status 0: done; 1: an address could not be given up, or a holder is unknown because relink
could not look at part of the node; 2: usage or environment.`,
		Example: `  relink ipam reclaim                # what would be given up, and why
  relink ipam reclaim --yes          # give it up
  relink ipam reclaim shop/web-0     # only what a pod holds`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := addCheckpoints(cmd, &opts.Sources); err != nil {
				return err
			}
			s := screenOf(cmd)
			filter.Names = args
			opts.DryRun, opts.WithAlive = !confirmed, s.verbose
			stores, unheld, err := dir.storesOf(cmd.Context(), filter, &opts)
			if err != nil {
				return err
			}
			warnUnheld(s, unheld)
			return reclaimLeases(cmd.Context(), stores, opts, s)
		},
	}
	addLeaseSelection(cmd, dir, &filter)
	addCacheDir(cmd, &opts.CacheDir)
	cmd.Flags().BoolVar(&confirmed, "yes", false, "give up what is proven gone")
	addOutput(cmd, formatWide)
	return cmd
}

// storesOf returns the stores of the named networks. It sets opts.Chosen to the named holders. unheld are the named
// leases that nobody holds.
func (d leaseDir) storesOf(ctx context.Context, filter selection.Selection, opts *reclaim.Options) (stores []*lease.Store, unheld []lease.Lease, err error) {
	stores, err = d.stores(filter.Network)
	isNamed := len(filter.Names) > 0
	if err != nil || !isNamed && filter.Namespace == "" {
		return stores, nil, err
	}
	var leases []lease.Lease
	for _, store := range stores {
		stored, err := store.List(ctx)
		if err != nil {
			return nil, nil, err // The named holder may be in this store.
		}
		leases = append(leases, stored...)
	}
	named, err := choose(holdingsOf(leases), filter)
	if err != nil {
		return nil, nil, err
	}
	chosen := map[heldAddress]bool{}
	for _, h := range named {
		if h.lease.State == lease.Held {
			chosen[heldAddress{h.lease.Address, h.holder.Key(h.lease.Network)}] = true
		} else if isNamed {
			unheld = append(unheld, h.lease)
		}
	}
	opts.Filter = func(l lease.Lease, h lease.Holder) bool { return chosen[heldAddress{l.Address, h.Key(l.Network)}] }
	return stores, unheld, nil
}

// warnUnheld reports the named addresses that have nobody to give them up.
func warnUnheld(s *screen, leases []lease.Lease) {
	for _, l := range leases {
		state := "in quarantine"
		if l.State == lease.Reserved {
			state = l.Describe()
		}
		s.warnf("nobody holds %s: it is %s; there is nothing to reclaim", l.Address, state)
	}
}

// heldAddress is an address and one of its holders.
type heldAddress struct {
	address netip.Addr
	holder  attachment.Key
}

func reclaimLeases(ctx context.Context, stores []*lease.Store, opts reclaim.Options, s *screen) error {
	report, err := reclaim.Run(ctx, stores, opts)
	if err != nil {
		return err
	}
	err = s.present(report, report.Complete(), func() { writeReclaimed(report, s) })
	printProblems(s, report.Problems)
	for _, f := range report.Failures {
		printError(s.err, errors.New(f))
	}
	return err
}

// printProblems reports the parts of the node that relink could not look at.
func printProblems(s *screen, problems []string) {
	for _, p := range problems {
		s.warnf("not looked at: %s", p)
	}
}

// writeReclaimed writes the table. Failures come last.
func writeReclaimed(report reclaim.HolderReport, s *screen) {
	becomes := "IS NOW"
	if report.DryRun {
		becomes = "BECOMES"
	}
	shown := slices.Clone(report.Holders)
	if s.quiet {
		shown = slices.DeleteFunc(shown, func(f reclaim.HolderFinding) bool {
			return f.State == reclaim.Reclaimed || f.State == reclaim.ReleasedMeanwhile
		})
	}
	slices.SortStableFunc(shown, func(a, b reclaim.HolderFinding) int {
		return cmp.Or(compareBool(a.State == reclaim.Failed, b.State == reclaim.Failed), compareLeases(findingLease(a), findingLease(b)))
	})
	t := newTable(columns("POD", "ADDRESS"), spareColumn("NETWORK", 2), wideColumns("SANDBOX", "INTERFACE"), columns("VERDICT"),
		spareColumn(becomes, 1), columns("WHY"))
	for _, f := range shown {
		state, pod := string(f.StateAfter), ownerCell(findingLease(f))
		if f.State == reclaim.Failed || f.State == reclaim.ReleasedMeanwhile {
			state = string(f.State)
		}
		t.row(pod, f.Address.String(), f.Network, selection.ShortID(f.Holder.ContainerID), f.Holder.IfName, string(f.Verdict), state, f.Reason())
	}
	if len(shown) > 0 {
		t.write(s)
	}
	for _, f := range shown {
		if f.Error != "" {
			s.printf("%s is not given up: %s", f.Address, f.Error)
		}
	}
	s.info(reclaimedSummary(report))
}

// findingLease returns the lease as the finding describes it.
func findingLease(f reclaim.HolderFinding) lease.Lease {
	return lease.Lease{Address: f.Address, Network: f.Network, Owner: f.Owner, State: lease.Held, Holders: []lease.Holder{f.Holder}}
}

// reclaimedSummary counts the holders by outcome, and says how to go on.
func reclaimedSummary(report reclaim.HolderReport) string {
	states, verdicts := map[reclaim.HolderState]int{}, map[sandbox.Verdict]int{sandbox.VerdictAlive: report.Alive}
	for _, f := range report.Holders {
		states[f.State]++
		if f.State == reclaim.Kept && f.Verdict != sandbox.VerdictAlive {
			verdicts[f.Verdict]++
		}
	}
	parts := append(
		countStates([]reclaim.HolderState{reclaim.ToReclaim, reclaim.Reclaimed, reclaim.ReleasedMeanwhile, reclaim.Failed}, func(s reclaim.HolderState) int { return states[s] }),
		countStates([]sandbox.Verdict{sandbox.VerdictDELDue, sandbox.VerdictUnknown, sandbox.VerdictAlive}, func(v sandbox.Verdict) int { return verdicts[v] })...)
	switch {
	case len(parts) == 0:
		return "no address is held: there is nothing to reclaim"
	case states[reclaim.ToReclaim] > 0:
		parts[len(parts)-1] += "; add --yes to do it"
	}
	return strings.Join(parts, ", ")
}

// allProcesses reports whether this program sees all processes of the node.
var allProcesses = sandbox.SeesAllProcesses

// addCheckpoints adds what this node's checkpoints know of the sandboxes. A pod still owns the address that it lost with a
// NIC. A checkpoint that cannot be read hides the namespace of its container.
func addCheckpoints(cmd *cobra.Command, sources *reclaim.Sources) error {
	store, err := openStore(cmd)
	if err != nil {
		return err
	}
	records, unreadable, err := store.List()
	if err != nil {
		return err
	}
	sources.AllProcesses = allProcesses()
	sources.Namespaces, sources.Unreadable = map[string]attachment.Namespace{}, map[string]string{}
	for _, r := range records {
		sources.Namespaces[r.Attachment.ContainerID] = r.Namespace
	}
	for _, u := range unreadable {
		sources.Unreadable[u.ContainerID] = fmt.Sprintf("a checkpoint of %s cannot be read: %v", u.ContainerID, u.Err)
	}
	return nil
}
