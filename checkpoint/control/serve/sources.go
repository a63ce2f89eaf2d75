package serve

import (
	"context"
	"errors"
	"fmt"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// Owners knows the owners of pods: kube.Owners.
type Owners interface {
	owner.Asker
	owner.Judge
}

// Pools are the address pools of the Kubernetes API: a node.Controller.
type Pools interface {
	pool.Agent
	pool.Importer
}

// Sources are what the agent asks for others: plugins and the command relink link neither a Kubernetes client nor gRPC.
type Sources struct {
	// Owners is nil if no Kubernetes API is configured.
	Owners  Owners
	Runtime sandbox.Runtime
	// Pools is nil if no Kubernetes API is configured.
	Pools Pools
}

// The answers to questions if nobody can be asked.
var (
	errNoAPI     = errors.New("relink-agent has no Kubernetes API: start it with --kubeconfig, or as a DaemonSet")
	errNoRuntime = errors.New("relink-agent has no container runtime")
)

// judge has the API asked about the owners.
func judge(o Owners, ctx context.Context, owners []attachment.Owner) ([]owner.Judgement, error) {
	if len(owners) > control.MaxOwners {
		return nil, badRequest(fmt.Errorf("%d owners are too many for one request: at most %d", len(owners), control.MaxOwners))
	}
	return o.Judge(ctx, owners), nil
}

func listSandboxes(r sandbox.Runtime, ctx context.Context) (control.Sandboxes, error) {
	sandboxes, err := r.Sandboxes(ctx)
	response := control.Sandboxes{Sandboxes: append([]sandbox.RuntimeSandbox{}, sandboxes...)}
	if errors.Is(err, sandbox.ErrNoRuntime) {
		return response, err
	} else if err != nil {
		response.Incomplete = printable.Joined(err)
	}
	return response, nil
}
