package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint"
	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/guard"
	"github.com/relink-cni/relink/checkpoint/restore"
	"github.com/relink-cni/relink/checkpoint/status"
	"github.com/relink-cni/relink/pkg/wait"
)

func newStatus() *cobra.Command {
	var cacheDir string
	var watch bool
	var interval time.Duration
	var leases leaseDir
	opts := restore.Options{DryRun: true}
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show on one screen how the pods of this node are, and what to do",
		Long: `Show on one screen how the pods of this node are: the devices below them, the causes for which
some pods are not as recorded, what to do, the address ranges that are nearly full, what the
last restore did, and what relink-agent does. It changes nothing.

Exit status 0: everything is as recorded; 1: something is not, or cannot be read; 2: usage or
environment.`,
		Example: `  relink status
  relink status --watch   # again every 2 seconds, until ^C
  relink status -o json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if interval <= 0 {
				return fmt.Errorf("invalid --interval %s: must be more than 0", interval)
			}
			s := screenOf(cmd)
			show := func() error {
				sources, err := leaseSources(cmd, leases, cacheDir)
				if err != nil {
					return err
				}
				opts.Store = sources.Store
				status, err := readStatus(cmd.Context(), opts, sources)
				if err != nil {
					return err
				}
				return s.present(status, status.Recorded, func() { status.write(s) })
			}
			if watch {
				return watchStatus(cmd.Context(), interval, s, show)
			}
			return show()
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&watch, "watch", "w", false, "show it again and again, until ^C")
	flags.DurationVar(&interval, "interval", 2*time.Second, "`time` between two looks of --watch")
	addCacheDir(cmd, &cacheDir)
	addOnlyDataDir(flags, &leases)
	addOutput(cmd)
	return cmd
}

// watchStatus calls show at every interval until the context ends.
func watchStatus(ctx context.Context, interval time.Duration, s *screen, show func() error) error {
	for {
		if s.colour {
			fmt.Fprint(s.raw(), "\x1b[H\x1b[2J") // Move the cursor home and clear the screen.
		}
		switch err := show(); {
		case ctx.Err() != nil:
			return nil
		case err != nil && !errors.Is(err, errDiffers):
			return err
		}
		if o := streamOf(s.out); o != nil && o.writeErr != nil {
			return o.writeErr // Nobody can read what it shows.
		}
		if !wait.Sleep(ctx, interval) {
			return nil
		}
	}
}

// nodeStatus is the state of the pods on the node.
type nodeStatus struct {
	Time time.Time `json:"at"`
	status.Summary
	// Pools are the address pools that are nearly full. PoolProblems are the networks whose leases could not be
	// read.
	Pools        []fullSet `json:"poolsNearlyFull"`
	PoolProblems []string  `json:"poolProblems,omitempty"`
	// LastRestore is nil if none ran since the boot.
	LastRestore *checkpoint.LastRestore `json:"lastRestore,omitempty"`
	// Agent is what relink-agent says, nil if none answers. AgentProblem says why one that runs does not answer.
	Agent        *control.Status `json:"agent,omitempty"`
	AgentProblem string          `json:"agentProblem,omitempty"`
	// Guard is the guard that is under way or was killed, nil if there is none.
	Guard *guard.View `json:"guard,omitempty"`

	dir string
}

// readStatus looks at the node, and reads the leases at the same time.
func readStatus(ctx context.Context, opts restore.Options, sources audit.Sources) (n nodeStatus, err error) {
	read := make(chan status.Leases, 1)
	go func() { read <- status.ReadLeases(ctx, sources.Leases, sources.AllProcesses) }()
	var found status.Observations
	if found.Report, err = inspectAttachments(ctx, opts); err != nil {
		return n, err
	}
	if found.Unrecorded, err = findUncaptured(ctx, opts.Store, sources.CacheDir); err != nil {
		return n, err
	}
	if found.Free, err = status.FindFree(found.Report); err != nil {
		return n, err
	}
	agent, agentErr := control.Client{Patience: agentPatience}.Status(ctx)
	if agentErr == nil {
		found.Agent = &agent
	}
	leases := <-read
	found.DeadHolders = leases.DeadHolders
	n = nodeStatus{
		Time: time.Now().UTC().Truncate(time.Second), Summary: status.Summarize(found), Pools: orEmpty(fullSets(leases.Usages)),
		PoolProblems: slices.Concat(sources.Problems, leases.Problems), Agent: found.Agent, dir: opts.Store.Dir(),
	}
	if agentErr != nil && !errors.Is(agentErr, control.ErrNoAgent) { // A node without an agent has no problem.
		n.AgentProblem = agentErr.Error()
	}
	n.addLastRestore(opts.Store.LastRestore())
	n.addGuard()
	n.Recorded = n.Recorded && n.AgentProblem == "" && len(n.PoolProblems) == 0
	return n, nil
}

// addProblem adds something that is not as it should be.
func (n *nodeStatus) addProblem(text string) {
	n.Problems, n.Recorded = append(n.Problems, text), false
}

// addLastRestore adds what checkpoint.Store.LastRestore returned. A restore replaces a torn file. It cannot replace a
// directory.
func (n *nodeStatus) addLastRestore(last checkpoint.LastRestore, err error) {
	switch {
	case err == nil:
		n.LastRestore = &last
	case errors.Is(err, checkpoint.ErrNoCheckpoint):
	case errors.Is(err, checkpoint.ErrTorn):
		n.addProblem(fmt.Sprintf("%v; the next relink restore writes it anew", err))
	default:
		n.addProblem(fmt.Sprintf("%v: remove it. The next relink restore writes it anew", err))
	}
}

// addGuard adds a guard that is under way, or that was killed before it had finished.
func (n *nodeStatus) addGuard() {
	view, ok, err := guard.LoadView()
	switch {
	case err != nil:
		n.addProblem(err.Error())
	case ok && view.Finished.IsZero():
		n.Guard = &view
		n.Recorded = n.Recorded && view.Alive
	}
}
