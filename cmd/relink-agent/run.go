package main

import (
	"context"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sync/errgroup"

	"github.com/relink-cni/relink/checkpoint/agent"
	"github.com/relink-cni/relink/checkpoint/agent/metrics"
	"github.com/relink-cni/relink/checkpoint/agent/podevents"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/control/serve"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/kube"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/pool/node"
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
	exporter := metrics.New(cniplugin.Version, leases)
	observers := []func(agent.Event){exporter.Observe}
	sources := serve.Sources{Runtime: runtime}
	var loops []func(context.Context)
	if opts.api != nil {
		recorder := kube.NewRecorder(opts.api, "relink-agent", nodeName(), opts.log)
		exporter.RegisterPodEvents(recorder.Counts)
		observers = append(observers, podevents.NewObserver(recorder))
		owners, api := kube.NewOwners(opts.api, nodeName(), opts.log), kube.NewPools(opts.api)
		pools := node.New(node.Config{
			API: api, Node: nodeName(), Dir: leases, Log: opts.log,
			Watch: func(ctx context.Context, changes chan<- pool.Change) { api.Watch(ctx, nodeName(), opts.log, changes) },
		})
		exporter.RegisterNodeController(pools.LastAnswer)
		sources.Owners, sources.Pools = owners, exporter.MeasureRequests(pools)
		loops = []func(context.Context){recorder.Run, owners.Run, pools.Run}
	}
	ready := make(chan struct{})
	a, err := agent.New(agent.Options{
		Store: opts.store, HostGrace: opts.hostGrace, RebuildBond: opts.rebuildBond, Log: opts.log, Version: cniplugin.Version,
		Ready:        func() { close(ready); notifySystemd(daemon.SdNotifyReady) }, // systemd starts what is ordered after the agent.
		Alive:        opts.supervisor.notifyWatchdog,
		LoopInterval: opts.supervisor.interval,
		Observers:    observers,
	})
	if err != nil {
		_ = listener.Close()
		return err
	}
	defer a.Close()
	exporter.RegisterAgent(a)
	audits := newAuditor(opts, sources)
	exporter.RegisterAudits(audits.Last, audits.Counts)
	if opts.auditEvery > 0 {
		loops = append(loops, audits.Run)
	}
	pages := newPages(a, ready, exporter)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.Run(ctx) })
	handler := serve.Handler(auditedAgent{a, audits}, sources, pages)
	group.Go(func() error { return serve.Serve(ctx, listener, handler) })
	for _, loop := range loops {
		group.Go(func() error { loop(ctx); return nil })
	}
	if opts.metricsListen != "" {
		group.Go(func() error { servePages(ctx, opts.metricsListen, pages, opts.log); return nil })
	}
	return group.Wait()
}
