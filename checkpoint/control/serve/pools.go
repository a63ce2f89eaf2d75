package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/pkg/pool"
)

// errNoPools is the answer to requests for addresses of pools if no API has any.
var errNoPools = errors.New("relink-agent has no Kubernetes API, which has the address pools: start it with --kubeconfig, or as a DaemonSet")

// Pools are the address pools of the Kubernetes API: a node.Controller.
type Pools interface {
	pool.Agent
	pool.Importer
	// Show returns all pools, and ShowBlocks all blocks of one, as the API has them now. ShowAddress says whose an address is.
	Show(ctx context.Context) ([]pool.Pool, error)
	ShowBlocks(ctx context.Context, name string) ([]pool.Block, error)
	ShowAddress(ctx context.Context, a netip.Addr) ([]pool.AddressStatus, error)
}

// addPoolHandlers adds the handlers for addresses of pools.
func (s Sources) addPoolHandlers(mux *http.ServeMux) {
	mux.HandleFunc("POST "+control.RefillPath, s.requirePools(s.refill))
	mux.HandleFunc("POST "+control.AcquirePath, s.requirePools(s.acquire))
	mux.HandleFunc("POST "+control.PoolClaimPath, s.requirePools(s.claimAddress))
	mux.HandleFunc("POST "+control.PoolImportPath, s.requirePools(s.importAddresses))
	mux.HandleFunc("GET "+control.PoolsPath, s.requirePools(s.showPools))
	mux.HandleFunc("GET "+control.BlocksPath, s.requirePools(s.showBlocks))
	mux.HandleFunc("GET "+control.AddressPath, s.requirePools(s.showAddress))
}

// requirePools refuses a request that nobody can answer.
func (s Sources) requirePools(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.Pools == nil {
			writeRefusal(w, control.StatusNoPools, errNoPools)
			return
		}
		handle(w, r)
	}
}

func (s Sources) refill(w http.ResponseWriter, r *http.Request) {
	var d pool.Demand
	if !readJSON(w, r, maxBody, &d) {
		return
	}
	if err := s.Pools.Refill(r.Context(), d); err != nil {
		writePoolRefusal(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s Sources) acquire(w http.ResponseWriter, r *http.Request) {
	var a pool.Acquisition
	if !readJSON(w, r, maxBody, &a) {
		return
	}
	acquired, err := s.Pools.Acquire(r.Context(), a)
	if err != nil {
		writePoolRefusal(w, err)
		return
	}
	writeJSON(w, http.StatusOK, acquired)
}

func (s Sources) claimAddress(w http.ResponseWriter, r *http.Request) {
	var c pool.ClaimedAddress
	if !readJSON(w, r, maxBody, &c) {
		return
	}
	if err := s.Pools.Claim(r.Context(), c); err != nil {
		writePoolRefusal(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// maxImport is how many bytes a pool.Import has at most.
const maxImport = 64 << 10

func (s Sources) importAddresses(w http.ResponseWriter, r *http.Request) {
	var request pool.Import
	if !readJSON(w, r, maxImport, &request) {
		return
	}
	imported, err := s.Pools.Import(r.Context(), request)
	if err != nil {
		writePoolRefusal(w, err)
		return
	}
	writeJSON(w, http.StatusOK, imported)
}

func (s Sources) showPools(w http.ResponseWriter, r *http.Request) {
	pools, err := s.Pools.Show(r.Context())
	if err != nil {
		writePoolRefusal(w, err)
		return
	}
	writeJSON(w, http.StatusOK, pools)
}

func (s Sources) showBlocks(w http.ResponseWriter, r *http.Request) {
	blocks, err := s.Pools.ShowBlocks(r.Context(), r.URL.Query().Get("pool"))
	if err != nil {
		writePoolRefusal(w, err)
		return
	}
	writeJSON(w, http.StatusOK, blocks)
}

func (s Sources) showAddress(w http.ResponseWriter, r *http.Request) {
	text := r.URL.Query().Get("address")
	a, err := netip.ParseAddr(text)
	if err != nil {
		writeRefusal(w, http.StatusBadRequest, fmt.Errorf("invalid address %q: must be an IP address", text))
		return
	}
	standings, err := s.Pools.ShowAddress(r.Context(), a)
	if err != nil {
		writePoolRefusal(w, err)
		return
	}
	writeJSON(w, http.StatusOK, standings)
}

// writePoolRefusal answers with what control.Client makes the same error of.
func writePoolRefusal(w http.ResponseWriter, err error) {
	if errors.Is(err, pool.ErrUnknown) {
		writeRefusal(w, control.StatusUnknownPool, trimSentinel(pool.ErrUnknown, err))
		return
	}
	writeRefusal(w, http.StatusServiceUnavailable, trimSentinel(pool.ErrUnavailable, err))
}
