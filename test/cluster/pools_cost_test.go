package cluster

import (
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/relink-cni/relink/pkg/inparallel"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/test/fresh"
)

// What 1,000 pods cost on 10 nodes that share a pool. Each node starts ten pods at a time.
func TestPoolCost(t *testing.T) {
	const nodes, podsOfNode, atOnce = 10, 100, 10
	fresh.Run(t, "", "ip link set lo up")
	a := startAPI(t)
	a.apply(t, "examples/pools")
	a.apply(t, "pools/nodes")
	users := a.poolUsers(t)
	a.ready(t, users)
	for i := range nodes {
		a.addNode(t, users, fmt.Sprintf("cost%d", i))
	}
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
			writes += m.Counts().Writes
			m.end()
		}
		t.Logf("%s (blocks of %d): %d pods in %.2f s, %d writes, %d ADDs", test.name, test.blockSize, len(had), took.Seconds(), writes, tries)
		if len(had) != nodes*podsOfNode {
			t.Errorf("%s: %d pods have an address", test.name, len(had))
		}
	}
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
