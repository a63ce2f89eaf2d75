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

// Pools are the address pools of the Kubernetes API: a keeper.Keeper.
type Pools interface {
	pool.Agent
	pool.Importer
	// Show returns all pools, and ShowBlocks all blocks of one, as the API has them now. ShowAddress says whose an address is.
	Show(ctx context.Context) ([]pool.Pool, error)
	ShowBlocks(ctx context.Context, name string) ([]pool.Block, error)
	ShowAddress(ctx context.Context, a netip.Addr) ([]pool.Standing, error)
}

// handlePools adds the handlers for addresses of pools.
func (s Sources) handlePools(mux *http.ServeMux) {
	mux.HandleFunc("POST "+control.RefillPath, s.needsPools(s.refill))
	mux.HandleFunc("POST "+control.AcquirePath, s.needsPools(s.acquire))
	mux.HandleFunc("POST "+control.PoolClaimPath, s.needsPools(s.claim))
	mux.HandleFunc("POST "+control.PoolImportPath, s.needsPools(s.importAddresses))
	mux.HandleFunc("GET "+control.PoolsPath, s.needsPools(s.showPools))
	mux.HandleFunc("GET "+control.BlocksPath, s.needsPools(s.showBlocks))
	mux.HandleFunc("GET "+control.AddressPath, s.needsPools(s.showAddress))
}

// needsPools refuses a request that nobody can answer.
func (s Sources) needsPools(handle http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s.Pools == nil {
			refuse(w, control.StatusNoPools, errNoPools)
			return
		}
		handle(w, r)
	}
}

func (s Sources) refill(w http.ResponseWriter, r *http.Request) {
	var d pool.Demand
	if !read(w, r, mostBody, &d) {
		return
	}
	if err := s.Pools.Refill(r.Context(), d); err != nil {
		refusePool(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s Sources) acquire(w http.ResponseWriter, r *http.Request) {
	var a pool.Acquisition
	if !read(w, r, mostBody, &a) {
		return
	}
	made, err := s.Pools.Acquire(r.Context(), a)
	if err != nil {
		refusePool(w, err)
		return
	}
	answer(w, http.StatusOK, made)
}

func (s Sources) claim(w http.ResponseWriter, r *http.Request) {
	var c pool.Claimed
	if !read(w, r, mostBody, &c) {
		return
	}
	if err := s.Pools.Claim(r.Context(), c); err != nil {
		refusePool(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// mostImport is how many bytes a pool.Import has at most.
const mostImport = 64 << 10

func (s Sources) importAddresses(w http.ResponseWriter, r *http.Request) {
	var in pool.Import
	if !read(w, r, mostImport, &in) {
		return
	}
	made, err := s.Pools.Import(r.Context(), in)
	if err != nil {
		refusePool(w, err)
		return
	}
	answer(w, http.StatusOK, made)
}

func (s Sources) showPools(w http.ResponseWriter, r *http.Request) {
	all, err := s.Pools.Show(r.Context())
	if err != nil {
		refusePool(w, err)
		return
	}
	answer(w, http.StatusOK, all)
}

func (s Sources) showBlocks(w http.ResponseWriter, r *http.Request) {
	all, err := s.Pools.ShowBlocks(r.Context(), r.URL.Query().Get("pool"))
	if err != nil {
		refusePool(w, err)
		return
	}
	answer(w, http.StatusOK, all)
}

func (s Sources) showAddress(w http.ResponseWriter, r *http.Request) {
	text := r.URL.Query().Get("address")
	a, err := netip.ParseAddr(text)
	if err != nil {
		refuse(w, http.StatusBadRequest, fmt.Errorf("invalid address %q: must be an IP address", text))
		return
	}
	all, err := s.Pools.ShowAddress(r.Context(), a)
	if err != nil {
		refusePool(w, err)
		return
	}
	answer(w, http.StatusOK, all)
}

// refusePool answers with what control.Client makes the same error of.
func refusePool(w http.ResponseWriter, err error) {
	if errors.Is(err, pool.ErrUnknown) {
		refuse(w, control.StatusUnknownPool, without(pool.ErrUnknown, err))
		return
	}
	refuse(w, http.StatusServiceUnavailable, without(pool.ErrUnavailable, err))
}
