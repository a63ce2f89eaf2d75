package main

import (
	"context"

	"github.com/relink-cni/relink/pkg/kube"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/pool/keeper"
)

// newPoolKeeper returns what keeps this node's part of address pools.
func newPoolKeeper(opts options, leases string) *keeper.Keeper {
	pools, node := kube.NewPools(opts.api), nodeName()
	return keeper.New(keeper.Options{
		API: pools, Node: node, Dir: leases, Log: opts.log,
		Watch: func(ctx context.Context, changes chan<- pool.Change) { pools.Watch(ctx, node, opts.log, changes) },
	})
}
