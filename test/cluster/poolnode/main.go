// Command poolnode does what a node does with a shared pool: a test kills it at its steps. It is the plugin and the agent in one
// process.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/kube"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/pool/node"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := do(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "poolnode: %v\n", err)
		os.Exit(1)
	}
}

const network = "lan"

// member is the node that does the operations.
type member struct {
	*node.Controller
	store *lease.Store
}

// do does the operations: kubeconfig, node, directory of the stores, and then "look", "start=CONTAINER", "own=OWNER" and "end=CONTAINER". An ADD
// may fail.
func do(ctx context.Context, args []string) error {
	const first = 3
	if len(args) < first {
		return errors.New("kubeconfig, node and directory are missing")
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	client, err := kube.Connect(args[0], log)
	if err != nil {
		return err
	}
	n := member{node.New(node.Config{
		API: kube.NewPools(client), Node: args[1], Dir: args[2], Log: log, Surplus: time.Nanosecond, Settling: time.Nanosecond,
	}), nil}
	if n.store, err = lease.Open(args[2], network); err != nil {
		return err
	}
	for _, operation := range args[first:] {
		what, whom, _ := strings.Cut(operation, "=")
		switch what {
		case "look":
			n.Reconcile(ctx)
		case "start":
			n.start(ctx, whom, "")
		case "own":
			n.start(ctx, "of-"+whom, whom)
		case "end":
			err = n.end(ctx, whom)
		default:
			err = fmt.Errorf("%s is no operation", what)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// start is an ADD. With an owner, the pod has its owner's address.
func (n member) start(ctx context.Context, container, owner string) {
	const limit = 400 * time.Millisecond // Nobody answers meanwhile.
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	r := lease.Request{Attachment: attachment.Key{Network: network, ContainerID: container, IfName: "eth0"}, Pools: []string{network}, Probes: true}
	a := pool.Acquisition{Network: network, Pool: network, IfName: "eth0"}
	if owner != "" {
		a.Owner = attachment.Owner{Kind: attachment.OwnerPod, Namespace: "shop", Name: owner}
		r.Owner, r.Policy, r.QueriedPools = a.Owner, lease.Policy{Sticky: true}, r.Pools
		if _, err := n.Acquire(ctx, a); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
	}
	got, err := n.store.Allocate(ctx, r)
	if errors.Is(err, lease.ErrExhausted) || errors.Is(err, lease.ErrUnconfirmed) {
		if err = n.Refill(ctx, pool.Demand{Network: network, Pools: r.Pools, Probes: r.Probes}); err == nil {
			got, err = n.store.Allocate(ctx, r)
		}
	}
	if err == nil && owner != "" {
		if err = n.Claim(ctx, pool.ClaimedAddress{Acquisition: a, Address: got[0].Address}); err == nil {
			err = n.store.MarkClaimed(ctx, got[0].Address, a.Owner)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// end is a DEL.
func (n member) end(ctx context.Context, container string) error {
	err := n.store.Release(ctx, attachment.Key{Network: network, ContainerID: container, IfName: "eth0"}, lease.Policy{})
	if errors.Is(err, lease.ErrNotLeased) {
		return nil
	}
	return err
}
