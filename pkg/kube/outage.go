package kube

import (
	"context"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"github.com/relink-cni/relink/pkg/kube/objects"
	"github.com/relink-cni/relink/pkg/printable"
)

// outage logs that the API stops answering, and that it answers again, each once.
type outage struct {
	log *slog.Logger
	// lostMessage and backMessage are the words for it.
	lostMessage, backMessage string
	// onBegin is called when the API stops answering, or ends a watch before its time, if it is not nil.
	onBegin func()

	mu sync.Mutex
	// away says that the last request has failed.
	away bool
}

// answered notes whether a request has failed.
func (o *outage) answered(err error) {
	o.mu.Lock()
	awayBefore := o.away
	o.away = err != nil
	o.mu.Unlock()
	switch {
	case err != nil && !awayBefore:
		o.log.Warn(o.lostMessage, "error", printable.Joined(err))
		if o.onBegin != nil {
			o.onBegin()
		}
	case err == nil && awayBefore:
		o.log.Info(o.backMessage)
	}
}

// start prepares an informer: trim leaves what counts of an object.
func (o *outage) start(informer cache.SharedIndexInformer, trim cache.TransformFunc) cache.SharedIndexInformer {
	// Both fail only after the informer has started.
	_ = informer.SetTransform(trim)
	_ = informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}) // answered has said it.
	return informer
}

// listing is a list of client-go in the form of an informer.
func listing[T runtime.Object](list func(context.Context, metav1.ListOptions) (T, error)) cache.ListWithContextFunc {
	return func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return list(ctx, options)
	}
}

// listWatch lists and watches the objects that selects selects, and notes what the API answers.
func (o *outage) listWatch(list cache.ListWithContextFunc, begin cache.WatchFuncWithContext, selects func(*metav1.ListOptions)) *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			ctx, cancel := context.WithTimeout(ctx, objects.Limit)
			defer cancel()
			selects(&options)
			found, err := list(ctx, options)
			o.answered(err)
			return found, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			selects(&options)
			events, err := begin(ctx, options)
			// An API older than Kubernetes 1.32 does not begin a watch with a list. client-go lists then.
			if options.SendInitialEvents == nil || !apierrors.IsInvalid(err) {
				o.answered(err)
			}
			if err == nil && o.onBegin != nil {
				events = o.detectEarlyEnd(ctx, events, options)
			}
			return events, err
		},
	}
}

// detectEarlyEnd calls onBegin if the watch ends before its time: the API was away, and may be back already. An API whose etcd is older than
// 3.4.31 or 3.5.13 ends each watch that is to begin with a list, before the list is over. client-go lists then: that request tells more.
func (o *outage) detectEarlyEnd(ctx context.Context, w watch.Interface, options metav1.ListOptions) watch.Interface {
	const imprecise = time.Second
	due := time.Now()
	if seconds := options.TimeoutSeconds; seconds != nil {
		due = due.Add(time.Duration(*seconds)*time.Second - imprecise)
	}
	lists := options.SendInitialEvents != nil // Until a bookmark ends the list with which the watch begins.
	events := make(chan watch.Event)
	heard := watch.NewProxyWatcher(events)
	go func() {
		defer close(events)
		defer w.Stop()
		for {
			select {
			case <-heard.StopChan():
				return
			case e, ok := <-w.ResultChan():
				if !ok {
					if !lists && ctx.Err() == nil && time.Now().Before(due) {
						o.onBegin()
					}
					return
				}
				lists = lists && e.Type != watch.Bookmark
				select {
				case events <- e:
				case <-heard.StopChan():
					return
				}
			}
		}
	}()
	return heard
}
