package objects

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/relink-cni/relink/pkg/pool"
)

// The kinds of address pools that can be watched, too.
var (
	AddressPools  = Kind{pool.Group, "AddressPool", "addresspools", []string{pool.Version}, Whole}
	AddressBlocks = Kind{pool.Group, "AddressBlock", "addressblocks", []string{pool.Version}, Whole}
	addressClaims = Kind{pool.Group, "AddressClaim", "addressclaims", []string{pool.Version}, Whole}
)

// PoolAPI has the pools, blocks and claims of the API. It implements pool.API.
type PoolAPI struct{ client *Client }

var _ pool.API = PoolAPI{}

// NewPoolAPI returns the pools of the API.
func NewPoolAPI(client *Client) PoolAPI { return PoolAPI{client} }

// Pool implements pool.API.
func (p PoolAPI) Pool(ctx context.Context, name string) (stored pool.Pool, err error) {
	err = p.get(ctx, AddressPools, name, &stored)
	return stored, err
}

// Pools implements pool.API.
func (p PoolAPI) Pools(ctx context.Context) ([]pool.Pool, error) {
	return list[pool.Pool](ctx, p, AddressPools, selector{})
}

// UpdatePool implements pool.API.
func (p PoolAPI) UpdatePool(ctx context.Context, o pool.Pool) (stored pool.Pool, err error) {
	var recovery any // nil removes it.
	if text, found := o.Metadata.Annotations[pool.RecoveryKey]; found {
		recovery = text
	}
	change := map[string]any{"metadata": map[string]any{
		"uid": o.Metadata.UID, "resourceVersion": o.Metadata.ResourceVersion, "finalizers": o.Metadata.Finalizers,
		"annotations": map[string]any{pool.RecoveryKey: recovery},
	}}
	err = p.patch(ctx, o.Metadata.Name, change, &stored)
	return stored, err
}

// UpdatePoolStatus implements pool.API.
func (p PoolAPI) UpdatePoolStatus(ctx context.Context, o pool.Pool) (stored pool.Pool, err error) {
	type whole struct {
		meta
		pool.Pool
	}
	r := p.client.api.Put().Resource(AddressPools.Resource).Name(o.Metadata.Name).SubResource("status")
	err = p.send(ctx, r, AddressPools, "update", o.Metadata.Name, whole{metaOf(AddressPools), o}, &stored)
	return stored, err
}

// Block implements pool.API.
func (p PoolAPI) Block(ctx context.Context, name string) (stored pool.Block, err error) {
	err = p.get(ctx, AddressBlocks, name, &stored)
	return stored, err
}

// Blocks implements pool.API.
func (p PoolAPI) Blocks(ctx context.Context, name string) ([]pool.Block, error) {
	// Not by the label: a long name of a pool is not in it.
	return list[pool.Block](ctx, p, AddressBlocks, selector{"fieldSelector", "spec.pool=" + name})
}

// BlocksOf implements pool.API.
func (p PoolAPI) BlocksOf(ctx context.Context, node string) ([]pool.Block, error) {
	return list[pool.Block](ctx, p, AddressBlocks, selector{"labelSelector", pool.NodeLabel(node)})
}

// CreateBlock implements pool.API.
func (p PoolAPI) CreateBlock(ctx context.Context, b pool.Block) (stored pool.Block, err error) {
	err = p.create(ctx, AddressBlocks, b.Metadata.Name, block{metaOf(AddressBlocks), b}, &stored)
	return stored, err
}

// UpdateBlock implements pool.API.
func (p PoolAPI) UpdateBlock(ctx context.Context, b pool.Block) (stored pool.Block, err error) {
	err = p.update(ctx, AddressBlocks, b.Metadata.Name, block{metaOf(AddressBlocks), b}, &stored)
	return stored, err
}

// DeleteBlock implements pool.API.
func (p PoolAPI) DeleteBlock(ctx context.Context, b pool.Block) error {
	return p.delete(ctx, AddressBlocks, b.Metadata)
}

// Claim implements pool.API.
func (p PoolAPI) Claim(ctx context.Context, name string) (stored pool.Claim, err error) {
	err = p.get(ctx, addressClaims, name, &stored)
	return stored, err
}

// Claims implements pool.API.
func (p PoolAPI) Claims(ctx context.Context, name string) ([]pool.Claim, error) {
	return list[pool.Claim](ctx, p, addressClaims, selector{"fieldSelector", "spec.pool=" + name})
}

// ClaimsOf implements pool.API.
func (p PoolAPI) ClaimsOf(ctx context.Context, node string) ([]pool.Claim, error) {
	return list[pool.Claim](ctx, p, addressClaims, selector{"fieldSelector", "spec.active.node=" + node})
}

// ClaimsAt implements pool.API.
func (p PoolAPI) ClaimsAt(ctx context.Context, a netip.Addr) ([]pool.Claim, error) {
	return list[pool.Claim](ctx, p, addressClaims, selector{"fieldSelector", "spec.address=" + a.String()})
}

// CreateClaim implements pool.API.
func (p PoolAPI) CreateClaim(ctx context.Context, c pool.Claim) (stored pool.Claim, err error) {
	err = p.create(ctx, addressClaims, c.Metadata.Name, claim{metaOf(addressClaims), c}, &stored)
	return stored, err
}

// UpdateClaim implements pool.API.
func (p PoolAPI) UpdateClaim(ctx context.Context, c pool.Claim) (stored pool.Claim, err error) {
	err = p.update(ctx, addressClaims, c.Metadata.Name, claim{metaOf(addressClaims), c}, &stored)
	return stored, err
}

// DeleteClaim implements pool.API.
func (p PoolAPI) DeleteClaim(ctx context.Context, c pool.Claim) error {
	return p.delete(ctx, addressClaims, c.Metadata)
}

// meta says what an object is.
type meta struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

func metaOf(k Kind) meta { return meta{Root(k.Group, k.Versions[0])[len("/apis/"):], k.Name} }

// block and claim are objects as the API takes them.
type block struct {
	meta
	pool.Block
}

type claim struct {
	meta
	pool.Claim
}

// get reads an object. Without a resource version in the request, the API asks its store.
func (p PoolAPI) get(ctx context.Context, k Kind, name string, into any) error {
	return p.send(ctx, p.client.api.Get().Resource(k.Resource).Name(name), k, "get", name, nil, into)
}

func (p PoolAPI) create(ctx context.Context, k Kind, name string, object, into any) error {
	return p.send(ctx, p.client.api.Post().Resource(k.Resource), k, "create", name, object, into)
}

// update writes an object. It has the UID and the resource version of what was read: the API refuses it otherwise.
func (p PoolAPI) update(ctx context.Context, k Kind, name string, object, into any) error {
	return p.send(ctx, p.client.api.Put().Resource(k.Resource).Name(name), k, "update", name, object, into)
}

func (p PoolAPI) patch(ctx context.Context, name string, change, into any) error {
	r := p.client.api.Patch(types.MergePatchType).Resource(AddressPools.Resource).Name(name)
	return p.send(ctx, r, AddressPools, "patch", name, change, into)
}

// delete deletes the object only if it is still the one that was read.
func (p PoolAPI) delete(ctx context.Context, k Kind, m pool.Meta) error {
	uid, version := m.UID, m.ResourceVersion
	condition := map[string]any{
		"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": map[string]any{"uid": uid, "resourceVersion": version},
	}
	if uid == "" || version == "" {
		return fmt.Errorf("delete %s %s: it has no UID or no resource version", k.Resource, m.Name)
	}
	return p.send(ctx, p.client.api.Delete().Resource(k.Resource).Name(m.Name), k, "delete", m.Name, condition, nil)
}

// send makes one request, and reads the object in the answer.
func (p PoolAPI) send(ctx context.Context, r *rest.Request, k Kind, verb, name string, body, into any) error {
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		r = r.Body(text)
		if verb != "patch" {
			r = r.SetHeader("Content-Type", Whole)
		}
	}
	if namespace := namespaceOf(k); namespace != "" {
		r = r.Namespace(namespace)
	}
	var code int
	response, err := r.AbsPath(Root(k.Group, k.Versions[0])).SetHeader("Accept", Whole).MaxRetries(0).Do(ctx).StatusCode(&code).Raw()
	if err := poolError(checkAnswer(request{k, k.Versions[0], name, verb, k.Resource}, code, response, err), response); err != nil {
		return fmt.Errorf("%s %s %s: %w", verb, k.Name, name, err)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(response, into); err != nil {
		return fmt.Errorf("the answer of the Kubernetes API about %s %s cannot be read: %w", k.Name, name, err)
	}
	var identity struct {
		Metadata pool.Meta `json:"metadata"`
	}
	// A proxy can answer with anything.
	if err := json.Unmarshal(response, &identity); err != nil || identity.Metadata.Name != name || identity.Metadata.UID == "" {
		return fmt.Errorf("the answer of the Kubernetes API is not about %s %s", k.Name, name)
	}
	return nil
}

// poolError makes an error match those of package pool. response is the body of the answer.
func poolError(err error, response []byte) error {
	var s metav1.Status
	_ = json.Unmarshal(response, &s) // It need not be a Status.
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrNotFound):
		return matching{err, pool.ErrNotFound}
	case errors.Is(err, ErrConflict) && s.Reason == metav1.StatusReasonAlreadyExists:
		return fmt.Errorf("%w: %w", pool.ErrExists, err)
	case errors.Is(err, ErrConflict):
		return matching{err, pool.ErrConflict}
	case errors.Is(err, ErrBusy):
		return matching{err, pool.ErrBusy}
	case errors.Is(err, ErrRefused):
		return matching{err, pool.ErrRefused}
	case s.Code == http.StatusUnprocessableEntity:
		return fmt.Errorf("%w: %w", pool.ErrRefused, err)
	}
	return err
}

// matching is an error that matches another one, too, and says the same.
type matching struct {
	error
	sentinel error
}

// Unwrap returns both.
func (m matching) Unwrap() []error { return []error{m.error, m.sentinel} }

// maxListed is how many objects a page of a list has.
const maxListed = 500

// list reads all objects that the selector selects. The pages are of one state of the API. Without a resource version, the
// API answers with what its store has.
func list[T any](ctx context.Context, p PoolAPI, k Kind, filter selector) (items []T, err error) {
	next := ""
	for {
		var code int
		r := p.client.api.Get().AbsPath(Root(k.Group, k.Versions[0])).Resource(k.Resource).Param("limit", strconv.Itoa(maxListed))
		if namespace := namespaceOf(k); namespace != "" {
			r = r.Namespace(namespace)
		}
		if filter.key != "" {
			r = r.Param(filter.key, filter.value)
		}
		if next != "" {
			r = r.Param("continue", next)
		}
		response, err := r.SetHeader("Accept", Whole).MaxRetries(0).Do(ctx).StatusCode(&code).Raw()
		if err := poolError(checkAnswer(request{k, k.Versions[0], "", "list", k.Resource}, code, response, err), response); err != nil {
			return nil, fmt.Errorf("list %s: %w", k.Resource, err)
		}
		var page struct {
			Kind     string `json:"kind"`
			Metadata struct {
				Continue string `json:"continue"`
			} `json:"metadata"`
			Items []T `json:"items"`
		}
		if err := json.NewDecoder(bytes.NewReader(response)).Decode(&page); err != nil || page.Kind != k.Name+"List" {
			return nil, fmt.Errorf("the answer of the Kubernetes API is no %sList: %w", k.Name, err)
		}
		items = append(items, page.Items...)
		if next = page.Metadata.Continue; next == "" {
			return items, nil
		}
	}
}

// selector is a parameter of a list, none if it is the zero one.
type selector struct{ key, value string }
