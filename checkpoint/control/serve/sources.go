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

// mostOwners is how many bytes of a list of owners are read at most: MostOwners with the longest names.
const mostOwners = 256 << 10

// handle adds the handlers of the sources.
func (s Sources) handle(mux *http.ServeMux) {
	mux.HandleFunc("POST "+control.OwnerPath, s.needsAPI(s.ask))
	mux.HandleFunc("POST "+control.ClaimPath, s.needsAPI(s.fulfil))
	mux.HandleFunc("POST "+control.OwnersPath, s.needsAPI(s.judge))
	mux.HandleFunc("GET "+control.SandboxesPath, s.sandboxes)
	s.handlePools(mux)
}

// needsAPI refuses a request that nobody can answer.
func (s Sources) needsAPI(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.Owners == nil {
			refuse(w, http.StatusServiceUnavailable, errNoAPI)
			return
		}
		handle(w, r)
	}
}

func (s Sources) ask(w http.ResponseWriter, r *http.Request) {
	var q owner.Question
	if !read(w, r, mostBody, &q) {
		return
	}
	a, err := s.Owners.Ask(r.Context(), q)
	if err != nil {
		refuseOwner(w, err)
		return
	}
	answer(w, http.StatusOK, a)
}

func (s Sources) fulfil(w http.ResponseWriter, r *http.Request) {
	var f owner.Fulfilment
	if !read(w, r, mostBody, &f) {
		return
	}
	if err := s.Owners.Fulfil(r.Context(), f); err != nil {
		refuseOwner(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// refuseOwner answers with what control.Client makes the same error of.
func refuseOwner(w http.ResponseWriter, err error) {
	status, says := http.StatusServiceUnavailable, err
	switch {
	case errors.Is(err, owner.ErrInvalid):
		status, says = control.StatusInvalid, without(owner.ErrInvalid, err)
	case errors.Is(err, owner.ErrDiffers):
		status, says = control.StatusDiffers, without(owner.ErrDiffers, err)
	case errors.Is(err, owner.ErrUnavailable):
		says = without(owner.ErrUnavailable, err)
	}
	refuse(w, status, says)
}

// without returns the error without the words of the sentinel, which the client puts before it again.
func without(sentinel, err error) error {
	return errors.New(strings.TrimPrefix(err.Error(), sentinel.Error()+": "))
}

func (s Sources) judge(w http.ResponseWriter, r *http.Request) {
	var owners []attachment.Owner
	if !read(w, r, mostOwners, &owners) {
		return
	}
	if len(owners) > control.MostOwners {
		refuse(w, http.StatusBadRequest, fmt.Errorf("%d owners are too many for one request: at most %d", len(owners), control.MostOwners))
		return
	}
	answer(w, http.StatusOK, s.Owners.Judge(r.Context(), owners))
}

func (s Sources) sandboxes(w http.ResponseWriter, r *http.Request) {
	if s.Runtime == nil {
		refuse(w, http.StatusServiceUnavailable, errors.New("relink-agent has no container runtime"))
		return
	}
	all, err := s.Runtime.Sandboxes(r.Context())
	if all == nil {
		all = []sandbox.OfRuntime{}
	}
	told := control.Sandboxes{Sandboxes: all}
	if err != nil {
		told.Incomplete, told.NoRuntime = printable.Joined(err), errors.Is(err, sandbox.ErrNoRuntime)
	}
	answer(w, http.StatusOK, told)
}

// read reads the body into a value. If it cannot, it answers and returns false.
func read(w http.ResponseWriter, r *http.Request, most int64, into any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, most))
	if err := d.Decode(into); err != nil {
		refuse(w, http.StatusBadRequest, fmt.Errorf("the body must be a %T in JSON: %w", into, err))
		return false
	}
	return true
}
