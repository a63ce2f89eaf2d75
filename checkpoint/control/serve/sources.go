package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/pkg/printable"
	"github.com/relink-cni/relink/pkg/sandbox"
)

// Owners knows the owners of pods: kube.Owners.
type Owners interface {
	owner.Asker
	owner.Judge
}

// Sources are what the agent asks for others: plugins and the command relink link neither a Kubernetes client nor gRPC.
type Sources struct {
	// Owners is nil if no Kubernetes API is configured.
	Owners  Owners
	Runtime sandbox.Runtime
	// Pools is nil if no Kubernetes API is configured.
	Pools Pools
}

// errNoAPI is the answer to questions about owners if nobody can be asked.
var errNoAPI = errors.New("relink-agent has no Kubernetes API: start it with --kubeconfig, or as a DaemonSet")

// maxOwnersBody is how many bytes of a list of owners are read at most: MaxOwners with the longest names.
const maxOwnersBody = 256 << 10

// addHandlers adds the handlers of the sources.
func (s Sources) addHandlers(mux *http.ServeMux) {
	for path, handle := range map[string]http.HandlerFunc{
		control.OwnerPath: post(s.Owners, maxBody, Owners.Ask),
		control.ClaimPath: post(s.Owners, maxBody, noContent(Owners.Fulfil)),
		control.OwnersPath: post(s.Owners, maxOwnersBody, func(judge Owners, ctx context.Context, owners []attachment.Owner) ([]owner.Judgement, error) {
			if len(owners) > control.MaxOwners {
				return nil, refusal{http.StatusBadRequest, fmt.Errorf("%d owners are too many for one request: at most %d", len(owners), control.MaxOwners)}
			}
			return judge.Judge(ctx, owners), nil
		}),
	} {
		if s.Owners == nil {
			handle = answer(func(http.ResponseWriter, *http.Request) (any, error) { return nil, errNoAPI })
		}
		mux.HandleFunc("POST "+path, handle)
	}
	mux.HandleFunc("GET "+control.SandboxesPath, answer(s.listSandboxes))
	s.addPoolHandlers(mux)
}

func (s Sources) listSandboxes(_ http.ResponseWriter, r *http.Request) (any, error) {
	if s.Runtime == nil {
		return nil, errors.New("relink-agent has no container runtime")
	}
	sandboxes, err := s.Runtime.Sandboxes(r.Context())
	if sandboxes == nil {
		sandboxes = []sandbox.RuntimeSandbox{}
	}
	response := control.Sandboxes{Sandboxes: sandboxes}
	if err != nil {
		response.Incomplete, response.NoRuntime = printable.Joined(err), errors.Is(err, sandbox.ErrNoRuntime)
	}
	return response, nil
}
