package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/test/bench/results"
	"github.com/relink-cni/relink/test/fresh"
)

// attachPool is the pool of the node on which ADDs are measured.
const attachPool = "attach"

// benchPoolAttach measures ADD and DEL on a node with pods already: with a part of a range and with a pool, in turn. Then it measures
// the part of them that the store takes, in this process.
func benchPoolAttach(bin string, s *server, pairs int) (rows []results.Attach, err error) {
	dir, err := os.MkdirTemp("/var/tmp", "relink-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = removeAll(dir, err) }()
	if err := s.createPool(attachPool, pool.Spec{Subnet: "10.37.0.0/16", Gateway: "10.37.0.1"}); err != nil {
		return nil, err
	}
	if err := s.createNode("attach0"); err != nil {
		return nil, err
	}
	nodes, err := s.startNodes("attach", dir, 1)
	defer func() { endAll(nodes) }()
	if err != nil {
		return nil, err
	}
	if err := settle(nodes); err != nil {
		return nil, err
	}
	ofRange := filepath.Join(dir, "range")
	own := &contender{name: "relink-macvlan, a range of the node's own", plugin: "relink-macvlan", ipam: "relink-ipam", network: network, dataDir: ofRange}
	shared := &contender{name: "relink-macvlan, a pool", plugin: "relink-macvlan", ipam: "relink-ipam", network: network, pool: attachPool, env: nodes[0].env()}
	if err := fillNode(bin, own, shared); err != nil {
		return nil, err
	}
	if err := inTurnAttach(bin, pairs, own, shared); err != nil {
		return nil, err
	}
	ownStore, sharedStore, err := benchStores(ofRange, nodes[0].dir, pairs)
	if err != nil {
		return nil, err
	}
	for _, two := range [][]*contender{{own, shared}, {ownStore, sharedStore}} {
		for _, c := range two {
			rows = append(rows, results.Attach{
				Who: c.name, Add: spread(c.add), AddRatio: ratio(c.add, two[0].add), Del: spread(c.del), DelRatio: ratio(c.del, two[0].del),
			})
		}
	}
	return rows, nil
}

// fillNode gives the node its pods.
func fillNode(bin string, own, shared *contender) error {
	for i := range podsOfNode {
		for _, c := range []*contender{own, shared} {
			keys := fmt.Sprintf(`"subnet": "10.9.0.0/16", "dataDir": %q`, c.dataDir)
			if c.pool != "" {
				keys = fmt.Sprintf(`"pool": %q`, c.pool)
			}
			call := ipamCall{bin: bin, plugin: "relink-ipam", keys: keys, env: c.env, container: fmt.Sprintf("before%d", i)}
			b := burst{nodes: 1, podsOfNode: 1, atOnce: 1, pause: pauseOfRuntime, add: func(int, int) (netip.Addr, error) { return call.add() }}
			if _, err := b.run(); err != nil {
				return err
			}
		}
	}
	return nil
}

// inTurnAttach runs pairs of both. The network namespace is one pod's.
func inTurnAttach(bin string, pairs int, both ...*contender) error {
	if err := (&node{perParent: 1, sandboxes: make([]sandbox, 1)}).parents(); err != nil {
		return err
	}
	const path = "/run/relink-bench/attach-pool"
	if err := fresh.Make(path); err != nil {
		return err
	}
	for i := range pairs {
		for j := range both {
			c := both[(i+j)%len(both)]
			if err := c.round(bin, path); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	return nil
}

// benchStores measures what ADDs and DELs do with the stores in these directories, in turn.
func benchStores(ofRange, ofPool string, pairs int) (own, shared *contender, err error) {
	subnet := netip.MustParsePrefix("10.9.0.0/16")
	gateway := subnet.Addr().Next()
	set := lease.RangeSet{{Span: lease.Span{First: gateway.Next(), Last: netip.MustParseAddr("10.9.255.254")}, Subnet: subnet, Gateway: gateway}}
	own, shared = &contender{name: "the store's part, a range"}, &contender{name: "the store's part, a pool"}
	for i := range pairs {
		for j := range 2 {
			c, dir, r := own, ofRange, lease.Request{Sets: []lease.RangeSet{set}}
			if (i+j)%2 == 1 {
				c, dir, r = shared, ofPool, lease.Request{Pools: []string{attachPool}}
			}
			r.Attachment = attachment.Key{Network: network, ContainerID: "store", IfName: "eth0"}
			if err := c.store(dir, r); err != nil {
				return own, shared, fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	return own, shared, nil
}

// store runs the store's part of an ADD and its DEL. Each is a process in reality, which opens the store.
func (c *contender) store(dir string, r lease.Request) error {
	timed := func(do func(*lease.Store) error) (time.Duration, error) {
		start := time.Now()
		store, err := lease.Open(dir, network)
		if err == nil {
			err = do(store)
		}
		return time.Since(start), err
	}
	add, err := timed(func(s *lease.Store) error {
		_, err := s.Allocate(context.Background(), r)
		return err
	})
	if err != nil {
		return err
	}
	del, err := timed(func(s *lease.Store) error {
		return s.Release(context.Background(), r.Attachment, lease.Policy{})
	})
	c.add, c.del = append(c.add, add), append(c.del, del)
	return err
}
