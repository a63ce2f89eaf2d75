package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// addAgent adds those who answer for the container runtime and for the Kubernetes API, or the reason why there is nobody. relink itself asks
// neither the runtime nor, but for ipam fence, the Kubernetes API: relink-agent has the credentials for both.
var addAgent = func(ctx context.Context, sources *audit.Sources) {
	if _, err := (control.Client{Patience: agentPatience}).Status(ctx); errors.Is(err, control.ErrNoAgent) {
		sources.UnaskedReason = control.ErrNoAgent.Error() + ": the container runtime and the Kubernetes API were not asked"
		return
	}
	agent := control.Client{} // One that does not answer says so at each question.
	sources.Runtime, sources.Judge, sources.Asker = agent, agent, agent
}

// leaseSources opens what is read of this node's files.
func leaseSources(cmd *cobra.Command, leases leaseDir, cacheDir string) (sources audit.Sources, err error) {
	if sources.Store, err = openStore(cmd); err != nil {
		return sources, err
	}
	if _, err := leases.path(); err != nil {
		return sources, err
	}
	sources.CacheDir, sources.AllProcesses = cacheDir, allProcesses()
	return sources, needsRoot(sources.OpenLeases(string(leases)))
}

// auditSources opens what an audit reads.
func auditSources(cmd *cobra.Command, leases leaseDir, cacheDir string) (audit.Sources, error) {
	sources, err := leaseSources(cmd, leases, cacheDir)
	if err != nil {
		return sources, err
	}
	for _, store := range sources.Leases {
		store.OnWait(printLockWait(os.Stderr))
	}
	addAgent(cmd.Context(), &sources)
	return sources, nil
}

// printProblems reports the parts of the node that relink could not look at.
func printProblems(s *screen, problems []string) {
	for _, p := range problems {
		s.warnf("not looked at: %s", p)
	}
}

// allProcesses reports whether this program sees all processes of the node.
var allProcesses = sandbox.SeesAllProcesses
