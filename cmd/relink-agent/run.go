package main

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/relink-cni/relink/checkpoint/agent"
	"github.com/relink-cni/relink/checkpoint/agent/metrics"
	"github.com/relink-cni/relink/checkpoint/agent/podevents"
	"github.com/relink-cni/relink/checkpoint/capture"
	"github.com/relink-cni/relink/checkpoint/control"
	"github.com/relink-cni/relink/checkpoint/control/serve"
	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/cnicache"
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
	opts.Observers = []func(agent.Event){exporter.Observe}
	sources := serve.Sources{Runtime: runtime}
	opts.Identities = capture.IdentitySources{Cache: &cnicache.Cache{Dir: cnicache.DefaultDir}, Runtime: runtime}
	opts.OnlyOwn = opts.record == recordOwn
	loops := useAPI(&opts, exporter, &sources, leases)
	var ready func() error
	opts.Ready, ready = newReadiness()
	a, err := agent.New(opts.Options)
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
	pages := newPages(a.Healthy, ready, exporter.Handler())
	if opts.metricsListen != "" {
		loops = append(loops, func(ctx context.Context) { servePages(ctx, opts.metricsListen, pages, opts.Log) })
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return a.Run(ctx) })
	group.Go(func() error {
		return serve.Serve(ctx, listener, serve.Handler(auditedAgent{a, audits}, sources, pages))
	})
	for _, loop := range loops {
		group.Go(func() error { loop(ctx); return nil })
	}
	return group.Wait()
}

// useAPI connects the agent with the Kubernetes API, if there is one, and returns what has to run for that.
func useAPI(opts *options, exporter *metrics.Metrics, sources *serve.Sources, leases string) []func(context.Context) {
	if opts.api == nil {
		return nil
	}
	recorder := kube.NewRecorder(opts.api, "relink-agent", nodeName(), opts.Log)
	owners, api := kube.NewOwners(opts.api, nodeName(), opts.Log), kube.NewPools(opts.api)
	conditions := kube.NewConditions(owners, opts.Log)
	exporter.RegisterResults(recorder.Counts, conditions.Counts)
	opts.Observers = append(opts.Observers, podevents.NewObserver(recorder), podevents.NewConditionObserver(conditions))
	opts.OnEmptyPod = func(pod attachment.Pod) { podevents.SetEmpty(conditions, pod) }
	opts.Identities.Networks = owners.NetworksOf
	pools := node.New(node.Config{
		API: api, Node: nodeName(), Dir: leases, Log: opts.Log,
		Watch: func(ctx context.Context, h pool.Handler) { api.Watch(ctx, nodeName(), opts.Log, h) },
	})
	exporter.RegisterNodeController(pools.LastAnswer)
	sources.Owners, sources.Pools = owners, exporter.MeasureRequests(pools)
	return []func(context.Context){recorder.Run, owners.Run, conditions.Run, pools.Run}
}
