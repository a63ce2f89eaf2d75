package main

import (
	"context"
	"fmt"
	"math/big"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/printable"
)

func newIPAMUsage(dir *leaseDir) *cobra.Command {
	var network string
	cmd := newVerb("ipam-usage", func(cmd *cobra.Command, _ []string) error {
		s := screenOf(cmd)
		usages, incomplete := dir.usages(cmd.Context(), network, s)
		if incomplete != nil && usages == nil {
			return incomplete
		}
		return s.Present(usages, incomplete == nil, func() { writeUsages(usages, *dir, incomplete != nil, s) })
	})
	cmd.ValidArgsFunction = cli.CompleteArgs()
	addNetwork(cmd, dir, &network, "only of this `network`")
	cli.AddOutput(cmd)
	return cmd
}

// usages returns how full each network is, or only the named network. A store that cannot be read does not stop the
// others: it is reported, and the error is errDiffers.
func (d leaseDir) usages(ctx context.Context, network string, s *cli.Screen) ([]lease.Usage, error) {
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
func writeUsages(usages []lease.Usage, dir leaseDir, incomplete bool, s *cli.Screen) {
	switch {
	case s.Quiet:
	case len(usages) > 0:
		usageTable(usages, s)
	case !incomplete:
		path, _ := dir.path() // Its stores were found.
		s.Warnf("%s", leasesIn(path, nil))
	}
	for _, full := range fullSets(usages) {
		s.Printf("%s", full)
	}
	for _, u := range usages {
		if u.Outside > 0 {
			s.Printf("%s: %s outside of these ranges", u.Network, printable.Count(u.Outside, "lease"))
		}
		for _, remark := range u.Remarks {
			s.Printf("%s: %s", u.Network, remark)
		}
	}
}

func usageTable(usages []lease.Usage, s *cli.Screen) {
	t := cli.NewTable("NETWORK | SET:1 | RANGES | SIZE:3 | HELD | RESERVED:2 | QUARANTINED:4 | FREE | USED")
	for _, u := range usages {
		for _, set := range u.Sets {
			t.Values(u.Network, set.Set, set.Ranges, countCell(set.Size), set.Held, set.Reserved, set.Quarantined, countCell(set.Free), percent(set.Share))
		}
	}
	t.Write(s)
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
