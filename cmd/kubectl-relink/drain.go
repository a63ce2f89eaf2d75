package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/kube/objects"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/wait"
)

// lookInterval is the time between two looks at what a node still has.
const lookInterval = time.Second

func newDrain(c *connection) *cobra.Command {
	var undo bool
	timeout := 3 * time.Minute // An address rests for a minute after its pod.
	cmd := &cobra.Command{
		Use:   "drain NODE",
		Short: "Have a node give back its addresses of pools, before it goes for good",
		Long: `Have a node give back all addresses of all pools that no pod there has, and take nothing new: set
the label ` + pool.DrainLabel + ` on its Node object. An address that is kept for an owner waits
for that owner on any node. One that is kept for a time, or by hand, stays on the node. It ends no
pod: run "kubectl drain NODE" first. The node gives back an address as soon as its pod has ended,
also after this command.

It waits until the node has nothing, and lists what the node still has when the time is over.
After that, the node can be deleted. --undo removes the label.

Exit status 0: the node has nothing; 1: it still has addresses; 2: usage or environment.`,
		Example: `  kubectl drain node3 --ignore-daemonsets && kubectl relink drain node3
  kubectl relink drain node3 --undo         # the node stays`,
		Args:              cli.Takes(1, 1),
		ValidArgsFunction: cli.CompleteArgs(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkName("NODE", args[0]); err != nil {
				return err
			}
			client, err := c.client()
			if err != nil {
				return err
			}
			api, s := objects.NewPoolAPI(client), screenOf(cmd)
			if err := api.SetDrained(cmd.Context(), args[0], !undo); err != nil {
				return err
			}
			if undo {
				return cli.Show(s, drainReport{args[0], []nodeAddresses{}}, nil, true, func(_ drainReport, s *cli.Screen) {
					s.Info(args[0] + " may take addresses of pools again")
				})
			}
			report, err := awaitDrained(cmd.Context(), api, args[0], timeout)
			return cli.Show(s, report, err, len(report.Blocks) == 0, drainReport.write)
		},
	}
	cmd.Flags().BoolVar(&undo, "undo", false, "let the node take addresses again")
	cli.AddDuration(cmd, &timeout, true, "timeout", "how long to wait for the node")
	cli.AddOutput(cmd)
	return cmd
}

// drainReport is what a node still has of each block. Of a block without addresses it still asks for some, and could get them.
type drainReport struct {
	Node   string          `json:"node"`
	Blocks []nodeAddresses `json:"blocks"`
}

// nodeAddresses are the addresses of a block that a node has.
type nodeAddresses struct {
	Block     string       `json:"block"`
	Addresses []netip.Addr `json:"addresses"`
}

// awaitDrained returns when the node has nothing, or when the time is over.
func awaitDrained(ctx context.Context, api pool.API, node string, limit time.Duration) (drainReport, error) {
	for deadline := time.Now().Add(limit); ; {
		blocks, err := api.BlocksOf(ctx, node)
		if err == nil && len(blocks) == 0 { // The labels of blocks can be wrong.
			blocks, err = api.AllBlocks(ctx)
		}
		report := drainReport{node, []nodeAddresses{}}
		for _, b := range slices.DeleteFunc(blocks, func(b pool.Block) bool { return !b.Names(node) }) {
			report.Blocks = append(report.Blocks, nodeAddresses{b.Metadata.Name, cli.OrEmpty(b.AddressesOf(node))})
		}
		if err == nil && len(report.Blocks) == 0 || errors.Is(err, pool.ErrRefused) || time.Until(deadline) < lookInterval || !wait.Sleep(ctx, lookInterval) {
			return report, err
		}
	}
}

func (r drainReport) write(s *cli.Screen) {
	t, n := cli.NewTable("BLOCK | ADDRESSES"), 0
	for _, b := range r.Blocks {
		t.Values(b.Block, strings.Join(cli.Strings(b.Addresses), " "))
		n += len(b.Addresses)
	}
	t.Write(s)
	if len(r.Blocks) == 0 {
		s.Info(r.Node + " has no address of any pool, and takes none")
		return
	}
	s.Info(fmt.Sprintf("%[1]s still has %[2]s. kubectl drain %[1]s ends the pods that have them, relink ipam list names what is reserved there for a time or by hand, "+
		"and relink-agent must run there", r.Node, printable.Count(n, "address")))
}
