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
	"github.com/relink-cni/relink/cmd/internal/cli"
)

func newStatus() *cobra.Command {
	var files nodeFiles
	cmd := newVerb("status", func(cmd *cobra.Command, _ []string) error {
		sources, err := files.open(cmd)
		if err != nil {
			return err
		}
		status, err := readStatus(cmd.Context(), sources)
		return cli.Show(screenOf(cmd), status, err, status.Recorded, nodeStatus.write)
	})
	files.addFlags(cmd)
	cli.AddOutput(cmd)
	return cmd
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
func readStatus(ctx context.Context, sources audit.Sources) (n nodeStatus, err error) {
	read := make(chan status.Leases, 1)
	go func() { read <- status.ReadLeases(ctx, sources.Leases, sources.AllProcesses) }()
	var found status.Observations
	if found.Report, err = inspectAttachments(ctx, restore.Options{Store: sources.Store, DryRun: true}); err != nil {
		return n, err
	}
	if found.Unrecorded, err = findUncaptured(ctx, sources.Store, sources.CacheDir); err != nil {
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
		Time: time.Now().UTC().Truncate(time.Second), Summary: status.Summarize(found), Pools: cli.OrEmpty(fullSets(leases.Usages)),
		PoolProblems: slices.Concat(sources.Problems, leases.Problems), Agent: found.Agent, dir: sources.Store.Dir(),
	}
	if agentErr != nil && !errors.Is(agentErr, control.ErrNoAgent) { // A node without an agent has no problem.
		n.AgentProblem = agentErr.Error()
	}
	n.addLastRestore(sources.Store.LastRestore())
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
