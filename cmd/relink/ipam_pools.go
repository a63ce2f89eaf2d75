package main

import (
	"cmp"
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
		Use:   "pools",
		Short: "Show the address pools that nodes share",
		Long: `Show the AddressPools of the cluster: how many addresses each has, and how many of them nodes
have. relink-agent of this node asks the Kubernetes API. A line below the table says why a pool
gives nothing new.

Exit status 0: the API has answered; 2: usage or environment, such as no answer.`,
		Example: `  relink ipam pools
  relink ipam pools -o json`,
		Args:              takes(),
		ValidArgsFunction: eachCompletes(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := control.Client{}.Pools(cmd.Context())
			if err != nil {
				return err
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

// stopped says why nobody may take anything of the pool, empty if they may.
func stopped(p pool.Pool) string {
	switch r := p.Recovery(); {
	case p.Metadata.DeletionTimestamp != "":
		return "it is being deleted"
	case p.Spec.Paused:
		return "spec.paused is true"
	case r != nil:
		return fmt.Sprintf("since %s the nodes say what they have, and %d have said it: %s", r.Since, len(r.Asserted), r.Why)
	}
	return p.Status.Problem
}

func newIPAMBlocks(v *verbosity) *cobra.Command {
	var output format
	cmd := &cobra.Command{
		Use:   "blocks POOL",
		Short: "Show which node has which addresses of a pool",
		Long: `Show the blocks of an AddressPool: which nodes have addresses of each, and how many. FREE is how
many of a block nobody has. ASKED says which nodes ask for addresses of it. relink-agent of this
node asks the Kubernetes API.

Exit status 0: the API has answered; 2: usage or environment, such as no answer or no such
pool.`,
		Example: `  relink ipam blocks vlan3
  relink ipam blocks vlan3 -o yaml       # with the network and the store of each node`,
		Args:              takes("POOL"),
		ValidArgsFunction: eachCompletes(completesPools),
		RunE: func(cmd *cobra.Command, args []string) error {
			all, err := control.Client{}.Blocks(cmd.Context(), args[0])
			if err != nil {
				return err
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
		t.row(b.Metadata.Name, pool.Span{First: b.Spec.First, Last: b.Spec.Last}.String(), nodesOf(b), fmt.Sprint(len(b.Free())), askersOf(b))
	}
	if len(all) > 0 {
		t.write(s)
	} else if !s.quiet {
		s.warn("no node has any address of the pool")
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
		if h.Fenced != "" {
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
