package main

import (
	"context"

	"github.com/relink-cni/relink/pkg/kube"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/pool/node"
)

// newNodeController returns what keeps this node's part of address pools.
func newNodeController(opts options, leases string) *node.Controller {
	pools, name := kube.NewPools(opts.api), nodeName()
	return node.New(node.Config{
		API: pools, Node: name, Dir: leases, Log: opts.log,
		Watch: func(ctx context.Context, changes chan<- pool.Change) { pools.Watch(ctx, name, opts.log, changes) },
	})
}
