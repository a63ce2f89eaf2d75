package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/kube/objects"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/printable"
)

func newPools(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pools [POOL]",
		Short: "Show the address pools that nodes share",
		Long: `Show the AddressPools of the cluster: how many addresses each has, and how many of them nodes
have. A line below the table says why a pool gives nothing new.

With POOL it shows the nodes that have addresses of this pool, and how many. BOOT is the boot of
the node in which it has confirmed that it has them. Several boots, or none, mean that it has not
confirmed all of its blocks. ASKS is for how many addresses it asks other nodes. A line below the
table says why others may take what a node has.

Exit status 0: the API has answered; 2: usage or environment, such as no answer or no such
pool.`,
		Example: `  kubectl relink pools
  kubectl relink pools vlan3                # which nodes have how much of it
  kubectl relink pools vlan3 -o json        # with the stores of the nodes`,
		Args:              cli.Takes(0, 1),
		ValidArgsFunction: cli.CompleteArgs(c.completePools()),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return present(c, cmd, pool.API.Pools, writePools)
			}
			return present(c, cmd, func(api pool.API, ctx context.Context) ([]pool.Share, error) {
				blocks, err := blocksOf(ctx, api, args[0])
				return pool.Shares(blocks), err
			}, writeShares)
		},
	}
	cli.AddOutput(cmd)
	return cmd
}

// blocksOf returns all blocks of a pool, in the order of the index. The error matches pool.ErrNotFound if there is no such pool.
func blocksOf(ctx context.Context, api pool.API, name string) ([]pool.Block, error) {
	if err := checkName("POOL", name); err != nil {
		return nil, err
	}
	if _, err := api.Pool(ctx, name); err != nil {
		return nil, err
	}
	blocks, err := api.Blocks(ctx, name)
	slices.SortFunc(blocks, func(a, b pool.Block) int { return cmp.Compare(a.Spec.Index, b.Spec.Index) })
	return blocks, err
}

func writePools(pools []pool.Pool, s *cli.Screen) {
	t := cli.NewTable("POOL | SUBNET | ADDRESSES | ON NODES | BLOCKS:1 | TAKEN:2")
	for _, p := range pools {
		t.Values(p.Metadata.Name, p.Spec.Subnet, p.Status.Addresses, p.Status.Granted, p.Status.Blocks, p.Status.Existing)
	}
	t.WriteOr(s, "the cluster has no AddressPool")
	for _, p := range pools {
		if ready := p.Status.Condition(pool.Ready); ready.Status == pool.False {
			s.Printf("%s gives nothing new: %s", p.Metadata.Name, ready.Message)
		}
	}
}

const noShare = "no node has any address of the pool"

// writeShares writes what the nodes have of a pool.
func writeShares(shares []pool.Share, s *cli.Screen) {
	t := cli.NewTable("NODE | NETWORK:1 | ADDRESSES | BLOCKS | FENCED | ASKS:2 | BOOT:3")
	for _, n := range shares {
		t.Values(n.Node, n.Network, n.Addresses, n.Blocks, blankZero(n.FencedAddresses), blankZero(n.Wants), strings.Join(n.Boots, ", "))
	}
	t.WriteOr(s, noShare)
	for _, n := range shares {
		for _, reason := range n.Fenced {
			s.Printf("%s: others may take %s: %s", n.Node, printable.Count(n.FencedAddresses, "address"), reason)
		}
	}
}

// blankZero is a number, or nothing for 0.
func blankZero(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func newBlocks(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "blocks POOL",
		Short: "Show which node has which addresses of a pool",
		Long: `Show the blocks of an AddressPool: which nodes have addresses of each, and how many. FREE is how
many of a block nobody has. ASKED says which nodes ask for addresses of it. A line below the table
says why others may take what a node had.

Exit status 0: the API has answered; 2: usage or environment, such as no answer or no such
pool.`,
		Example: `  kubectl relink blocks vlan3
  kubectl relink blocks vlan3 -o yaml       # with the network and the store of each node`,
		Args:              cli.Takes(1, 1),
		ValidArgsFunction: cli.CompleteArgs(c.completePools()),
		RunE: func(cmd *cobra.Command, args []string) error {
			return present(c, cmd, func(api pool.API, ctx context.Context) ([]pool.Block, error) { return blocksOf(ctx, api, args[0]) }, writeBlocks)
		},
	}
	cli.AddOutput(cmd)
	return cmd
}

func writeBlocks(blocks []pool.Block, s *cli.Screen) {
	t := cli.NewTable("BLOCK | ADDRESSES | NODES | FREE | ASKED:1")
	for _, b := range blocks {
		askers := cli.Unique(cli.Texts(b.Status.Want, func(w pool.Want) string { return w.Node }))
		t.Values(b.Metadata.Name, b.Span(), nodesOf(b), len(b.FreeOffsets()), strings.Join(askers, ", "))
	}
	t.WriteOr(s, noShare)
	s.PrintLines(fencedLines(blocks))
}

// completionLimit bounds a completion: the user has pressed a key and is waiting.
const completionLimit = 2 * time.Second

// completePools completes the name of an AddressPool.
func (c *connection) completePools() cobra.CompletionFunc {
	return cli.Completion(func(cmd *cobra.Command) []pool.Pool {
		client, err := c.client()
		if err != nil {
			return nil
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionLimit)
		defer cancel()
		pools, _ := objects.NewPoolAPI(client).Pools(ctx) // Without an answer, no name is offered.
		return pools
	}, func(p pool.Pool) []string { return []string{p.Metadata.Name} })
}

// nodesOf says how many addresses of the block each node has.
func nodesOf(b pool.Block) string {
	return strings.Join(cli.Texts(b.Status.Holders, func(h pool.Holder) string {
		text := fmt.Sprintf("%s: %d", h.Node, strings.Count(b.Status.Addresses, h.ID))
		if h.Fenced != "" {
			text += " (declared dead)"
		}
		return text
	}), ", ")
}
