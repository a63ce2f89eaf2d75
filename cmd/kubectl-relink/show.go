package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/pool"
)

func newShow(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ADDRESS",
		Short: "Show which node has an address of a pool, and whose it is",
		Long: `Show what the Kubernetes API says of an address of a pool: which node has it, whether that node is
declared dead, who asks for it, and which owner it belongs to. The lease, with its history, is in
the store of that node: "relink ipam show" shows it there.

Exit status 0: a node has it; 1: nobody has it, or it is of no pool; 2: usage or environment.`,
		Example: `  kubectl relink show 10.3.0.5
  kubectl relink show fd00:3::5 -o yaml`,
		Args:              cli.Takes(1, 1),
		ValidArgsFunction: cli.CompleteArgs(),
		RunE: func(cmd *cobra.Command, args []string) error {
			address, err := cli.ParseAddress(args[0])
			if err != nil {
				return err
			}
			var found []pool.AddressStatus
			err = present(c, cmd, func(api pool.API, ctx context.Context) (_ []pool.AddressStatus, err error) {
				found, err = lookUp(ctx, api, address)
				return found, err
			}, func(statuses []pool.AddressStatus, s *cli.Screen) {
				for _, status := range statuses {
					describe(status, s)
				}
			})
			if err != nil {
				return err
			}
			return cli.ReportDifference(screenOf(cmd), notHeld(address, found))
		},
	}
	cli.AddOutput(cmd)
	return cmd
}

// notHeld says that no node has the address, nil if one has.
func notHeld(a netip.Addr, found []pool.AddressStatus) error {
	excluded := slices.IndexFunc(found, func(p pool.AddressStatus) bool { return p.Excluded })
	switch {
	case slices.ContainsFunc(found, func(p pool.AddressStatus) bool { return p.Holder != nil }):
		return nil
	case len(found) == 0:
		return fmt.Errorf("%s is of no AddressPool", a)
	case excluded >= 0:
		return fmt.Errorf("no node has %s, and the pool %s never gives it", a, found[excluded].Pool)
	}
	return fmt.Errorf("no node has %s", a)
}

// lookUp returns what the API says of an address, for each pool that has it. Nobody has an address whose block does not exist.
func lookUp(ctx context.Context, api pool.API, a netip.Addr) (found []pool.AddressStatus, err error) {
	pools, err := api.Pools(ctx)
	for _, p := range pools {
		l, wrong := p.Layout()
		index, ok := l.Index(a)
		if wrong != nil || !ok {
			continue // Nodes can have it by an earlier spec.
		}
		status := pool.AddressStatus{Pool: l.Name, Block: pool.BlockName(l.Name, index), Address: a, Excluded: l.Excluded(a)}
		switch b, err := api.Block(ctx, status.Block); {
		case err == nil:
			status = b.AddressStatus(a)
			status.Excluded = status.Excluded || l.Excluded(a)
		case !errors.Is(err, pool.ErrNotFound):
			return nil, err
		}
		found = append(found, status)
	}
	if len(found) == 0 && err == nil {
		var blocks []pool.Block
		blocks, err = api.AllBlocks(ctx)
		for _, b := range blocks {
			if b.Offset(a) >= 0 && b.Check() == nil {
				found = append(found, b.AddressStatus(a))
			}
		}
	}
	if len(found) == 0 || err != nil {
		return nil, err
	}
	claims, err := api.ClaimsAt(ctx, a)
	for i := range found {
		found[i].Claims = slices.DeleteFunc(slices.Clone(claims), func(c pool.Claim) bool { return c.Spec.Pool != found[i].Pool })
	}
	return found, err
}

// describe writes what the Kubernetes API says of an address, in the layout of kubectl describe.
func describe(p pool.AddressStatus, s *cli.Screen) {
	var d cli.Description
	d.Add(
		"Address:", p.Address.String(),
		"Pool:", p.Pool,
		"Block:", p.Block,
	)
	switch h := p.Holder; {
	case h != nil:
		d.Add(
			"Node:", h.Node,
			"Network:", h.Network,
			"Store:", h.Store,
			"Since:", fmt.Sprintf("epoch %d of the block, or before", h.Epoch),
			"Boot:", h.Boot,
			"Fenced:", h.Fenced,
		)
	case p.Excluded:
		d.Add("Node:", "nobody: the pool never gives this address")
	default:
		d.Add("Node:", "nobody")
	}
	if p.Unproven {
		d.Add("Probe:", "a pod gets it only after a probe: pods of a dead node may still answer for it")
	}
	for _, w := range p.Want {
		d.Addf("Asked for by:", "node %s, network %s, for AddressClaim %s", w.Node, w.Network, w.Claim)
	}
	for _, c := range p.Claims {
		d.Add(
			"Owner:", fmt.Sprintf("%s, interface %s", c.Spec.Owner, c.Spec.IfName),
			"Claim:", c.Metadata.Name,
			"Active:", placeOf(c.Status.Active),
		)
	}
	if len(p.Claims) == 0 {
		d.Add("Owner:", "nobody")
	}
	d.Write(s)
}

func placeOf(p pool.Place) string {
	text := fmt.Sprintf("on node %s, network %s", p.Node, p.Network)
	if p.PodUID != "" {
		text += ", pod UID " + p.PodUID
	}
	return text
}
