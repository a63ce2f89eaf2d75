package kube

import (
	"context"
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/relink-cni/relink/pkg/kube/objects"
)

// cached is an object in an informer: its metadata for client-go, and what relink knows of it.
type cached[T any] struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	value T
}

// DeepCopyObject implements runtime.Object. Nobody changes what an informer has, so the copy shares the value.
func (c *cached[T]) DeepCopyObject() runtime.Object {
	return &cached[T]{c.TypeMeta, *c.DeepCopy(), c.value}
}

// Informer keeps the objects of a kind, as the watch has shown them last. It can be late: before anything is decided that
// somebody else could have changed, the API itself is asked.
type Informer[T any] struct{ cache.SharedIndexInformer }

// newInformer watches the objects that selects selects, and tells the outage what the API answers.
func newInformer[T any](o *outage, client dynamic.Interface, k objects.Kind, selects func(*metav1.ListOptions)) Informer[T] {
	api := client.Resource(schema.GroupVersionResource{Group: k.Group, Version: k.Versions[0], Resource: k.Resource})
	source := o.listWatch(listing(api.List), api.Watch, selects)
	return Informer[T]{o.start(cache.NewSharedIndexInformer(source, &unstructured.Unstructured{}, 0, cache.Indexers{}), decode[T])}
}

// decode makes of an object of the API what an informer keeps.
func decode[T any](o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil // It is in the form of the informer already, or a cache.DeletedFinalStateUnknown.
	}
	object := &cached[T]{ObjectMeta: metav1.ObjectMeta{Name: u.GetName(), Namespace: u.GetNamespace(), UID: u.GetUID(), ResourceVersion: u.GetResourceVersion()}}
	unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	text, err := json.Marshal(u.Object)
	if err == nil {
		err = json.Unmarshal(text, &object.value)
	}
	return object, err
}

// List returns all objects, in no order.
func (i Informer[T]) List() (values []T) {
	for _, o := range i.GetStore().List() {
		values = append(values, o.(*cached[T]).value)
	}
	return values
}

// Get returns the object without a namespace.
func (i Informer[T]) Get(name string) (value T, found bool) {
	o, found, err := i.GetStore().GetByKey(name)
	if err != nil || !found {
		return value, false
	}
	return o.(*cached[T]).value, true
}

// index is the name of the index of IndexBy.
const index = "index"

// IndexBy makes Indexed find objects by the key. It is called before Run.
func (i Informer[T]) IndexBy(key func(T) string) {
	_ = i.AddIndexers(cache.Indexers{index: func(o any) ([]string, error) { return []string{key(o.(*cached[T]).value)}, nil }}) // It fails only after the informer has stopped.
}

// Indexed returns the objects with that key, in no order.
func (i Informer[T]) Indexed(key string) (values []T) {
	objects, _ := i.GetIndexer().ByIndex(index, key) // It fails only without the index.
	for _, o := range objects {
		values = append(values, o.(*cached[T]).value)
	}
	return values
}

// cachedOf returns the object of an event, nil if the informer does not have it any more.
func cachedOf[T any](o any) *cached[T] {
	if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = tombstone.Obj
	}
	object, _ := o.(*cached[T])
	return object
}

// Handle calls the function for each object that is new, has changed or is gone, one at a time: before is nil for a new
// one, after for one that is gone.
func (i Informer[T]) Handle(changed func(before, after *T)) {
	value := func(o any) *T {
		if object := cachedOf[T](o); object != nil {
			return &object.value
		}
		return nil
	}
	_, _ = i.AddEventHandler(cache.ResourceEventHandlerFuncs{ // It fails only after the informer has stopped.
		AddFunc:    func(o any) { changed(nil, value(o)) },
		UpdateFunc: func(before, after any) { changed(value(before), value(after)) },
		DeleteFunc: func(o any) { changed(value(o), nil) },
	})
}

// Run watches until ctx ends.
func (i Informer[T]) Run(ctx context.Context) {
	i.RunWithContext(klog.NewContext(ctx, klog.Logger{}))
}
