package pooltest

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/relink-cni/relink/pkg/pool"
)

// API is a pool.API in memory. Its methods may be called at any time. The zero value is ready for use.
type API struct {
	// BeforeRequest is called before each request, with what is asked, such as "update block lan-0". Its error is the answer, and nothing is
	// done then. It may change objects, as somebody else would at that moment. It is set before the API is used.
	BeforeRequest func(request string) error
	// AfterRequest is called after each request that the API has done. Its error is the answer. It is set before the API is used.
	AfterRequest func(request string) error

	mu       sync.Mutex
	requests []string
	last     int64
	pools    table[pool.Pool]
	blocks   table[pool.Block]
	claims   table[pool.Claim]
	nodes    map[string]pool.Node
}

var _ pool.API = (*API)(nil)

// Requests returns all requests so far, such as "get pool lan".
func (a *API) Requests() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.requests)
}

// AddNode makes a node, or changes it.
func (a *API) AddNode(n pool.Node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.nodes == nil {
		a.nodes = map[string]pool.Node{}
	}
	a.nodes[n.Name] = n
}

// RemoveNode deletes a node.
func (a *API) RemoveNode(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.nodes, name)
}

// AddPool makes a pool as a person does. It returns what the API has made.
func (a *API) AddPool(p pool.Pool) pool.Pool { return mustCreate(a, &a.pools, p) }

// AddBlock makes a block as a person does.
func (a *API) AddBlock(b pool.Block) pool.Block { return mustCreate(a, &a.blocks, b) }

// AddClaim makes a claim as a person does.
func (a *API) AddClaim(c pool.Claim) pool.Claim { return mustCreate(a, &a.claims, c) }

// EditPool changes a pool that exists, whatever it is. EditBlock and EditClaim do it with the other objects.
func (a *API) EditPool(name string, change func(*pool.Pool)) { edit(a, &a.pools, name, change) }

// EditBlock is EditPool for a block.
func (a *API) EditBlock(name string, change func(*pool.Block)) { edit(a, &a.blocks, name, change) }

// EditClaim is EditPool for a claim.
func (a *API) EditClaim(name string, change func(*pool.Claim)) { edit(a, &a.claims, name, change) }

// RemovePool deletes a pool as a person does: one with finalizers stays until they are gone.
func (a *API) RemovePool(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.pools.objects[name]
	if len(p.Metadata.Finalizers) == 0 {
		delete(a.pools.objects, name)
		return
	}
	p.Metadata.DeletionTimestamp = "2026-03-01T11:00:00Z"
	a.pools.put(a, p)
}

// Forget deletes a block or a claim, as an API does that was restored from a backup.
func (a *API) Forget(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.blocks.objects, name)
	delete(a.claims.objects, name)
}

// Pool implements pool.API.
func (a *API) Pool(_ context.Context, name string) (pool.Pool, error) {
	return request(a, "get pool "+name, func() (pool.Pool, error) { return a.pools.get(name) })
}

// Pools implements pool.API.
func (a *API) Pools(context.Context) ([]pool.Pool, error) {
	return request(a, "list pools", func() ([]pool.Pool, error) { return a.pools.list(nil), nil })
}

// UpdatePool implements pool.API.
func (a *API) UpdatePool(_ context.Context, p pool.Pool) (pool.Pool, error) {
	return request(a, "update pool "+p.Metadata.Name, func() (pool.Pool, error) {
		current, err := a.pools.current(p)
		if err != nil {
			return p, err
		}
		current.Metadata.Finalizers, current.Metadata.Annotations = p.Metadata.Finalizers, p.Metadata.Annotations
		stored := a.pools.put(a, current)
		if current.Metadata.DeletionTimestamp != "" && len(current.Metadata.Finalizers) == 0 {
			delete(a.pools.objects, current.Metadata.Name)
		}
		return stored, nil
	})
}

// UpdatePoolStatus implements pool.API.
func (a *API) UpdatePoolStatus(_ context.Context, p pool.Pool) (pool.Pool, error) {
	return request(a, "update status of pool "+p.Metadata.Name, func() (pool.Pool, error) {
		current, err := a.pools.current(p)
		if err != nil {
			return p, err
		}
		current.Status = p.Status
		return a.pools.put(a, current), nil
	})
}

// Block implements pool.API.
func (a *API) Block(_ context.Context, name string) (pool.Block, error) {
	return request(a, "get block "+name, func() (pool.Block, error) { return a.blocks.get(name) })
}

// Blocks implements pool.API.
func (a *API) Blocks(_ context.Context, name string) ([]pool.Block, error) {
	return request(a, "list blocks of pool "+name, func() ([]pool.Block, error) {
		return a.blocks.list(func(b pool.Block) bool { return b.Spec.Pool == name }), nil
	})
}

// AllBlocks implements pool.API.
func (a *API) AllBlocks(context.Context) ([]pool.Block, error) {
	return request(a, "list blocks", func() ([]pool.Block, error) { return a.blocks.list(func(pool.Block) bool { return true }), nil })
}

// BlocksOf implements pool.API.
func (a *API) BlocksOf(_ context.Context, node string) ([]pool.Block, error) {
	return request(a, "list blocks of node "+node, func() ([]pool.Block, error) {
		return a.blocks.list(func(b pool.Block) bool { _, found := b.Metadata.Labels[pool.NodeLabel(node)]; return found }), nil
	})
}

// CreateBlock implements pool.API.
func (a *API) CreateBlock(_ context.Context, b pool.Block) (pool.Block, error) {
	return request(a, "create block "+b.Metadata.Name, func() (pool.Block, error) { return a.blocks.create(a, b) })
}

// UpdateBlock implements pool.API.
func (a *API) UpdateBlock(_ context.Context, b pool.Block) (pool.Block, error) {
	return request(a, "update block "+b.Metadata.Name, func() (pool.Block, error) { return a.blocks.update(a, b) })
}

// DeleteBlock implements pool.API.
func (a *API) DeleteBlock(_ context.Context, b pool.Block) error {
	_, err := request(a, "delete block "+b.Metadata.Name, func() (pool.Block, error) { return a.blocks.remove(b) })
	return err
}

// Claim implements pool.API.
func (a *API) Claim(_ context.Context, name string) (pool.Claim, error) {
	return request(a, "get claim "+name, func() (pool.Claim, error) { return a.claims.get(name) })
}

// Claims implements pool.API.
func (a *API) Claims(_ context.Context, name string) ([]pool.Claim, error) {
	return request(a, "list claims of pool "+name, func() ([]pool.Claim, error) {
		return a.claims.list(func(c pool.Claim) bool { return c.Spec.Pool == name }), nil
	})
}

// ClaimsOf implements pool.API.
func (a *API) ClaimsOf(_ context.Context, node string) ([]pool.Claim, error) {
	return request(a, "list claims of node "+node, func() ([]pool.Claim, error) {
		return a.claims.list(func(c pool.Claim) bool { return c.Status.Active.Node == node }), nil
	})
}

// ClaimsAt implements pool.API.
func (a *API) ClaimsAt(_ context.Context, address netip.Addr) ([]pool.Claim, error) {
	return request(a, "list claims at "+address.String(), func() ([]pool.Claim, error) {
		return a.claims.list(func(c pool.Claim) bool { return c.Status.Address == address }), nil
	})
}

// CreateClaim implements pool.API.
func (a *API) CreateClaim(_ context.Context, c pool.Claim) (pool.Claim, error) {
	return request(a, "create claim "+c.Metadata.Name, func() (pool.Claim, error) { return a.claims.create(a, c) })
}

// UpdateClaim implements pool.API.
func (a *API) UpdateClaim(_ context.Context, c pool.Claim) (pool.Claim, error) {
	return request(a, "update claim "+c.Metadata.Name, func() (pool.Claim, error) { return a.claims.update(a, c) })
}

// DeleteClaim implements pool.API.
func (a *API) DeleteClaim(_ context.Context, c pool.Claim) error {
	_, err := request(a, "delete claim "+c.Metadata.Name, func() (pool.Claim, error) { return a.claims.remove(c) })
	return err
}

// Node implements pool.API.
func (a *API) Node(_ context.Context, name string) (pool.Node, error) {
	return request(a, "get node "+name, func() (pool.Node, error) {
		n, ok := a.nodes[name]
		if !ok {
			return n, fmt.Errorf("node %s: %w", name, pool.ErrNotFound)
		}
		return n, nil
	})
}

// Nodes implements pool.API.
func (a *API) Nodes(context.Context) ([]pool.Node, error) {
	return request(a, "list nodes", func() (nodes []pool.Node, err error) {
		for _, name := range sorted(a.nodes) {
			nodes = append(nodes, a.nodes[name])
		}
		return nodes, nil
	})
}

// request does what is asked, as the only one at that moment.
func request[T any](a *API, text string, operation func() (T, error)) (result T, err error) {
	var zero T
	if a.BeforeRequest != nil {
		if err := a.BeforeRequest(text); err != nil {
			return zero, err
		}
	}
	a.mu.Lock()
	a.requests = append(a.requests, text)
	result, err = operation()
	a.mu.Unlock()
	if a.AfterRequest != nil && err == nil {
		if err := a.AfterRequest(text); err != nil {
			return zero, err
		}
	}
	return result, err
}
