package kube

import (
	"context"
	"log/slog"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/relink-cni/relink/pkg/kube/objects"
	"github.com/relink-cni/relink/pkg/pool"
)

// Pools has the pools, blocks and claims of the API, and watches them.
type Pools struct {
	objects.PoolAPI
	watcher metadata.Interface
}

// NewPools returns the pools of the API.
func NewPools(client *Client) Pools { return Pools{objects.NewPoolAPI(client.Client), client.watcher} }

// Watch sends the changes of all pools, and of the blocks in which the node has addresses or asks for some, until ctx ends. It
// also says when the API stops answering. It sees metadata only. A change of a pool's status is none: all agents would ask the API at
// once each time that the controller has counted.
func (p Pools) Watch(ctx context.Context, node string, log *slog.Logger, changes chan<- pool.Change) {
	var watches sync.WaitGroup
	send := func(c pool.Change) {
		select {
		case changes <- c:
		case <-ctx.Done():
		}
	}
	start := func(k objects.Kind, selector string, unchanged func(before, after any) bool, change func(*metav1.PartialObjectMetadata) pool.Change) {
		o := &outage{
			log: log, lostMessage: "the Kubernetes API does not show the " + k.Resource + ": changes are seen late", backMessage: "the Kubernetes API shows the " + k.Resource + " again",
			onBegin: func() { send(pool.Change{APIDown: true}) },
		}
		informer := o.newInformer(p.watcher, k, func(o *metav1.ListOptions) { o.LabelSelector = selector }, trimPoolMetadata)
		notify := func(o any) {
			if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = tombstone.Obj
			}
			if object, ok := o.(*metav1.PartialObjectMetadata); ok {
				send(change(object))
			}
		}
		_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{ // It fails only after the informer has stopped.
			AddFunc: notify, DeleteFunc: notify, UpdateFunc: func(before, after any) {
				if !unchanged(before, after) {
					notify(after)
				}
			},
		})
		watches.Go(func() { informer.RunWithContext(klog.NewContext(ctx, klog.Logger{})) })
	}
	start(objects.AddressPools, "", samePoolSpec, func(o *metav1.PartialObjectMetadata) pool.Change { return pool.Change{Pool: o.Name} })
	start(objects.AddressBlocks, pool.NodeLabel(node), func(any, any) bool { return false }, func(o *metav1.PartialObjectMetadata) pool.Change {
		return pool.Change{Block: o.Name, Version: o.ResourceVersion}
	})
	watches.Wait()
}

// trimPoolMetadata drops what is the greatest part of the metadata.
func trimPoolMetadata(o any) (any, error) {
	if object, ok := o.(*metav1.PartialObjectMetadata); ok {
		object.ManagedFields = nil
	}
	return o, nil
}

// samePoolSpec says whether nothing of a pool has changed that an agent acts on: the spec, the recovery, the end. The API counts the
// specs in the generation. An API that has lost something can have an older version.
func samePoolSpec(before, after any) bool {
	a, ok := before.(*metav1.PartialObjectMetadata)
	b, okAfter := after.(*metav1.PartialObjectMetadata)
	return ok && okAfter && a.UID == b.UID && a.Generation == b.Generation && a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
		a.Annotations[pool.RecoveryKey] == b.Annotations[pool.RecoveryKey] && newer(b, a)
}

// newer says whether the first one is surely not older than the second one.
func newer(a, b *metav1.PartialObjectMetadata) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order >= 0
}
