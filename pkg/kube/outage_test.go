package kube

import (
	"context"
	"log/slog"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// A watch that ends before its time shows that the API was away, even if the next one begins at once.
func TestWatchThatEndsEarly(t *testing.T) {
	for name, test := range map[string]struct {
		seconds int64
		end     func(*watch.FakeWatcher, watch.Interface, context.CancelFunc)
		want    bool
	}{
		"the API is killed":   {300, func(of *watch.FakeWatcher, _ watch.Interface, _ context.CancelFunc) { of.Stop() }, true},
		"its time is over":    {1, func(of *watch.FakeWatcher, _ watch.Interface, _ context.CancelFunc) { of.Stop() }, false},
		"nobody listens":      {300, func(_ *watch.FakeWatcher, heard watch.Interface, _ context.CancelFunc) { heard.Stop() }, false},
		"the agent ends":      {300, func(of *watch.FakeWatcher, _ watch.Interface, end context.CancelFunc) { end(); of.Stop() }, false},
		"stopped and stopped": {300, func(_ *watch.FakeWatcher, heard watch.Interface, _ context.CancelFunc) { heard.Stop(); heard.Stop() }, false},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		begun := make(chan struct{}, 1)
		o := outage{log: slog.New(slog.DiscardHandler), onBegin: func() { begun <- struct{}{} }}
		of := watch.NewFake()
		heard := o.detectEarlyEnd(ctx, of, metav1.ListOptions{TimeoutSeconds: &test.seconds})
		go of.Add(nil)
		if e := <-heard.ResultChan(); e.Type != watch.Added {
			t.Errorf("%s: the event is %v", name, e)
		}
		test.end(of, heard, cancel)
		for range heard.ResultChan() {
			t.Errorf("%s: an event after the end", name)
		}
		select { // It is told before the channel of the events is closed.
		case <-begun:
			if !test.want {
				t.Errorf("%s: it counts as an outage", name)
			}
		default:
			if test.want {
				t.Errorf("%s: nobody is told", name)
			}
		}
		cancel()
	}
}

// An API with an old etcd begins no watch with a list. It is not away.
func TestWatchThatBeginsWithAList(t *testing.T) {
	minute, yes := int64(60), true
	object := &metav1.PartialObjectMetadata{}
	added, bookmark := watch.Event{Type: watch.Added, Object: object}, watch.Event{Type: watch.Bookmark, Object: object}
	refused := watch.Event{Type: watch.Error, Object: &metav1.Status{Message: "the required storage feature RequestWatchProgress is disabled", Code: 500}}
	for name, test := range map[string]struct {
		events []watch.Event
		away   bool
	}{
		"it ends at once":           {[]watch.Event{refused}, false},
		"it ends within the list":   {[]watch.Event{added}, false},
		"it ends after the list":    {[]watch.Event{added, bookmark}, true},
		"it ends after the changes": {[]watch.Event{added, bookmark, added}, true},
	} {
		away := false
		o := outage{onBegin: func() { away = true }}
		of := watch.NewFakeWithChanSize(len(test.events), false)
		for _, e := range test.events {
			of.Action(e.Type, e.Object)
		}
		heard := o.detectEarlyEnd(t.Context(), of, metav1.ListOptions{TimeoutSeconds: &minute, SendInitialEvents: &yes})
		of.Stop()
		passed := 0
		for range heard.ResultChan() {
			passed++
		}
		if passed != len(test.events) || away != test.away {
			t.Errorf("%s: %d of %d events have passed, and it counts as an outage is %t", name, passed, len(test.events), away)
		}
	}
}
