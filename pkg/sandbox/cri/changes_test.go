package cri

import (
	"context"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const patience = time.Minute

func awaitHint(t *testing.T, changed <-chan struct{}) {
	t.Helper()
	select {
	case <-changed:
	case <-time.After(patience):
		t.Fatal("no hint came")
	}
}

// A change gives a hint: also after a broken stream, and also after many events that nobody took.
func TestChangesHint(t *testing.T) {
	socket := socketIn(t)
	r := &runtime{events: make(chan *runtimeapi.ContainerEventResponse)}
	stop := serve(t, socket, r)
	changed := client(t, socket, listLimit).Changes(t.Context())
	event := &runtimeapi.ContainerEventResponse{ContainerId: readyID}
	r.events <- event
	awaitHint(t, changed)
	for range 10 {
		r.events <- event // The listener goes on while nobody takes its hints.
	}
	awaitHint(t, changed)

	stop()
	again := &runtime{events: make(chan *runtimeapi.ContainerEventResponse)}
	serve(t, socket, again)
	select {
	case again.events <- event:
	case <-time.After(patience):
		t.Fatal("it does not listen to the new runtime")
	}
	awaitHint(t, changed)
}

// A runtime without events gives no hints, and is asked once.
func TestChangesOfARuntimeWithoutEvents(t *testing.T) {
	socket := socketIn(t)
	serve(t, socket, &runtime{})
	c := client(t, socket, listLimit)
	changed := make(chan struct{}, 1)
	ended := make(chan struct{})
	go func() { c.watchEvents(t.Context(), changed); close(ended) }()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("it goes on asking")
	}
	if len(changed) != 0 {
		t.Error("a hint came")
	}
}

// It ends with its context, even while there is no runtime.
func TestChangesEnd(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	c := client(t, socketIn(t), listLimit)
	go func() { c.watchEvents(ctx, make(chan struct{}, 1)); close(ended) }()
	stop()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("it goes on")
	}
}
