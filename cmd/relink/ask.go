package main

import (
	"context"
	"errors"
	"os"

	"github.com/spf13/cobra"

	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// agentClients are those who answer for the container runtime and for the Kubernetes API. All are nil if there is nobody. Then
// reason says why.
type agentClients struct {
	runtime sandbox.Runtime
	judge   owner.Judge
	asker   audit.Asker
	reason  string
}

// findAgent finds out who answers. relink itself asks neither the runtime nor, but for ipam fence, the Kubernetes API: relink-agent has the
// credentials for both.
var findAgent = func(ctx context.Context) agentClients {
	const unasked = ": the container runtime and the Kubernetes API were not asked, so nothing is proven dead and nothing is freed"
	if _, err := (control.Client{Patience: agentPatience}).Status(ctx); errors.Is(err, control.ErrNoAgent) {
		return agentClients{reason: control.ErrNoAgent.Error() + unasked}
	}
	return agentClients{runtime: control.Client{}, judge: control.Client{}, asker: control.Client{}} // An agent that does not answer says so at each question.
}

// auditSources opens what an audit reads.
func auditSources(cmd *cobra.Command, leases leaseDir, cacheDir string) (sources audit.Sources, err error) {
	if sources.Store, err = openStore(cmd); err != nil {
		return sources, err
	}
	if _, err := leases.path(); err != nil {
		return sources, err
	}
	if err := sources.OpenLeases(string(leases)); err != nil {
		return sources, needsRoot(err)
	}
	for _, store := range sources.Leases {
		store.OnWait(printLockWait(os.Stderr))
	}
	sources.CacheDir, sources.AllProcesses = cacheDir, allProcesses()
	clients := findAgent(cmd.Context())
	sources.Runtime, sources.Judge, sources.Asker, sources.UnaskedReason = clients.runtime, clients.judge, clients.asker, clients.reason
	return sources, nil
}
