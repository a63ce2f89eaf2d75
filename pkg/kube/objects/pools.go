package objects

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"

	"github.com/relink-cni/relink/pkg/pool"
)

// The kinds of address pools that can be watched, too.
var (
	AddressPools  = Kind{pool.Group, "AddressPool", "addresspools", []string{pool.Version}, Whole}
	AddressBlocks = Kind{pool.Group, "AddressBlock", "addressblocks", []string{pool.Version}, Whole}
	AddressClaims = Kind{pool.Group, "AddressClaim", "addressclaims", []string{pool.Version}, Whole}
)

// PoolAPI has the pools, blocks and claims of the API. It implements pool.API.
type PoolAPI struct{ client *Client }

var _ pool.API = PoolAPI{}

// NewPoolAPI returns the pools of the API.
func NewPoolAPI(client *Client) PoolAPI { return PoolAPI{client} }

// Pool implements pool.API.
func (p PoolAPI) Pool(ctx context.Context, name string) (pool.Pool, error) {
	return one[pool.Pool](ctx, p, request{Kind: AddressPools, verb: "get", name: name})
}

// Pools implements pool.API.
func (p PoolAPI) Pools(ctx context.Context) ([]pool.Pool, error) {
	return list[pool.Pool](ctx, p, request{Kind: AddressPools})
}

// UpdatePool implements pool.API.
func (p PoolAPI) UpdatePool(ctx context.Context, o pool.Pool) (pool.Pool, error) {
	return one[pool.Pool](ctx, p, request{Kind: AddressPools, verb: "patch", name: o.Metadata.Name, body: map[string]any{"metadata": map[string]any{
		"uid": o.Metadata.UID, "resourceVersion": o.Metadata.ResourceVersion, "finalizers": o.Metadata.Finalizers,
	}}})
}

// UpdatePoolStatus implements pool.API.
func (p PoolAPI) UpdatePoolStatus(ctx context.Context, o pool.Pool) (pool.Pool, error) {
	r := write(AddressPools, "update", o.Metadata, o.Spec, o.Status)
	r.subresource = "status"
	return one[pool.Pool](ctx, p, r)
}

// Block implements pool.API.
func (p PoolAPI) Block(ctx context.Context, name string) (pool.Block, error) {
	return one[pool.Block](ctx, p, request{Kind: AddressBlocks, verb: "get", name: name})
}

// Blocks implements pool.API.
func (p PoolAPI) Blocks(ctx context.Context, name string) ([]pool.Block, error) {
	// Not by the label: a long name of a pool is not in it.
	return list[pool.Block](ctx, p, request{Kind: AddressBlocks, fields: "spec.pool=" + name})
}

// AllBlocks implements pool.API.
func (p PoolAPI) AllBlocks(ctx context.Context) ([]pool.Block, error) {
	return list[pool.Block](ctx, p, request{Kind: AddressBlocks})
}

// BlocksOf implements pool.API.
func (p PoolAPI) BlocksOf(ctx context.Context, node string) ([]pool.Block, error) {
	return list[pool.Block](ctx, p, request{Kind: AddressBlocks, labels: pool.NodeLabel(node)})
}

// CreateBlock implements pool.API.
func (p PoolAPI) CreateBlock(ctx context.Context, b pool.Block) (pool.Block, error) {
	return one[pool.Block](ctx, p, write(AddressBlocks, "create", b.Metadata, b.Spec, b.Status))
}

// UpdateBlock implements pool.API.
func (p PoolAPI) UpdateBlock(ctx context.Context, b pool.Block) (pool.Block, error) {
	return one[pool.Block](ctx, p, write(AddressBlocks, "update", b.Metadata, b.Spec, b.Status))
}

// DeleteBlock implements pool.API.
func (p PoolAPI) DeleteBlock(ctx context.Context, b pool.Block) error {
	return p.delete(ctx, AddressBlocks, b.Metadata)
}

// Claim implements pool.API.
func (p PoolAPI) Claim(ctx context.Context, name string) (pool.Claim, error) {
	return one[pool.Claim](ctx, p, request{Kind: AddressClaims, verb: "get", name: name})
}

// Claims implements pool.API.
func (p PoolAPI) Claims(ctx context.Context, name string) ([]pool.Claim, error) {
	return p.claimsBy(ctx, "spec.pool="+name)
}

// AllClaims returns the claims of all pools, and of none.
func (p PoolAPI) AllClaims(ctx context.Context) ([]pool.Claim, error) { return p.claimsBy(ctx, "") }

// ClaimsOf implements pool.API.
func (p PoolAPI) ClaimsOf(ctx context.Context, node string) ([]pool.Claim, error) {
	return p.claimsBy(ctx, "status.active.node="+node)
}

// ClaimsAt implements pool.API.
func (p PoolAPI) ClaimsAt(ctx context.Context, a netip.Addr) ([]pool.Claim, error) {
	return p.claimsBy(ctx, "status.address="+a.String())
}

func (p PoolAPI) claimsBy(ctx context.Context, field string) ([]pool.Claim, error) {
	return list[pool.Claim](ctx, p, request{Kind: AddressClaims, fields: field})
}

// CreateClaim implements pool.API.
func (p PoolAPI) CreateClaim(ctx context.Context, c pool.Claim) (pool.Claim, error) {
	return one[pool.Claim](ctx, p, write(AddressClaims, "create", c.Metadata, c.Spec, c.Status))
}

// UpdateClaim implements pool.API.
func (p PoolAPI) UpdateClaim(ctx context.Context, c pool.Claim) (pool.Claim, error) {
	return one[pool.Claim](ctx, p, write(AddressClaims, "update", c.Metadata, c.Spec, c.Status))
}

// DeleteClaim implements pool.API.
func (p PoolAPI) DeleteClaim(ctx context.Context, c pool.Claim) error {
	return p.delete(ctx, AddressClaims, c.Metadata)
}

// object is an object as the API takes it.
type object struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Metadata   pool.Meta `json:"metadata"`
	Spec       any       `json:"spec"`
	Status     any       `json:"status,omitempty"`
}

// write returns the request that writes an object. It has the UID and the resource version of what was read: the API refuses it otherwise.
func write(k Kind, verb string, m pool.Meta, spec, status any) request {
	return request{Kind: k, verb: verb, name: m.Name, body: object{k.Group + "/" + k.Versions[0], k.Name, m, spec, status}}
}

// delete deletes the object only if it is still the one that was read.
func (p PoolAPI) delete(ctx context.Context, k Kind, m pool.Meta) error {
	if m.UID == "" || m.ResourceVersion == "" {
		return fmt.Errorf("delete %s %s: it has no UID or no resource version", k.Resource, m.Name)
	}
	_, err := p.client.do(ctx, request{Kind: k, version: k.Versions[0], verb: "delete", name: m.Name, body: map[string]any{
		"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": map[string]any{"uid": m.UID, "resourceVersion": m.ResourceVersion},
	}})
	return requestError("delete", k.Name+" "+m.Name, err)
}

// requestError says what was asked of an API that has not done it.
func requestError(verb, object string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", verb, object, err)
}

// one makes a request about one object, and returns what the API has then. Without a resource version in the request, the API asks its store.
func one[T any](ctx context.Context, p PoolAPI, r request) (stored T, err error) {
	r.version = r.Versions[0]
	err = p.client.send(ctx, r, &stored)
	return stored, requestError(r.verb, r.Name+" "+r.name, err)
}

// list reads all objects that the request selects. The pages are of one state of the API. Without a resource version, the
// API answers with what its store has.
func list[T any](ctx context.Context, p PoolAPI, r request) (items []T, err error) {
	r.version, r.verb = r.Versions[0], "list"
	for {
		response, err := p.client.do(ctx, r)
		if err != nil {
			return nil, requestError("list", r.Resource, err)
		}
		var page struct {
			Kind     string `json:"kind"`
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []T `json:"items"`
		}
		err = json.Unmarshal(response, &page)
		if err == nil && page.Kind != r.Name+"List" {
			err = fmt.Errorf("its kind is %q", page.Kind)
		}
		if err != nil {
			return nil, fmt.Errorf("the answer of the Kubernetes API is no %sList: %w", r.Name, err)
		}
		items = append(items, page.Items...)
		if page.Metadata.Continue == "" {
			return items, nil
		}
		r.next = page.Metadata.Continue
	}
}
