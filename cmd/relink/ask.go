package main

import (
	"context"
	"errors"
	"os"

	"github.com/relink-cni/relink/checkpoint/audit"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// answering are those who answer for the container runtime and for the Kubernetes API. All are nil if there is nobody. Then
// nobody says why.
type answering struct {
	runtime sandbox.Runtime
	judge   owner.Judge
	asker   audit.Asker
	nobody  string
}

// whoAnswers finds out who answers. relink itself asks neither the runtime nor, but for ipam fence, the Kubernetes API: relink-agent has the
// credentials for both.
var whoAnswers = func(ctx context.Context) answering {
	const unasked = ": the container runtime and the Kubernetes API were not asked, so nothing is proven dead and nothing is freed"
	if _, err := (control.Client{Patience: agentPatience}).Status(ctx); errors.Is(err, control.ErrNoAgent) {
		return answering{nobody: control.ErrNoAgent.Error() + unasked}
	}
	return answering{runtime: control.Client{}, judge: control.Client{}, asker: control.Client{}} // An agent that does not answer says so at each question.
}

// auditSources opens what an audit reads.
func auditSources(ctx context.Context, open storeOpener, leases leaseDir, cacheDir string) (from audit.Sources, err error) {
	if from.Store, err = open(); err != nil {
		return from, err
	}
	if _, err := leases.path(); err != nil {
		return from, err
	}
	if err := from.OpenLeases(string(leases)); err != nil {
		return from, needsRoot(err)
	}
	for _, store := range from.Leases {
		store.OnWait(waitsOn(os.Stderr))
	}
	from.CacheDir, from.AllProcesses = cacheDir, allProcesses()
	who := whoAnswers(ctx)
	from.Runtime, from.Judge, from.Asker, from.Nobody = who.runtime, who.judge, who.asker, who.nobody
	return from, nil
}
