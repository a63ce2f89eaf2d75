package serve

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

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
	mux.HandleFunc("POST "+control.OwnerPath, s.requireAPI(s.askOwner))
	mux.HandleFunc("POST "+control.ClaimPath, s.requireAPI(s.fulfilClaim))
	mux.HandleFunc("POST "+control.OwnersPath, s.requireAPI(s.judgeOwners))
	mux.HandleFunc("GET "+control.SandboxesPath, s.listSandboxes)
	s.addPoolHandlers(mux)
}

// requireAPI refuses a request that nobody can answer.
func (s Sources) requireAPI(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.Owners == nil {
			writeRefusal(w, http.StatusServiceUnavailable, errNoAPI)
			return
		}
		handle(w, r)
	}
}

func (s Sources) askOwner(w http.ResponseWriter, r *http.Request) {
	var q owner.Question
	if !readJSON(w, r, maxBody, &q) {
		return
	}
	a, err := s.Owners.Ask(r.Context(), q)
	if err != nil {
		writeOwnerRefusal(w, err)
		return
	}
	writeJSON(w, http.StatusOK, a)
}

func (s Sources) fulfilClaim(w http.ResponseWriter, r *http.Request) {
	var f owner.Fulfilment
	if !readJSON(w, r, maxBody, &f) {
		return
	}
	if err := s.Owners.Fulfil(r.Context(), f); err != nil {
		writeOwnerRefusal(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// writeOwnerRefusal answers with what control.Client makes the same error of.
func writeOwnerRefusal(w http.ResponseWriter, err error) {
	status, reason := http.StatusServiceUnavailable, err
	switch {
	case errors.Is(err, owner.ErrInvalid):
		status, reason = control.StatusInvalid, trimSentinel(owner.ErrInvalid, err)
	case errors.Is(err, owner.ErrDiffers):
		status, reason = control.StatusDiffers, trimSentinel(owner.ErrDiffers, err)
	case errors.Is(err, owner.ErrUnavailable):
		reason = trimSentinel(owner.ErrUnavailable, err)
	}
	writeRefusal(w, status, reason)
}

// trimSentinel returns the error without the words of the sentinel, which the client puts before it again.
func trimSentinel(sentinel, err error) error {
	return errors.New(strings.TrimPrefix(err.Error(), sentinel.Error()+": "))
}

func (s Sources) judgeOwners(w http.ResponseWriter, r *http.Request) {
	var owners []attachment.Owner
	if !readJSON(w, r, maxOwnersBody, &owners) {
		return
	}
	if len(owners) > control.MaxOwners {
		writeRefusal(w, http.StatusBadRequest, fmt.Errorf("%d owners are too many for one request: at most %d", len(owners), control.MaxOwners))
		return
	}
	writeJSON(w, http.StatusOK, s.Owners.Judge(r.Context(), owners))
}

func (s Sources) listSandboxes(w http.ResponseWriter, r *http.Request) {
	if s.Runtime == nil {
		writeRefusal(w, http.StatusServiceUnavailable, errors.New("relink-agent has no container runtime"))
		return
	}
	sandboxes, err := s.Runtime.Sandboxes(r.Context())
	if sandboxes == nil {
		sandboxes = []sandbox.RuntimeSandbox{}
	}
	response := control.Sandboxes{Sandboxes: sandboxes}
	if err != nil {
		response.Incomplete, response.NoRuntime = printable.Joined(err), errors.Is(err, sandbox.ErrNoRuntime)
	}
	writeJSON(w, http.StatusOK, response)
}

// readJSON reads the body into a value. If it cannot, it answers and returns false.
func readJSON(w http.ResponseWriter, r *http.Request, limit int64, value any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, limit))
	if err := d.Decode(value); err != nil {
		writeRefusal(w, http.StatusBadRequest, fmt.Errorf("the body must be a %T in JSON: %w", value, err))
		return false
	}
	return true
}
