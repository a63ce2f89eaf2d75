package kube

import (
	"context"
	"log/slog"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"github.com/relink-cni/relink/pkg/printable"
)

// outage logs that the API stops answering, and that it answers again, each once.
type outage struct {
	log *slog.Logger
	// gone and back are the words for it.
	gone, back string

	mu sync.Mutex
	// away says that the last request has failed.
	away bool
}

// answered notes whether a request has failed.
func (o *outage) answered(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err != nil && !o.away:
		o.log.Warn(o.gone, "error", printable.Joined(err))
	case err == nil && o.away:
		o.log.Info(o.back)
	}
	o.away = err != nil
}

// listWatch lists and watches the metadata of the objects that selects selects, and tells the outage what the API answers.
func (o *outage) listWatch(api metadata.ResourceInterface, selects func(*metav1.ListOptions)) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, requestLimit)
			defer cancel()
			selects(&options)
			list, err := api.List(ctx, options)
			o.answered(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			selects(&options)
			events, err := api.Watch(ctx, options)
			// An API older than Kubernetes 1.32 does not begin a watch with a list. client-go lists then.
			if options.SendInitialEvents == nil || !apierrors.IsInvalid(err) {
				o.answered(err)
			}
			return events, err
		},
	}
}
