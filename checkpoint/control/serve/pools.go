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
	for path, handle := range map[string]http.HandlerFunc{
		"POST " + control.RefillPath:     post(s.Pools, maxBody, noContent(Pools.Refill)),
		"POST " + control.AcquirePath:    post(s.Pools, maxBody, Pools.Acquire),
		"POST " + control.PoolClaimPath:  post(s.Pools, maxBody, noContent(Pools.Claim)),
		"POST " + control.PoolImportPath: post(s.Pools, maxImport, Pools.Import),
		"GET " + control.PoolsPath:       answer(func(_ http.ResponseWriter, r *http.Request) (any, error) { return s.Pools.Show(r.Context()) }),
		"GET " + control.BlocksPath: answer(func(_ http.ResponseWriter, r *http.Request) (any, error) {
			return s.Pools.ShowBlocks(r.Context(), r.URL.Query().Get("pool"))
		}),
		"GET " + control.AddressPath: answer(s.showAddress),
	} {
		if s.Pools == nil {
			handle = answer(func(http.ResponseWriter, *http.Request) (any, error) {
				return nil, refusal{control.StatusNoPools, errNoPools}
			})
		}
		mux.HandleFunc(path, handle)
	}
}

// maxImport is how many bytes a pool.Import has at most.
const maxImport = 64 << 10

func (s Sources) showAddress(_ http.ResponseWriter, r *http.Request) (any, error) {
	text := r.URL.Query().Get("address")
	a, err := netip.ParseAddr(text)
	if err != nil {
		return nil, refusal{http.StatusBadRequest, fmt.Errorf("invalid address %q: must be an IP address", text)}
	}
	return s.Pools.ShowAddress(r.Context(), a)
}
