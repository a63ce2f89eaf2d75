package kube

import (
	"cmp"
	"context"
	"log/slog"
	"reflect"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/relink-cni/relink/pkg/kube/objects"
	"github.com/relink-cni/relink/pkg/pool"
)

// PoolCache has all pools, blocks, claims and nodes, as the watches have shown them last. It implements controller.Cache.
type PoolCache struct {
	pools  Informer[pool.Pool]
	blocks Informer[pool.Block]
	claims Informer[pool.Claim]
	nodes  Informer[objects.Node]

	mu sync.Mutex
	// extents are those of all pools, nil if one of them has changed.
	extents *pool.Extents
}

// WatchAll watches all pools, and what belongs to them, until ctx ends. It returns when it has read all. It calls changed as controller.Config
// says.
func (p Pools) WatchAll(ctx context.Context, log *slog.Logger, changed func(name string, soon bool)) *PoolCache {
	c := &PoolCache{
		pools: informerOf[pool.Pool](p, log, objects.AddressPools, nil, metav1.ListOptions{}), blocks: informerOf[pool.Block](p, log, objects.AddressBlocks, nil, metav1.ListOptions{}),
		claims: informerOf[pool.Claim](p, log, objects.AddressClaims, nil, metav1.ListOptions{}), nodes: informerOf[objects.Node](p, log, objects.Nodes, nil, metav1.ListOptions{}),
	}
	c.blocks.IndexBy(func(b pool.Block) string { return b.Spec.Pool })
	c.claims.IndexBy(func(c pool.Claim) string { return c.Spec.Pool })
	c.pools.Handle(func(before, after *pool.Pool) {
		// The API counts what people do in the generation. All nodes of a recovery write one after the other.
		person := before == nil || after == nil || before.Metadata.Generation != after.Metadata.Generation || before.Metadata.UID != after.Metadata.UID
		if person {
			c.mu.Lock()
			c.extents = nil
			c.mu.Unlock()
			changed("", false) // Another pool can share addresses with it.
		}
		changed(cmp.Or(after, before).Metadata.Name, person)
	})
	c.blocks.Handle(func(before, after *pool.Block) { changed(cmp.Or(after, before).Spec.Pool, false) })
	c.claims.Handle(func(before, after *pool.Claim) {
		if after == nil { // A kept address is free.
			changed(before.Spec.Pool, false)
		}
	})
	c.nodes.Handle(func(before, after *objects.Node) {
		if before == nil || after == nil || !reflect.DeepEqual(standing(*before), standing(*after)) {
			changed("", true)
		}
	})
	go c.pools.Run(ctx)
	go c.blocks.Run(ctx)
	go c.claims.Run(ctx)
	go c.nodes.Run(ctx)
	cache.WaitForCacheSync(ctx.Done(), c.pools.HasSynced, c.blocks.HasSynced, c.claims.HasSynced, c.nodes.HasSynced)
	return c
}

// standing is what the controller acts on of a node.
func standing(n objects.Node) pool.Node {
	p := n.PoolNode()
	return pool.Node{Name: p.Name, UID: p.UID, OutOfService: p.OutOfService}
}

// Pools implements controller.Cache. They are in the order of their names.
func (c *PoolCache) Pools() []pool.Pool {
	return slices.SortedFunc(slices.Values(c.pools.List()), func(a, b pool.Pool) int { return cmp.Compare(a.Metadata.Name, b.Metadata.Name) })
}

// Pool implements controller.Cache.
func (c *PoolCache) Pool(name string) (p pool.Pool, overlapping []pool.Pool, found bool) {
	p, found = c.pools.Get(name)
	if !found {
		return p, nil, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.extents == nil {
		e := pool.NewExtents(c.Pools())
		c.extents = &e
	}
	return p, c.extents.Overlapping(p), true
}

// Blocks implements controller.Cache.
func (c *PoolCache) Blocks(name string) []pool.Block { return c.blocks.Indexed(name) }

// Claims implements controller.Cache.
func (c *PoolCache) Claims(name string) []pool.Claim { return c.claims.Indexed(name) }

// Nodes implements controller.Cache.
func (c *PoolCache) Nodes() (nodes []pool.Node) {
	for _, n := range c.nodes.List() {
		nodes = append(nodes, n.PoolNode())
	}
	return nodes
}
