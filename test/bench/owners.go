package main

import (
	"context"

	"github.com/relink-cni/relink/checkpoint/control/serve"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/owner"
)

const agentSocket = "/run/relink-bench/agent.sock"

// cached stands for an agent that knows the pod: it answers without asking the API.
type cached struct{}

func (cached) Ask(context.Context, owner.Question) (owner.Answer, error) {
	return owner.Answer{Lasts: true, Alone: true, Owner: attachment.Owner{
		Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: "web", UID: "7c1f9a52-3e4f-5a6b-7c8d-9e0f1a2b3c4d", Ordinal: attachment.OrdinalOf(0),
	}}, nil
}

func (cached) Fulfil(context.Context, owner.Fulfilment) error { return nil }

func (cached) Judge(context.Context, []attachment.Owner) []owner.Judgement { return nil }

// serveOwners serves the owners on the socket until end is called.
func serveOwners(path string) (end func(), err error) {
	listener, err := serve.Listen(path)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		_ = serve.Serve(ctx, listener, serve.Handler(nil, serve.Sources{Owners: cached{}}, nil))
		close(ended)
	}()
	return func() { cancel(); <-ended }, nil
}
