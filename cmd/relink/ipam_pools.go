package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/printable"
)

func newIPAMPools() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pools [POOL]",
		Short: "Show the address pools that nodes share",
		Long: `Show the AddressPools of the cluster: how many addresses each has, and how many of them nodes
have. relink-agent of this node asks the Kubernetes API. A line below the table says why a pool
gives nothing new.

With POOL it shows the nodes that have addresses of this pool, and how many. BOOT is the boot of
the node in which it has confirmed that it has them. Several boots, or none, mean that it has not
confirmed all of its blocks. ASKS is for how many addresses it asks other nodes. A line below the
table says why others may take what a node has.

Exit status 0: the API has answered; 2: usage or environment, such as no answer or no such
pool.`,
		Example: `  relink ipam pools
  relink ipam pools vlan3                # which nodes have how much of it
  relink ipam pools vlan3 -o json        # with the stores of the nodes`,
		Args:              takes(0, 1),
		ValidArgsFunction: completeArgs(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				blocks, err := control.Client{}.Blocks(cmd.Context(), args[0])
				return presentPools(pool.Shares(blocks), err, writeShares, screenOf(cmd))
			}
			pools, err := control.Client{}.Pools(cmd.Context())
			return presentPools(pools, err, writePools, screenOf(cmd))
		},
	}
	addOutput(cmd)
	return cmd
}

// presentPools prints what the agent has answered.
func presentPools[T any](answer []T, err error, write func([]T, *screen), s *screen) error {
	if err != nil {
		return poolError(err)
	}
	return s.present(orEmpty(answer), true, func() { write(answer, s) })
}

func writePools(pools []pool.Pool, s *screen) {
	t := newTable("POOL | SUBNET | ADDRESSES | ON NODES | BLOCKS:1 | TAKEN:2")
	for _, p := range pools {
		t.values(p.Metadata.Name, p.Spec.Subnet, p.Status.Addresses, p.Status.Granted, p.Status.Blocks, p.Status.Existing)
	}
	t.writeOr(s, "the cluster has no AddressPool")
	for _, p := range pools {
		if reason := stopReason(p); reason != "" {
			s.printf("%s gives nothing new: %s", p.Metadata.Name, reason)
		}
	}
}

const noShare = "no node has any address of the pool"

// writeShares writes what the nodes have of a pool.
func writeShares(shares []pool.Share, s *screen) {
	t := newTable("NODE | NETWORK:1 | ADDRESSES | BLOCKS | FENCED | ASKS:2 | BOOT:3")
	for _, n := range shares {
		t.values(n.Node, n.Network, n.Addresses, n.Blocks, blankZero(n.FencedAddresses), blankZero(n.Wants), strings.Join(n.Boots, ", "))
	}
	t.writeOr(s, noShare)
	for _, n := range shares {
		for _, reason := range n.Fenced {
			s.printf("%s: others may take %s: %s", n.Node, printable.Count(n.FencedAddresses, "address"), reason)
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

// stopReason says why nobody may take anything of the pool, empty if they may.
// A pool is paused while it recovers: the end of the pause alone does not help then.
func stopReason(p pool.Pool) string {
	var reasons []string
	if p.Metadata.DeletionTimestamp != "" {
		reasons = append(reasons, "it is being deleted")
	}
	if p.Spec.Paused {
		reasons = append(reasons, "spec.paused is true")
	}
	if r := p.Recovery(); r != nil {
		reasons = append(reasons, fmt.Sprintf("since %s the nodes say what they have, and %d have said it: %s", r.Since, len(r.Asserted), r.Reason))
	}
	if p.Status.Problem != "" {
		reasons = append(reasons, p.Status.Problem)
	}
	return strings.Join(reasons, ", and ")
}

// poolError says why the pools cannot be shown. To people who look it says nothing of what pods get: a node gives what it has without an agent
// and without the API.
func poolError(err error) error {
	return errors.New(strings.TrimPrefix(err.Error(), pool.ErrUnavailable.Error()+": "))
}

func newIPAMBlocks() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "blocks POOL",
		Short: "Show which node has which addresses of a pool",
		Long: `Show the blocks of an AddressPool: which nodes have addresses of each, and how many. FREE is how
many of a block nobody has. ASKED says which nodes ask for addresses of it. A line below the table
says why others may take what a node had. relink-agent of this node asks the Kubernetes API.

Exit status 0: the API has answered; 2: usage or environment, such as no answer or no such
pool.`,
		Example: `  relink ipam blocks vlan3
  relink ipam blocks vlan3 -o yaml       # with the network and the store of each node`,
		Args:              takes(1, 1),
		ValidArgsFunction: completeArgs(completePools),
		RunE: func(cmd *cobra.Command, args []string) error {
			blocks, err := control.Client{}.Blocks(cmd.Context(), args[0])
			return presentPools(blocks, err, writeBlocks, screenOf(cmd))
		},
	}
	addOutput(cmd)
	return cmd
}

func writeBlocks(blocks []pool.Block, s *screen) {
	t := newTable("BLOCK | ADDRESSES | NODES | FREE | ASKED:1")
	for _, b := range blocks {
		askers := unique(texts(b.Spec.Want, func(w pool.Want) string { return w.Node }))
		t.values(b.Metadata.Name, b.Span(), nodesOf(b), len(b.FreeOffsets()), strings.Join(askers, ", "))
	}
	t.writeOr(s, noShare)
	s.printLines(fencedLines(blocks))
}

// completePools completes the name of an AddressPool. A completion does not wait long for the agent.
var completePools = completion(func(cmd *cobra.Command) []pool.Pool {
	pools, _ := control.Client{Patience: agentPatience}.Pools(cmd.Context()) // Without an answer, no name is offered.
	return pools
}, func(p pool.Pool) []string { return []string{p.Metadata.Name} })

// nodesOf says how many addresses of the block each node has.
func nodesOf(b pool.Block) string {
	return strings.Join(texts(b.Spec.Holders, func(h pool.Holder) string {
		text := fmt.Sprintf("%s: %d", h.Node, strings.Count(b.Spec.Addresses, h.ID))
		if h.Fenced != "" {
			text += " (declared dead)"
		}
		return text
	}), ", ")
}
