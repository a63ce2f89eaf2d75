package kube

import (
	"context"
	"log/slog"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
	for _, w := range []struct {
		kind     objects.Kind
		selector string
		same     func(was, is any) bool
		change   func(*metav1.PartialObjectMetadata) pool.Change
	}{
		{objects.AddressPools, "", samePool, func(o *metav1.PartialObjectMetadata) pool.Change { return pool.Change{Pool: o.Name} }},
		{objects.AddressBlocks, pool.NodeLabel(node), func(any, any) bool { return false }, func(o *metav1.PartialObjectMetadata) pool.Change {
			return pool.Change{Block: o.Name, Version: o.ResourceVersion}
		}},
	} {
		informer := p.informer(w.kind, w.selector, log, func() { send(pool.Change{Away: true}) })
		tell := func(o any) {
			if gone, is := o.(cache.DeletedFinalStateUnknown); is {
				o = gone.Obj
			}
			if object, is := o.(*metav1.PartialObjectMetadata); is {
				send(w.change(object))
			}
		}
		_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{ // It fails only after the informer has stopped.
			AddFunc: tell, DeleteFunc: tell, UpdateFunc: func(was, is any) {
				if !w.same(was, is) {
					tell(is)
				}
			},
		})
		watches.Go(func() { informer.RunWithContext(klog.NewContext(ctx, klog.Logger{})) })
	}
	watches.Wait()
}

// informer watches the metadata of the objects with the label. away is called when the API stops answering.
func (p Pools) informer(k objects.Kind, selector string, log *slog.Logger, away func()) cache.SharedIndexInformer {
	api := p.watcher.Resource(schema.GroupVersionResource{Group: k.Group, Version: k.Versions[0], Resource: k.Resource})
	said := &outage{
		log: log, begins: away, gone: "the Kubernetes API does not show the " + k.Resource + ": changes are seen late", back: "the Kubernetes API shows the " + k.Resource + " again",
	}
	lw := said.listWatch(api, func(o *metav1.ListOptions) { o.LabelSelector = selector })
	informer := cache.NewSharedIndexInformer(lw, &metav1.PartialObjectMetadata{}, 0, cache.Indexers{})
	_ = informer.SetTransform(named)
	_ = informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}) // The outage has said it.
	return informer
}

// named leaves only what a Change has, and what samePool compares.
func named(o any) (any, error) {
	if is, ok := o.(*metav1.PartialObjectMetadata); ok {
		m := metav1.ObjectMeta{Name: is.Name, UID: is.UID, ResourceVersion: is.ResourceVersion, Generation: is.Generation, DeletionTimestamp: is.DeletionTimestamp}
		if text, recovers := is.Annotations[pool.RecoveryKey]; recovers {
			m.Annotations = map[string]string{pool.RecoveryKey: text}
		}
		return &metav1.PartialObjectMetadata{TypeMeta: is.TypeMeta, ObjectMeta: m}, nil
	}
	return o, nil
}

// samePool says whether nothing of a pool has changed that an agent acts on: the spec, the recovery, the end. The API counts the
// specs in the generation. An API that has lost something can have an older version.
func samePool(was, is any) bool {
	a, ok := was.(*metav1.PartialObjectMetadata)
	b, too := is.(*metav1.PartialObjectMetadata)
	return ok && too && a.UID == b.UID && a.Generation == b.Generation && a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
		a.Annotations[pool.RecoveryKey] == b.Annotations[pool.RecoveryKey] && newer(b, a)
}

// newer says whether the first one is surely not older than the second one.
func newer(a, b *metav1.PartialObjectMetadata) bool {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order >= 0
}
