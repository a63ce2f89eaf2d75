package cluster

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/inparallel"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// What 1,000 pods cost on 10 nodes that share a pool. Each node starts ten pods at a time.
func TestPoolCost(t *testing.T) {
	const nodes, podsOfNode, atOnce = 10, 100, 10
	a, users := newPoolCluster(t)
	for i := range nodes {
		a.addNode(t, users, fmt.Sprintf("cost%d", i))
	}
	split(t, nodes, podsOfNode, atOnce)
	a.newPool(t, users, "10.31.0.0/16")
	one := a.member(t, "node1", users["node1"])
	one.perAdd(t, 100, 100)
	one.end()
	for _, test := range []struct {
		name, subnet string
		ranges       []string
		blockSize    int
	}{
		{"ample", "10.32.0.0/16", nil, 16},
		{"ample, larger blocks", "10.33.0.0/16", nil, 32},
		{"as many addresses as pods", "10.34.0.0/16", []string{"10.34.1.0-10.34.4.231"}, 16},
	} {
		a.newPool(t, users, "10.2.0.0/24")
		users["admin"].must(t, http.MethodDelete, pools+"/lan", m{}, nil)
		users["admin"].must(t, http.MethodPost, pools, poolObject(pool.Pool{
			Metadata: pool.Meta{Name: "lan"}, Spec: pool.Spec{Subnet: test.subnet, Ranges: test.ranges, Gateway: netip.MustParsePrefix(test.subnet).Addr().Next().String(), BlockSize: test.blockSize},
		}), nil)
		var all []*member
		for i := range nodes {
			name := fmt.Sprintf("cost%d", i)
			all = append(all, a.member(t, name, users[name]))
		}
		var mu sync.Mutex
		had, tries := map[netip.Addr]bool{}, 0
		start := time.Now()
		inparallel.Do(nodes*atOnce, nodes*podsOfNode, func(i int) {
			m := all[i%nodes]
			r := m.request(lease.Policy{}, "")
			for {
				p, err := m.add(t.Context(), r)
				mu.Lock()
				if tries++; err == nil {
					if had[p.address] {
						t.Errorf("%s: %s was given twice", test.name, p.address)
					}
					had[p.address] = true
				}
				mu.Unlock()
				if err == nil || t.Context().Err() != nil {
					return
				}
				time.Sleep(50 * time.Millisecond)
			}
		})
		took, writes := time.Since(start), 0
		for _, m := range all {
			writes += m.Writes()
			m.end()
		}
		t.Logf("%s (blocks of %d): %d pods in %.2f s, %d writes, %d ADDs", test.name, test.blockSize, len(had), took.Seconds(), writes, tries)
		if len(had) != nodes*podsOfNode {
			t.Errorf("%s: %d pods have an address", test.name, len(had))
		}
	}
}

// split is the same with a part of a range for each node, which needs no API.
func split(t *testing.T, nodes, podsOfNode, atOnce int) {
	t.Helper()
	dirs := make([]string, nodes)
	for i := range dirs {
		dirs[i] = t.TempDir()
	}
	start := time.Now()
	inparallel.Do(nodes*atOnce, nodes*podsOfNode, func(i int) {
		if _, err := addOfRange(t, dirs[i%nodes], fmt.Sprintf("c%d", i)); err != nil {
			t.Error(err)
		}
	})
	t.Logf("a part of a range for each node: %d pods in %.2f s", nodes*podsOfNode, time.Since(start).Seconds())
}

// addOfRange is an ADD on a node that has a range of its own.
func addOfRange(t *testing.T, dir, container string) ([]lease.Lease, error) {
	store, err := lease.Open(dir, "lan")
	if err != nil {
		return nil, err
	}
	first := netip.MustParseAddr("10.32.0.2")
	return store.Allocate(t.Context(), lease.Request{
		Attachment: attachment.Key{Network: "lan", ContainerID: container, IfName: "eth0"},
		Sets:       []lease.RangeSet{{{Span: lease.Span{First: first, Last: netip.MustParseAddr("10.32.255.254")}, Subnet: netip.MustParsePrefix("10.32.0.0/16"), Gateway: first.Prev()}}},
	})
}

// perAdd measures what the store's part of an ADD takes, with a pool and with a range, in turn. The node has pods already.
func (m *member) perAdd(t *testing.T, pods, runs int) {
	t.Helper()
	dir := t.TempDir()
	for i := range pods {
		m.must(t, m.request(lease.Policy{}, ""))
		if _, err := addOfRange(t, dir, fmt.Sprintf("before%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	var shared, own []time.Duration
	for i := range runs {
		m.must(t, m.request(lease.Policy{}, "")) // If the node has too little, it takes more now.
		start := time.Now()
		p, err := m.add(t.Context(), m.request(lease.Policy{}, ""))
		shared = append(shared, time.Since(start))
		if err != nil {
			t.Fatal(err)
		}
		m.del(t, p)
		start = time.Now()
		if _, err := addOfRange(t, dir, fmt.Sprintf("c%d", i)); err != nil {
			t.Fatal(err)
		}
		own = append(own, time.Since(start))
	}
	slices.Sort(shared)
	slices.Sort(own)
	a, b := shared[runs/2], own[runs/2]
	t.Logf("an ADD on a node with %d pods, median of %d: of a pool %s, of a range %s: %.2f times", pods, runs, a, b, float64(a)/float64(b))
}

// addNode makes a node and the user that its agent is.
func (a *api) addNode(t *testing.T, users map[string]user, name string) {
	t.Helper()
	a.create(t, "/api/v1/nodes", m{"metadata": m{"name": name}}, &struct{}{})
	var pod metav1.PartialObjectMetadata
	a.create(t, "/api/v1/namespaces/relink-system/pods", m{"metadata": m{"name": "relink-agent-" + name}, "spec": m{
		"nodeName": name, "serviceAccountName": "relink-agent", "containers": []m{{"name": "c", "image": "i"}},
	}}, &pod)
	users[name] = user{a.http, a.tokenOf(t, "relink-agent", m{"apiVersion": "v1", "kind": "Pod", "name": pod.Name, "uid": pod.UID})}
}
