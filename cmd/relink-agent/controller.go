package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/relink-cni/relink/checkpoint/agent/metrics"
	"github.com/relink-cni/relink/pkg/cniplugin"
	"github.com/relink-cni/relink/pkg/kube"
	"github.com/relink-cni/relink/pkg/kube/leader"
	"github.com/relink-cni/relink/pkg/pool/controller"
)

const (
	// namespaceEnv has the namespace of the Lease by which one controller works. The Deployment sets it.
	namespaceEnv = "POD_NAMESPACE"
	// podEnv has the name of the pod in which the controller runs. The Deployment sets it.
	podEnv = "POD_NAME"
	// defaultNamespace is where deploy/kubernetes puts relink.
	defaultNamespace = "relink-system"
	// leaseName is the name of that Lease.
	leaseName = "relink-controller"
)

// runController keeps the address pools until ctx ends, as long as this process leads.
func runController(ctx context.Context, opts options) error {
	identity, err := newIdentity()
	if err != nil {
		return err
	}
	election := leader.Election{Namespace: cmp.Or(os.Getenv(namespaceEnv), defaultNamespace), Name: leaseName, Identity: identity, Log: opts.Log}
	recorder := kube.NewRecorder(opts.api, leaseName, "", opts.Log)
	api := kube.NewPools(opts.api)
	pools := controller.New(controller.Config{
		API: api, Log: opts.Log, Event: recorder.RecordPool, Owners: kube.NewOwners(opts.api, "", opts.Log),
		Watch: func(ctx context.Context, changed func(string, bool)) controller.Cache {
			return api.WatchAll(ctx, opts.Log, changed)
		},
	})
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { recorder.Run(ctx); return nil })
	group.Go(func() error { return leader.Lead(ctx, opts.api, election, pools.Run) })
	if opts.metricsListen != "" {
		healthy := func() error { return nil }
		pages := newPages(healthy, healthy, metrics.ControllerHandler(cniplugin.Version, pools.Seen))
		group.Go(func() error { servePages(ctx, opts.metricsListen, pages, opts.Log); return nil })
	}
	return group.Wait()
}

// newIdentity returns a name for this process in the Lease. Two processes of one name would both lead, and several can run on one host.
func newIdentity() (string, error) {
	name := os.Getenv(podEnv)
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return "", err
		}
	}
	return name + "_" + rand.Text(), nil
}
