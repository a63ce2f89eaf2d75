package main

import (
	"context"
	"time"

	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/control/serve"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/owner"
)

const agentSocket = "/run/relink-bench/agent.sock"

// cached stands for an agent that knows the pod: it answers without asking the API.
type cached struct{}

func (cached) Ask(context.Context, owner.Question) (owner.Answer, error) {
	return owner.Answer{Persistent: true, SinglePod: true, Owner: attachment.Owner{
		Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: "web", UID: "7c1f9a52-3e4f-5a6b-7c8d-9e0f1a2b3c4d", Ordinal: attachment.OrdinalOf(0),
	}}, nil
}

func (cached) Fulfil(context.Context, owner.Fulfilment) error { return nil }

func (cached) Judge(_ context.Context, owners []attachment.Owner) (all []owner.Judgement) {
	for _, o := range owners {
		all = append(all, owner.Judgement{Owner: o, Standing: owner.Exists, Reason: "it is there", Cluster: "u-here"})
	}
	return all
}

// idle stands for the rest of an agent.
type idle struct{}

func (idle) Status() control.Status { return control.Status{} }

func (idle) Pause(context.Context, time.Duration, string) (control.Pause, error) {
	return control.Pause{}, nil
}

func (idle) Resume(context.Context) error { return nil }

// serveAgent serves what an agent says of owners and sandboxes on the socket until end is called.
func serveAgent(path string, says serve.Sources) (end func(), err error) {
	listener, err := serve.Listen(path)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		_ = serve.Serve(ctx, listener, serve.Handler(idle{}, says, nil))
		close(ended)
	}()
	return func() { cancel(); <-ended }, nil
}
