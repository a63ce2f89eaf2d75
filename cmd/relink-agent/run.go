package main

import (
	"context"
	"net/http"

	"golang.org/x/sync/errgroup"

	"github.com/relink-cni/relink/checkpoint/agent"
	"github.com/relink-cni/relink/checkpoint/agent/metrics"
	"github.com/relink-cni/relink/checkpoint/agent/podevents"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/control/serve"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/kube"
	"github.com/relink-cni/relink/pkg/sandbox/cri"
)

// run watches until the context ends.
func run(ctx context.Context, opts options) error {
	leases, err := lease.Dir("")
	if err != nil {
		return err
	}
	listener, err := serve.Listen(control.Socket())
	if err != nil {
		return err
	}
	runtime, err := cri.New(opts.runtimeEndpoint)
	if err != nil {
		_ = listener.Close()
		return err
	}
	defer runtime.Close()
	numbers := metrics.New(cniplugin.Version, leases)
	observers := agent.Observers{numbers}
	sources := serve.Sources{Runtime: runtime}
	var keepers []func(context.Context)
	if opts.api != nil {
		recorder := kube.NewRecorder(opts.api, "relink-agent", nodeName(), opts.log)
		numbers.ShowPodEvents(recorder.Counts)
		observers = append(observers, podevents.To(recorder))
		owners, pools := kube.NewOwners(opts.api, nodeName(), opts.log), newPoolKeeper(opts, leases)
		numbers.ShowKeeper(pools)
		sources.Owners, sources.Pools = owners, numbers.Measure(pools)
		keepers = []func(context.Context){recorder.Run, owners.Run, pools.Run}
	}
	ready := make(chan struct{})
	a, err := agent.New(agent.Options{
		Store: opts.store, HostGrace: opts.hostGrace, RebuildBond: opts.rebuildBond, Log: opts.log, Version: cniplugin.Version,
		Ready:    func() { close(ready); opts.supervisor.ready() },
		Alive:    opts.supervisor.alive,
		Patience: opts.supervisor.patience(),
		Observer: observers,
		Runtime:  runtime,
	})
	if err != nil {
		_ = listener.Close()
		return err
	}
	defer a.Close()
	numbers.Show(a)
	audits := newKeeper(opts, sources)
	numbers.ShowAudits(audits)
	pages := map[string]http.Handler{
		"GET /healthz": answering(a.Healthy), "GET /readyz": answering(isReady(ready)), "GET /metrics": numbers.Handler(),
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.Run(ctx) })
	group.Go(func() error { return serve.Serve(ctx, listener, serve.Handler(audited{a, audits}, sources, pages)) })
	if opts.auditEvery > 0 {
		group.Go(func() error { audits.Run(ctx); return nil })
	}
	for _, keep := range keepers {
		group.Go(func() error { keep(ctx); return nil })
	}
	if opts.metricsListen != "" {
		group.Go(func() error { publish(ctx, opts.metricsListen, pages, opts.log); return nil })
	}
	return group.Wait()
}
