package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/inparallel"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/pool/controller"
	"github.com/relink-cni/relink/test/bench/results"
)

const (
	scalePool = "scale"
	// scaleStores has the nodes' stores: a thousand disks are not at hand.
	scaleStores = "/run/relink-bench/stores"
	// scaleAtOnce is how many pods a node starts at a time. More goroutines of one process would wait for each other.
	scaleAtOnce = 2
	// idleWindow is how long nodes are watched that have nothing to do.
	idleWindow = time.Minute
)

// scale is a cluster that is measured.
type scale struct {
	*server
	nodes []*poolNode
	row   results.PoolScale
	// stop ends the controller.
	stop    context.CancelFunc
	running sync.WaitGroup
}

// benchPoolScale starts 100 pods on each of so many nodes at once. Then all nodes are idle.
func benchPoolScale(s *server, nodes int) (results.PoolScale, error) {
	c := &scale{server: s, row: results.PoolScale{Nodes: nodes, Pods: nodes * podsOfNode}, stop: func() {}}
	back, err := moreInstances(nodes)
	if err != nil {
		return c.row, err
	}
	for _, step := range []func() error{c.start, c.fill, c.idle} {
		if err = step(); err != nil {
			break
		}
	}
	c.stop()
	endAll(c.nodes)
	c.running.Wait()
	return c.row, removeAll(scaleStores, errors.Join(err, back()))
}

// start starts all agents and the controller.
func (c *scale) start() error {
	nodes := c.row.Nodes
	// Twice as many addresses as pods need, as in a pool that is planned well.
	if err := c.createPool(scalePool, pool.Spec{Subnet: scaleSubnet(nodes), BlockSize: 16}); err != nil {
		return err
	}
	admin, err := c.asAdmin()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	c.stop = stop
	c.running.Go(func() {
		controller.New(controller.Config{API: admin, Log: c.log, Watch: func(ctx context.Context, changed func(string, bool)) controller.Cache {
			return admin.WatchAll(ctx, c.log, changed)
		}}).Run(ctx)
	})
	made := make([]error, nodes)
	inparallel.Do(8, nodes, func(i int) { made[i] = c.createNode(fmt.Sprintf("scale%d", i)) })
	if err := errors.Join(made...); err != nil {
		return err
	}
	for i := range nodes {
		n, err := c.startNode(fmt.Sprintf("scale%d", i), scaleStores)
		if err != nil {
			return err
		}
		c.nodes = append(c.nodes, n)
	}
	return settle(c.nodes)
}

// scaleSubnet returns a subnet with twice as many addresses as so many nodes need, or a little more.
func scaleSubnet(nodes int) string {
	bits := 32
	for 1<<(32-bits) < 2*nodes*podsOfNode {
		bits--
	}
	return fmt.Sprintf("10.0.0.0/%d", bits)
}

// moreInstances lets the kernel give each agent an inotify instance: all of them are one user here. back undoes it.
func moreInstances(nodes int) (back func() error, err error) {
	const path, besides = "/proc/sys/fs/inotify/max_user_instances", 256
	before, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	back = func() error { return os.WriteFile(path, before, 0o644) }
	var now int
	if _, err := fmt.Sscan(string(before), &now); err != nil || now >= nodes+besides {
		return back, err
	}
	return back, os.WriteFile(path, fmt.Append(nil, nodes+besides), 0o644)
}

// spent is what a cluster has cost for a time.
type spent struct {
	asked     requests
	api, etcd usage
}

// spend measures what the cluster costs while work is done. work returns what the API has been asked for up to its end.
func (c *scale) spend(work func() (requests, error)) (of spent, err error) {
	before, err := c.ofPools()
	if err != nil {
		return of, err
	}
	api, etcd, err := c.used()
	if err != nil {
		return of, err
	}
	after, err := work()
	if err != nil {
		return of, err
	}
	of.asked = after.since(before)
	if of.api, of.etcd, err = c.used(); err != nil {
		return of, err
	}
	of.api.cpu -= api.cpu
	of.etcd.cpu -= etcd.cpu
	return of, nil
}

// fill starts the pods, and waits until no agent changes anything any more.
func (c *scale) fill() error {
	if err := c.resetPeaks(); err != nil {
		return err
	}
	var o outcome
	of, err := c.spend(func() (_ requests, err error) {
		b := burst{nodes: len(c.nodes), podsOfNode: podsOfNode, atOnce: scaleAtOnce, pause: pauseOfRuntime, add: c.add}
		if o, err = b.run(); err != nil {
			return requests{}, err
		}
		return c.whenQuiet()
	})
	if err != nil {
		return err
	}
	r := &c.row
	r.Seconds, r.ADDs = o.took.Seconds(), o.adds
	r.Writes, r.Refused, r.Busy, r.Reads, r.Lists, r.Events = of.asked.writes, of.asked.refused, of.asked.busy, of.asked.reads, of.asked.lists, of.asked.events
	r.APICPU, r.EtcdCPU, r.APIMB, r.EtcdMB = of.api.cpu, of.etcd.cpu, of.api.peak, of.etcd.peak
	return c.holds(o.given)
}

// resetPeaks makes the kernel measure the peak memory of both servers anew.
func (c *scale) resetPeaks() error {
	var errs []error
	for _, pid := range []int{c.api.Process.Pid, c.etcd.Process.Pid} {
		errs = append(errs, os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0))
	}
	return errors.Join(errs...)
}

// add is what relink-ipam does at an ADD, without the process.
func (c *scale) add(node, pod int) (netip.Addr, error) {
	n := c.nodes[node]
	store, err := lease.Open(n.dir, network)
	if err != nil {
		return netip.Addr{}, err
	}
	r := lease.Request{Attachment: attachment.Key{Network: network, ContainerID: fmt.Sprintf("pod%d", pod), IfName: "eth0"}, Pools: []string{scalePool}}
	ctx := context.Background()
	given, err := store.Allocate(ctx, r)
	if errors.Is(err, lease.ErrExhausted) || errors.Is(err, lease.ErrUnconfirmed) {
		if wrong := n.keeper.Refill(ctx, pool.Demand{Network: network, Pools: r.Pools, Probes: r.Probes}); wrong != nil {
			return netip.Addr{}, fmt.Errorf("%w: %w", errAgain, wrong)
		}
		given, err = store.Allocate(ctx, r)
	}
	switch {
	case errors.Is(err, lease.ErrExhausted), errors.Is(err, lease.ErrUnconfirmed), errors.Is(err, lease.ErrBusy):
		return netip.Addr{}, fmt.Errorf("%w: %w", errAgain, err)
	case err != nil:
		return netip.Addr{}, err
	}
	return given[0].Address, nil
}

// holds returns an error unless the API says of each address that the pod's node has it.
func (c *scale) holds(given map[netip.Addr]int) error {
	admin, err := c.asAdmin()
	if err != nil {
		return err
	}
	blocks, err := admin.Blocks(context.Background(), scalePool)
	if err != nil {
		return err
	}
	c.row.Blocks = len(blocks)
	has := map[netip.Addr]string{}
	for _, b := range blocks {
		for i := range len(b.Status.Addresses) {
			if h, is := b.HolderOf(i); is {
				has[b.Address(i)] = h.Node
			}
		}
	}
	for a, node := range given {
		if name := c.nodes[node].name; has[a] != name {
			return fmt.Errorf("a pod of node %s has %s, and its AddressBlock says that %q has it", name, a, has[a])
		}
	}
	return nil
}

// idle measures what nodes cost that have nothing to do.
func (c *scale) idle() error {
	of, err := c.spend(func() (requests, error) {
		time.Sleep(idleWindow)
		return c.ofPools()
	})
	if err != nil {
		return err
	}
	minutes, nodes := idleWindow.Minutes(), float64(c.row.Nodes)
	r := &c.row
	r.IdleReads, r.IdleWrites = float64(of.asked.reads)/minutes/nodes, float64(of.asked.writes)/minutes
	r.IdleEvents, r.IdleWatches = float64(of.asked.events)/minutes/nodes, float64(of.asked.watches)/minutes/nodes
	r.IdleAPICPU, r.IdleEtcdCPU = of.api.cpu/idleWindow.Seconds(), of.etcd.cpu/idleWindow.Seconds()
	return nil
}

// loopbackUp sets the loopback device of the network namespace up.
func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(s) }()
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, r)
}
