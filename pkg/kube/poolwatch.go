package kube

import (
	"cmp"
	"context"
	"log/slog"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"

	"github.com/relink-cni/relink/pkg/kube/objects"
	"github.com/relink-cni/relink/pkg/pool"
)

// Pools has the pools, blocks and claims of the API, and watches them.
type Pools struct {
	objects.PoolAPI
	watcher dynamic.Interface
}

// NewPools returns the pools of the API.
func NewPools(client *Client) Pools {
	return Pools{objects.NewPoolAPI(client.Client), client.watcher}
}

// Watch tells the handler of all pools, of the node, and of the blocks in which it has addresses or asks for some, until ctx ends.
func (p Pools) Watch(ctx context.Context, node string, log *slog.Logger, h pool.Handler) {
	var watches sync.WaitGroup
	pools := informerOf[pool.Pool](p, log, objects.AddressPools, h.APIDown, metav1.ListOptions{})
	pools.Handle(h.PoolChanged)
	watches.Go(func() { pools.Run(ctx) })
	blocks := informerOf[pool.Block](p, log, objects.AddressBlocks, h.APIDown, metav1.ListOptions{LabelSelector: pool.NodeLabel(node)})
	blocks.Handle(h.BlockChanged)
	watches.Go(func() { blocks.Run(ctx) })
	nodes := informerOf[objects.Node](p, log, objects.Nodes, h.APIDown, metav1.ListOptions{FieldSelector: "metadata.name=" + node})
	nodes.Handle(func(before, after *objects.Node) {
		n := cmp.Or(after, before).PoolNode()
		n.Deleted = after == nil
		h.NodeChanged(n)
	})
	watches.Go(func() { nodes.Run(ctx) })
	watches.Wait()
}

// informerOf watches the objects that the selectors select. apiDown is as outage.onBegin.
func informerOf[T any](p Pools, log *slog.Logger, k objects.Kind, apiDown func(), selectors metav1.ListOptions) Informer[T] {
	o := &outage{
		log: log, lostMessage: "the Kubernetes API does not show the " + k.Resource + ": changes are seen late", backMessage: "the Kubernetes API shows the " + k.Resource + " again",
		onBegin: apiDown,
	}
	return newInformer[T](o, p.watcher, k, func(options *metav1.ListOptions) {
		options.LabelSelector, options.FieldSelector = selectors.LabelSelector, selectors.FieldSelector
	})
}
