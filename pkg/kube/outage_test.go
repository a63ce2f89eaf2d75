package kube

import (
	"context"
	"log/slog"
	"testing"
	"time"

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
		o := outage{log: slog.New(slog.DiscardHandler), begins: func() { begun <- struct{}{} }}
		of := watch.NewFake()
		heard := o.endsEarly(ctx, of, &test.seconds)
		go of.Add(nil)
		if e := <-heard.ResultChan(); e.Type != watch.Added {
			t.Errorf("%s: the event is %v", name, e)
		}
		test.end(of, heard, cancel)
		for range heard.ResultChan() {
			t.Errorf("%s: an event after the end", name)
		}
		select {
		case <-begun:
			if !test.want {
				t.Errorf("%s: it counts as an outage", name)
			}
		case <-time.After(50 * time.Millisecond):
			if test.want {
				t.Errorf("%s: nobody is told", name)
			}
		}
		cancel()
	}
}
