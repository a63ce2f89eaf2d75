package cluster

import (
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// endOfPool changes a pool, and deletes it while pods have addresses. Nobody has to do anything on the nodes.
func (a *api) endOfPool(t *testing.T, users map[string]user) {
	all := a.members(t, users, "10.10.0.0/26")
	first := all[0].must(t, all[0].request(lease.Policy{}, ""))
	second := all[1].must(t, all[1].request(lease.Policy{}, ""))
	users["admin"].must(t, http.MethodPatch, pools+"/lan", m{"spec": m{"exclude": []string{"10.10.0.0/27"}, "routes": []m{{"dst": "0.0.0.0/0"}}}}, nil)
	excluded := netip.MustParsePrefix("10.10.0.0/27")
	await(t, 30*time.Second, "the nodes to hear of the change", func() bool {
		for _, n := range all[:2] {
			g, err := n.store.Granted(t.Context())
			if err != nil || len(g.Pools[0].Layout.Exclude) == 0 || len(g.Pools[0].Layout.Routes) == 0 {
				return false
			}
		}
		return true
	})
	for range 6 { // More than the node has besides.
		p := all[0].must(t, all[0].request(lease.Policy{}, ""))
		if excluded.Contains(p.address) {
			t.Errorf("%s is given, and it is excluded", p.address)
		}
		all[0].del(t, p)
	}

	users["admin"].must(t, http.MethodPatch, pools+"/lan", m{"metadata": m{"annotations": m{"ipam.relink.dev/delete": "lan"}}}, nil)
	users["admin"].must(t, http.MethodDelete, pools+"/lan", m{}, nil)
	keep := a.controller(t, users)
	look := func() {
		for _, n := range all {
			n.Reconcile(t.Context())
		}
		if err := keep.Reconcile(t.Context()); err != nil {
			t.Log(err)
		}
	}
	await(t, 20*time.Second, "the nodes to give back what no pod has", func() bool { look(); return len(a.blocksNow(t, users)) == 2 })
	all[0].del(t, first)
	await(t, 20*time.Second, "the first node to give back its last block", func() bool { look(); return len(a.blocksNow(t, users)) == 1 })
	users["admin"].must(t, http.MethodGet, pools+"/lan", nil, nil) // A pod still has one of its addresses.
	all[1].del(t, second)
	await(t, 20*time.Second, "the pool to go", func() bool {
		look()
		_, answer := users["admin"].send(t, http.MethodGet, pools+"/lan", nil)
		return answer.StatusCode == http.StatusNotFound
	})
}
