package main

import (
	"context"
	"fmt"
	"math/big"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/printable"
)

func newIPAMUsage(dir *leaseDir) *cobra.Command {
	var network string
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show how full the ranges of each network are",
		Long: `Show how full the ranges of each network are: how many addresses each range set has, and how
many of them are held, reserved, in quarantine and free. The ranges are those that the last
ADD asked for. USED is the share that is held or reserved: an ADD takes an address from
quarantine if no other is left. The lines below the table say what is wrong, and what to do,
such as ranges that are 90% full.

Exit status 0: all stores could be read; 1: one could not, and a message names it;
2: usage or environment.`,
		Example: `  relink ipam usage
  relink ipam usage --quiet              # only what needs a look, such as full ranges
  relink ipam usage --network lan -o json`,
		Args:              takes(0, 0),
		ValidArgsFunction: completeArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s := screenOf(cmd)
			usages, incomplete := dir.usages(cmd.Context(), network, s)
			if incomplete != nil && usages == nil {
				return incomplete
			}
			return s.present(usages, incomplete == nil, func() { writeUsages(usages, *dir, incomplete != nil, s) })
		},
	}
	addNetwork(cmd, dir, &network, "only of this `network`")
	addOutput(cmd)
	return cmd
}

// usages returns how full each network is, or only the named network. A store that cannot be read does not stop the
// others: it is reported, and the error is errDiffers.
func (d leaseDir) usages(ctx context.Context, network string, s *screen) ([]lease.Usage, error) {
	stores, err := d.stores(network)
	if err != nil {
		return nil, err
	}
	usages := []lease.Usage{}
	err = eachStore(stores, s, func(store *lease.Store) error {
		u, err := store.Usage(ctx)
		if err != nil {
			return err
		}
		remarks, err := storeRemarks(ctx, store)
		u.Remarks = append(u.Remarks, remarks...)
		usages = append(usages, u)
		return err
	})
	return usages, err
}

// writeUsages writes the usages. incomplete says that some stores could not be read.
func writeUsages(usages []lease.Usage, dir leaseDir, incomplete bool, s *screen) {
	switch {
	case s.quiet:
	case len(usages) > 0:
		usageTable(usages, s)
	case !incomplete:
		path, _ := dir.path() // Its stores were found.
		s.warnf("%s", leasesIn(path, nil))
	}
	for _, full := range fullSets(usages) {
		s.printf("%s", full)
	}
	for _, u := range usages {
		if u.Outside > 0 {
			s.printf("%s: %s outside of these ranges", u.Network, printable.Count(u.Outside, "lease"))
		}
		for _, remark := range u.Remarks {
			s.printf("%s: %s", u.Network, remark)
		}
	}
}

func usageTable(usages []lease.Usage, s *screen) {
	t := newTable("NETWORK | SET:1 | RANGES | SIZE:3 | HELD | RESERVED:2 | QUARANTINED:4 | FREE | USED")
	for _, u := range usages {
		for _, set := range u.Sets {
			t.values(u.Network, set.Set, set.Ranges, countCell(set.Size), set.Held, set.Reserved, set.Quarantined, countCell(set.Free), percent(set.Share))
		}
	}
	t.write(s)
}

// fullShare is the share from which a range set counts as nearly full.
const fullShare = 0.9

// fullSet is a range set that is nearly full, or full.
type fullSet struct {
	Network string `json:"network"`
	lease.SetUsage
}

// fullSets returns the range sets of which at least fullShare is held or reserved, in their order. What a node has of a pool
// that nodes share is none of them: it grows when it is used up.
func fullSets(usages []lease.Usage) []fullSet {
	var full []fullSet
	for _, u := range usages {
		for _, set := range u.Sets {
			if set.Pool == "" && set.Share >= fullShare {
				full = append(full, fullSet{u.Network, set})
			}
		}
	}
	return full
}

// String says how full the set is, and what to do.
func (f fullSet) String() string {
	used := f.Held + f.Reserved
	free := new(big.Int).Sub(f.Size, big.NewInt(int64(used)))
	state := fmt.Sprintf("nearly full (%s, %s left)", percent(f.Share), free)
	if free.Sign() <= 0 {
		state = "full: the next ADD fails"
	}
	return fmt.Sprintf(`%[1]s: %[2]s is %[3]s: add a range to "ranges" of the configuration, or free what is not needed: `+
		"relink gc --leases --network %[1]s; relink ipam list --network %[1]s --state reserved", f.Network, f.Ranges, state)
}

// countCell is a number that people can read. An IPv6 subnet has more addresses than anybody counts.
func countCell(n *big.Int) string {
	const readable = 12
	if s := n.String(); len(s) <= readable {
		return s
	}
	return fmt.Sprintf("%.2g", new(big.Float).SetInt(n))
}
