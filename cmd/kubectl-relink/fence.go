package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/kube/objects"
	"github.com/relink-cni/relink/pkg/pool/fence"
)

// maxReason bounds --reason. A block has room for 1024 characters.
const maxReason = 500

// fenceCall is the command line of a fence.
type fenceCall struct {
	*connection
	reason            string
	confirmed, dryRun bool
	opts              fence.Target
}

func newFence(c *connection) *cobra.Command {
	call := fenceCall{connection: c}
	cmd := &cobra.Command{
		Use:   "fence NODE",
		Short: "Declare a node dead, so that other nodes may take its addresses of pools",
		Long: `Declare a node dead by hand: other nodes may take what it has of all address pools. Whoever gets
such an address probes for it first. It is for a node that the taint
node.kubernetes.io/out-of-service cannot declare dead: its Node object is deleted,
relink-controller does not run, or the node has a new disk.

Make sure that the machine is off. If it runs, its pods go on using their addresses, and two pods
can have one address. relink cannot know it. If the node changes one of its blocks while this
command runs, it lives: relink stops.

It shows what the node has, and asks for the node's name. With --yes it does not ask. Without a
terminal --yes is needed. An agent has no right to fence.

A node with a new disk has a new store. If the node runs already, fence only the old store by
--store. BOOT is "this boot" for a store that the node has used since its last boot.

Exit status 0: all of it is fenced; 1: something is not, and the output names it; 2: usage or
environment.`,
		Example: `  kubectl relink fence node3 --dry-run             # what node3 has
  kubectl relink fence node3
  kubectl relink fence node3 --yes --reason ticket-4711
  kubectl relink fence node3 --store 6f1d0c9a2b7e  # only what its old disk had`,
		Args:              cli.Takes(1, 1),
		ValidArgsFunction: cli.CompleteArgs(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := call.check(cmd, args[0]); err != nil {
				return err
			}
			return call.run(cmd, args[0], screenOf(cmd))
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&call.opts.Stores, "store", nil, "only what this `store` of the node has; can be repeated")
	flags.StringVar(&call.reason, "reason", "", "`text` for the blocks instead of your name")
	flags.BoolVar(&call.confirmed, "yes", false, "do not ask")
	flags.BoolVar(&call.dryRun, "dry-run", false, "print what the node has, and change nothing")
	cli.AddOutput(cmd, cli.FormatWide)
	return cmd
}

// check reports values that mean nothing.
func (f *fenceCall) check(cmd *cobra.Command, node string) error {
	switch {
	case node == "":
		return errors.New(`invalid NODE "": it must not be empty`)
	case slices.Contains(f.opts.Stores, ""):
		return errors.New(`invalid --store "": it must not be empty; leave it out for all stores of the node`)
	case f.reason == "" && cmd.Flags().Changed("reason"):
		return errors.New(`invalid --reason "": it must not be empty; leave it out to note your name`)
	case len(f.reason) > maxReason || strings.ContainsFunc(f.reason, unicode.IsControl):
		return fmt.Errorf("invalid --reason: it must be one line of at most %d bytes", maxReason)
	}
	return nil
}

// run looks, asks, and fences.
func (f *fenceCall) run(cmd *cobra.Command, node string, s *cli.Screen) error {
	client, err := f.client()
	if err != nil {
		return err
	}
	f.opts.API, f.opts.Node = objects.NewPoolAPI(client), node
	f.opts.Reason = fmt.Sprintf("by hand: %s, %s", cmp.Or(f.reason, userAtHost()), time.Now().UTC().Format(time.RFC3339))
	plan, err := fence.NewPlan(cmd.Context(), f.opts)
	if err != nil {
		return err
	}
	report := plan.Preview()
	due := report.Count(fence.ToFence) > 0 && !f.dryRun
	if due && !f.confirmed {
		show := func(s *cli.Screen) {
			fenceTable(report, s)
			s.PrintLines(fenceAdvice(report))
		}
		if err := s.Confirm(cmd, "fenced", show, "Type the node's name to declare it dead: ", report.Node); err != nil {
			return err
		}
	} else if due {
		for _, warning := range fenceAdvice(report)[1:] {
			s.Warnf("%s", warning)
		}
	}
	if due {
		report = plan.Run(cmd.Context())
	}
	return writeFence(report, s)
}

// userAtHost is USER@HOST. A user of sudo is who called it.
func userAtHost() string {
	name := os.Getenv("SUDO_USER")
	if u, err := user.Current(); err == nil && name == "" {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return cmp.Or(name, "unknown") + "@" + host
}
