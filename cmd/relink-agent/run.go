package main

import (
	"context"
	"fmt"
	"net/http"

	"golang.org/x/sync/errgroup"

	"github.com/relink-cni/relink/checkpoint/agent"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/control/serve"
	"github.com/relink-cni/relink/pkg/cniplugin"
)

// run watches until the context ends.
func run(ctx context.Context, opts options) error {
	listener, err := serve.Listen(control.Socket())
	if err != nil {
		return err
	}
	ready := make(chan struct{})
	a, err := agent.New(agent.Options{
		Store: opts.store, HostGrace: opts.hostGrace, RebuildBond: opts.rebuildBond, Log: opts.log, Version: cniplugin.Version,
		Ready:    func() { close(ready); opts.supervisor.ready() },
		Alive:    opts.supervisor.alive,
		Patience: opts.supervisor.patience(),
	})
	if err != nil {
		_ = listener.Close()
		return err
	}
	defer a.Close()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.Run(ctx) })
	group.Go(func() error {
		return serve.Serve(ctx, listener, serve.Handler(a, map[string]http.Handler{
			"GET /healthz": answering(nil), "GET /readyz": answering(ready),
		}))
	})
	return group.Wait()
}

// answering answers with ok, and before the channel is closed with an error. A nil channel stands for a closed one.
func answering(ready <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if ready != nil {
			select {
			case <-ready:
			default:
				http.Error(w, "the first look is not over", http.StatusServiceUnavailable)
				return
			}
		}
		fmt.Fprintln(w, "ok")
	})
}
