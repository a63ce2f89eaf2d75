package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/test/bench/results"
	"github.com/relink-cni/relink/test/fresh"
	"github.com/relink-cni/relink/test/kubeapi"
)

// poolCounts are how many of each thing the tables of pools have. pairs are runs of an ADD beside another one.
type poolCounts struct {
	pairs int
	// whereabouts is how many pods of Whereabouts start.
	whereabouts int
	// nodes are the sizes of clusters.
	nodes []int
}

// preparePools builds what others than relink need for the tables of pools.
func preparePools(bin string) error {
	if _, err := kubeapi.Prepare(context.Background()); err != nil {
		return err
	}
	return buildWhereabouts(bin)
}

// benchPools measures nodes that share a pool, on a real API server.
func benchPools(bin string, of poolCounts) (r results.Pools, err error) {
	if err := loopbackUp(); err != nil {
		return r, err
	}
	if err := fresh.Make(benchNetns); err != nil {
		return r, err
	}
	defer func() { _ = unix.Unmount(benchNetns, unix.MNT_DETACH) }()
	err = withServer(func(s *server) (err error) {
		if r.Burst, err = benchBursts(bin, s, of.whereabouts); err != nil {
			return err
		}
		r.Attach, err = benchPoolAttach(bin, s, of.pairs)
		return err
	})
	if err != nil {
		return r, err
	}
	for _, nodes := range of.nodes {
		err := withServer(func(s *server) error {
			row, err := benchPoolScale(s, nodes)
			fmt.Fprintf(os.Stderr, "%d nodes: %.1f s\n", nodes, row.Seconds)
			r.Scale = append(r.Scale, row)
			return err
		})
		if err != nil {
			return r, fmt.Errorf("%d nodes: %w", nodes, err)
		}
	}
	all := results.Results{Pools: r}
	fmt.Printf("A pool that %d nodes share\n\n%s\n%s\n%s\n%s\n", burstNodes, all.PoolBurstTable(), all.PoolAttachTable(), all.PoolScaleTable(), all.PoolIdleTable())
	return r, nil
}

const (
	burstNodes = 10
	podsOfNode = 100
	podsAtOnce = 10
	// pauseOfRuntime is how long a runtime waits here before it tries an ADD again. A kubelet waits for longer.
	pauseOfRuntime = time.Second
)

// poolWay is a way in which the pods of a burst get addresses.
type poolWay struct {
	name, plugin string
	// keys are those of "ipam" on the node.
	keys func(node int) string
	// pool is the pool that the nodes share, nil for none.
	pool *pool.Spec
	// cold says that the agents have not asked the API for anything before.
	cold bool
}

// poolWays are all but Whereabouts.
func poolWays() []poolWay {
	part := func(node int) string {
		return fmt.Sprintf(`"subnet": "10.32.0.0/16", "rangeStart": "10.32.%d.1", "rangeEnd": "10.32.%d.254"`, node+1, node+1)
	}
	ample := func(subnet string, blockSize int) *pool.Spec {
		return &pool.Spec{Subnet: subnet, Gateway: netip.MustParsePrefix(subnet).Addr().Next().String(), BlockSize: blockSize}
	}
	exact := ample("10.36.0.0/16", 16)
	exact.Ranges = []string{"10.36.1.0-10.36.4.231"}
	return []poolWay{
		{name: "host-local, a part of the range for each node", plugin: "host-local", keys: part},
		{name: "relink-ipam, a part of the range for each node", plugin: "relink-ipam", keys: part},
		{name: "relink-ipam, a pool with enough, blocks of 16", plugin: "relink-ipam", pool: ample("10.33.0.0/16", 16)},
		{name: "relink-ipam, a pool with enough, blocks of 32", plugin: "relink-ipam", pool: ample("10.34.0.0/16", 32)},
		{name: "the same, and the agents ask the API for the first time", plugin: "relink-ipam", pool: ample("10.35.0.0/16", 32), cold: true},
		{name: "relink-ipam, a pool with exactly as many as pods, blocks of 16", plugin: "relink-ipam", pool: exact},
	}
}

// benchBursts starts all pods of ten nodes at once, in each way.
func benchBursts(bin string, s *server, whereabouts int) (rows []results.PoolBurst, err error) {
	for i := range burstNodes {
		if err := s.createNode(fmt.Sprintf("burst%d", i)); err != nil {
			return nil, err
		}
	}
	for i, w := range poolWays() {
		row, err := w.measure(bin, s, i)
		if err != nil {
			return rows, fmt.Errorf("%s: %w", w.name, err)
		}
		rows = append(rows, row)
		fmt.Fprintf(os.Stderr, "%s: %.2f s\n", w.name, row.Seconds)
	}
	row, err := benchWhereabouts(bin, s, whereabouts)
	rows = append(rows, row)
	for i := range rows {
		rows[i].Ratio = rows[i].PodMS / rows[0].PodMS
	}
	return rows, err
}

// measure starts the pods in this way. number is another one for each way.
func (w poolWay) measure(bin string, s *server, number int) (row results.PoolBurst, err error) {
	dir, err := os.MkdirTemp("/var/tmp", "relink-bench-") // relink-ipam waits for the disk.
	if err != nil {
		return row, err
	}
	defer func() { err = removeAll(dir, err) }()
	var nodes []*poolNode
	defer func() { endAll(nodes) }()
	if w.pool != nil {
		name := fmt.Sprintf("pool%d", number)
		if err := s.createPool(name, *w.pool); err != nil {
			return row, err
		}
		w.keys = func(int) string { return fmt.Sprintf(`"pool": %q`, name) }
		if nodes, err = s.startNodes("burst", dir, burstNodes); err != nil {
			return row, err
		}
		if !w.cold {
			if err := settle(nodes); err != nil {
				return row, err
			}
		}
	}
	before, err := s.ofPools()
	if err != nil {
		return row, err
	}
	b := burst{nodes: burstNodes, podsOfNode: podsOfNode, atOnce: podsAtOnce, pause: pauseOfRuntime}
	b.add = func(node, pod int) (netip.Addr, error) {
		c := ipamCall{bin: bin, plugin: w.plugin, keys: w.keys(node), container: fmt.Sprintf("burst%d-%d", node, pod)}
		if w.pool == nil {
			c.keys += fmt.Sprintf(`, "dataDir": %q`, filepath.Join(dir, fmt.Sprint(node)))
		} else {
			c.env = nodes[node].env()
		}
		return c.add()
	}
	o, err := b.run()
	if err != nil {
		return row, err
	}
	after, err := s.whenQuiet()
	return o.row(w.name, after.since(before)), err
}

// row is the row of the table.
func (o outcome) row(who string, asked requests) results.PoolBurst {
	pods := len(o.given)
	return results.PoolBurst{
		Who: who, Pods: pods, Seconds: o.took.Seconds(), PodMS: o.took.Seconds() * 1000 / float64(pods), Add: spread(o.each),
		ADDs: o.adds, Writes: asked.writes, Refused: asked.refused, Reads: asked.reads,
	}
}
