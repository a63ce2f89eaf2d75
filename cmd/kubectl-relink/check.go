package main

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/kube"
	"github.com/relink-cni/relink/pkg/kube/objects"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/pool/check"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/wait"
)

// secondLook is the time before what was found is looked at once more: the objects are not read at one moment.
const secondLook = 3 * time.Second

func newCheck(c *connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say what is wrong with the address pools, and what ends it",
		Long: `Compare the AddressPools with their blocks and claims, with the nodes and with the owners of the
addresses. Each finding names the object, what the API says, and the command or the step that
ends it. It changes nothing. Addresses move all the time: it looks twice, and tells what it has
seen both times.

Exit status 0: nothing is wrong; 1: something is, or an owner could not be asked about; 2: usage
or environment.`,
		Example: `  kubectl relink check
  kubectl relink check -o json`,
		Args: cli.Takes(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			client, err := c.client()
			if err != nil {
				return err
			}
			report, err := checkTwice(cmd.Context(), client)
			if err != nil {
				return err
			}
			s := screenOf(cmd)
			return s.Present(report, len(report.Findings)+len(report.Problems) == 0, func() { report.write(s) })
		},
	}
	cli.AddOutput(cmd)
	return cmd
}

// checkReport is what a check has found.
type checkReport struct {
	Pools  int `json:"pools"`
	Blocks int `json:"blocks"`
	Claims int `json:"claims"`
	Nodes  int `json:"nodes"`
	// Findings are what is wrong, and Problems what could not be looked at.
	Findings []check.Finding `json:"findings"`
	Problems []string        `json:"problems,omitempty"`
}

// checkTwice looks, and looks again if something is wrong.
func checkTwice(ctx context.Context, client *objects.Client) (r checkReport, err error) {
	cluster, err := readCluster(ctx, client)
	if err != nil {
		return r, err
	}
	found := cluster.Find()
	if len(found) > 0 {
		wait.Sleep(ctx, secondLook)
		if cluster, err = readCluster(ctx, client); err != nil {
			return r, err
		}
		before := found
		found = slices.DeleteFunc(cluster.Find(), func(f check.Finding) bool {
			return !slices.ContainsFunc(before, func(b check.Finding) bool { return b.Kind == f.Kind && b.Object == f.Object })
		})
	}
	r = checkReport{Pools: len(cluster.Pools), Blocks: len(cluster.Blocks), Claims: len(cluster.Claims), Nodes: len(cluster.Nodes), Findings: cli.OrEmpty(found)}
	for _, group := range printable.Fold(cluster.Undecided(), func(j owner.Judgement) string { return j.Reason }) {
		r.Problems = append(r.Problems, fmt.Sprintf("whether %s of claims exist is unknown (%s): %s",
			printable.Count(len(group), "owner"), printable.First(cli.Texts(group, func(j owner.Judgement) string { return j.Owner.String() }), 3, ", "), group[0].Reason))
	}
	return r, ctx.Err()
}

// readCluster reads all that a check compares. Claims are read before the blocks: an address that has moved meanwhile has another claim, too.
func readCluster(ctx context.Context, client *objects.Client) (c check.Cluster, err error) {
	api := objects.NewPoolAPI(client)
	if c.Pools, err = api.Pools(ctx); err != nil {
		return c, err
	}
	if c.Claims, err = api.AllClaims(ctx); err != nil {
		return c, err
	}
	if c.Blocks, err = api.AllBlocks(ctx); err != nil {
		return c, err
	}
	if c.Nodes, err = api.Nodes(ctx); err != nil {
		return c, err
	}
	judge, err := kube.NewClient(client)
	if err != nil {
		return c, err
	}
	c.Judgements = kube.NewOwners(judge, "", slog.New(slog.DiscardHandler)).Judge(ctx, c.Owners())
	return c, nil
}

// write writes each finding, and below it what ends it.
func (r checkReport) write(s *cli.Screen) {
	for _, f := range r.Findings {
		s.Printf("%s: %s: %s", f.Object, f.Kind, f.Evidence)
		s.Printf("  %s", f.Action)
	}
	s.PrintLines(r.Problems)
	text := "nothing is wrong"
	if n := len(r.Findings); n > 0 {
		text = printable.Count(n, "finding")
	}
	s.Info(fmt.Sprintf("%s, %s, %s, %s: %s", printable.Count(r.Pools, "pool"), printable.Count(r.Blocks, "block"),
		printable.Count(r.Claims, "claim"), printable.Count(r.Nodes, "node"), text))
}
