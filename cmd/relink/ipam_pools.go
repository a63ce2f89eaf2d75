package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/pool"
)

func newIPAMPools(v *verbosity) *cobra.Command {
	var output format
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
		Args:              mayTake("POOL"),
		ValidArgsFunction: eachCompletes(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return showPool(cmd.Context(), args[0], output, screenOf(cmd, v))
			}
			all, err := control.Client{}.Pools(cmd.Context())
			if err != nil {
				return unread{err}
			}
			return writePools(all, output, screenOf(cmd, v))
		},
	}
	addOutput(cmd, &output)
	return cmd
}

func writePools(all []pool.Pool, output format, s *screen) error {
	if output.isData() {
		return output.write(s.out, orEmpty(all))
	}
	t := newTable(false, column{name: "POOL"}, column{name: "SUBNET"}, column{name: "ADDRESSES"}, column{name: "ON NODES"}, column{name: "BLOCKS", spare: 1}, column{name: "TAKEN", spare: 2})
	for _, p := range all {
		t.row(p.Metadata.Name, p.Spec.Subnet, cmp.Or(p.Status.Addresses, "-"), fmt.Sprint(p.Status.Granted), fmt.Sprint(p.Status.Blocks), fmt.Sprint(p.Status.Taken))
	}
	if len(all) > 0 && !s.quiet {
		t.write(s)
	} else if len(all) == 0 && !s.quiet {
		s.warn("the cluster has no AddressPool")
	}
	for _, p := range all {
		if why := stopped(p); why != "" {
			s.say("%s gives nothing new: %s", p.Metadata.Name, why)
		}
	}
	return nil
}

// showPool shows what the nodes have of a pool.
func showPool(ctx context.Context, name string, output format, s *screen) error {
	blocks, err := control.Client{}.Blocks(ctx, name)
	if err != nil {
		return unread{err}
	}
	all := pool.Shares(blocks)
	if output.isData() {
		return output.write(s.out, orEmpty(all))
	}
	t := newTable(false, column{name: "NODE"}, column{name: "NETWORK", spare: 1}, column{name: "ADDRESSES"}, column{name: "BLOCKS"}, column{name: "FENCED"}, column{name: "ASKS", spare: 2}, column{name: "BOOT", spare: 3})
	for _, n := range all {
		t.row(n.Node, n.Network, fmt.Sprint(n.Addresses), fmt.Sprint(n.Blocks), unlessZero(n.FencedAddresses), unlessZero(n.Wants), strings.Join(n.Boots, ", "))
	}
	if len(all) == 0 && !s.quiet {
		s.warn("no node has any address of the pool")
	} else if !s.quiet {
		t.write(s)
	}
	for _, n := range all {
		for _, why := range n.Fenced {
			s.say("%s: others may take %s: %s", n.Node, count(n.FencedAddresses, "address"), why)
		}
	}
	return nil
}

// unlessZero is a number, or nothing for 0.
func unlessZero(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

// stopped says why nobody may take anything of the pool, empty if they may.
// A pool is paused while it recovers: the end of the pause alone does not help then.
func stopped(p pool.Pool) string {
	var all []string
	if p.Metadata.DeletionTimestamp != "" {
		all = append(all, "it is being deleted")
	}
	if p.Spec.Paused {
		all = append(all, "spec.paused is true")
	}
	if r := p.Recovery(); r != nil {
		all = append(all, fmt.Sprintf("since %s the nodes say what they have, and %d have said it: %s", r.Since, len(r.Asserted), r.Why))
	}
	if p.Status.Problem != "" {
		all = append(all, p.Status.Problem)
	}
	return strings.Join(all, ", and ")
}

// unread is why the pools cannot be shown. To people who look it says nothing of what pods get: a node gives what it has without an agent
// and without the API.
type unread struct{ error }

func (u unread) Error() string {
	return strings.TrimPrefix(u.error.Error(), pool.ErrUnavailable.Error()+": ")
}

func (u unread) Unwrap() error { return u.error }

func newIPAMBlocks(v *verbosity) *cobra.Command {
	var output format
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
		Args:              takes("POOL"),
		ValidArgsFunction: eachCompletes(completesPools),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := control.Client{}.Blocks(cmd.Context(), args[0])
			if err != nil {
				return unread{err}
			}
			return writeBlocks(all, output, screenOf(cmd, v))
		},
	}
	addOutput(cmd, &output)
	return cmd
}

func writeBlocks(all []pool.Block, output format, s *screen) error {
	if output.isData() {
		return output.write(s.out, orEmpty(all))
	}
	t := newTable(false, column{name: "BLOCK"}, column{name: "ADDRESSES"}, column{name: "NODES"}, column{name: "FREE"}, column{name: "ASKED", spare: 1})
	for _, b := range all {
		t.row(b.Metadata.Name, b.Span().String(), nodesOf(b), fmt.Sprint(len(b.Free())), askersOf(b))
	}
	if len(all) == 0 && !s.quiet {
		s.warn("no node has any address of the pool")
	} else if !s.quiet {
		t.write(s)
	}
	for _, line := range fencesOf(all) {
		s.say("%s", line)
	}
	return nil
}

// completesPools completes the name of an AddressPool. A completion does not wait long for the agent.
func completesPools(cmd *cobra.Command, _ []string, _ string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	all, err := control.Client{Patience: agentPatience}.Pools(cmd.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, p := range all {
		names = append(names, p.Metadata.Name)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// nodesOf says how many addresses of the block each node has.
func nodesOf(b pool.Block) string {
	var all []string
	for _, h := range b.Spec.Holders {
		text := fmt.Sprintf("%s: %d", h.Node, strings.Count(b.Spec.Addresses, h.ID))
		switch {
		case h.WasSilent():
			text += " (silent)"
		case h.Fenced != "":
			text += " (declared dead)"
		}
		all = append(all, text)
	}
	return cmp.Or(strings.Join(all, ", "), "-")
}

// askersOf names the nodes that ask for addresses of the block.
func askersOf(b pool.Block) string {
	var all []string
	for _, w := range b.Spec.Want {
		if !slices.Contains(all, w.Node) {
			all = append(all, w.Node)
		}
	}
	return cmp.Or(strings.Join(all, ", "), "-")
}
