package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/cmd/internal/cli"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// addAgent adds those who answer for the container runtime and for the Kubernetes API, or the reason why there is nobody. relink itself asks
// neither the runtime nor the Kubernetes API: relink-agent has the credentials for both.
var addAgent = func(ctx context.Context, sources *audit.Sources) {
	if _, err := (control.Client{Patience: agentPatience}).Status(ctx); errors.Is(err, control.ErrNoAgent) {
		sources.UnaskedReason = control.ErrNoAgent.Error() + ": the container runtime and the Kubernetes API were not asked"
		return
	}
	agent := control.Client{} // One that does not answer says so at each question.
	sources.Runtime, sources.Judge, sources.Asker = agent, agent, agent
}

// nodeFiles are the directories that a look at all of the node reads.
type nodeFiles struct {
	leases   leaseDir
	cacheDir string
}

// addFlags adds the flags that name them. Without --data-dir the verb looks at all directories with leases.
func (n *nodeFiles) addFlags(cmd *cobra.Command) {
	addCacheDir(cmd, &n.cacheDir)
	cmd.Flags().StringVar((*string)(&n.leases), "data-dir", "", "look only at the leases in this `directory` (default all that configurations and checkpoints name)")
}

// open opens what is read of this node's files.
func (n nodeFiles) open(cmd *cobra.Command) (sources audit.Sources, err error) {
	if sources.Store, err = openStore(cmd); err != nil {
		return sources, err
	}
	if _, err := n.leases.path(); err != nil {
		return sources, err
	}
	sources.CacheDir, sources.AllProcesses = n.cacheDir, allProcesses()
	return sources, needsRoot(sources.OpenLeases(string(n.leases)))
}

// openAudited opens what an audit reads.
func (n nodeFiles) openAudited(cmd *cobra.Command) (audit.Sources, error) {
	sources, err := n.open(cmd)
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
func printProblems(s *cli.Screen, problems []string) {
	for _, p := range problems {
		s.Warnf("not looked at: %s", p)
	}
}

// allProcesses reports whether this program sees all processes of the node.
var allProcesses = sandbox.SeesAllProcesses
