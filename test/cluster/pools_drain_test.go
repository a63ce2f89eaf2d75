package cluster

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/ipam/lease"
)

// drained is a node that gives back all that no pod has: first a person drains it, and then its Node object is deleted while its agent runs. An
// owner gets its address on another node.
func (a *api) drained(t *testing.T, users map[string]user) {
	all := a.members(t, users, "10.52.0.0/27")
	one, other := all[0], all[1]
	var pods []given
	for range 3 {
		pods = append(pods, one.must(t, one.request(lease.Policy{}, "")))
	}
	web := one.mustOwn(t, "web-0")
	one.del(t, web)
	drain := func(code int, args ...string) string {
		t.Helper()
		said, ended := kubectl(t, "KUBECONFIG="+a.operatorConfig(t), append([]string{"drain", "node1"}, args...)...)
		if ended != code {
			t.Fatalf("kubectl relink drain node1 %s: status %d, want %d\n%s\n%s", strings.Join(args, " "), ended, code, said, one.log.String())
		}
		return said
	}
	said := drain(1, "--timeout", "5s")
	if !strings.Contains(said, "node1 still has 3 addresses") || !strings.Contains(said, pods[0].address.String()) || strings.Contains(said, web.address.String()) {
		t.Errorf("it says\n%s", said)
	}
	one.startsNone(t, "the node is drained")
	if moved := other.mustOwn(t, "web-0"); moved.address != web.address {
		t.Errorf("the owner has %s on the other node, and had %s", moved.address, web.address)
	}
	for _, p := range pods {
		one.del(t, p)
	}
	if said := drain(0); !strings.Contains(said, "node1 has no address of any pool") {
		t.Errorf("it says\n%s", said)
	}
	one.startsNone(t, "the node is drained")
	drain(0, "--undo")
	last := one.must(t, one.request(lease.Policy{}, ""))

	users["admin"].must(t, http.MethodDelete, "/api/v1/nodes/node1", m{}, nil)
	has := func(want ...netip.Addr) {
		t.Helper()
		await(t, 20*time.Second, "node1 to give back the rest", func() bool {
			var addresses []netip.Addr
			for _, b := range a.blocksNow(t, users) {
				addresses = append(addresses, b.AddressesOf("node1")...)
			}
			return len(addresses) == len(want) && (len(want) == 0 || addresses[0] == want[0])
		})
	}
	has(last.address)
	one.del(t, last)
	has()
	if said, code := kubectl(t, "KUBECONFIG="+a.operatorConfig(t), "drain", "node1"); code != 2 || !strings.Contains(said, "does not exist") {
		t.Errorf("a node that does not exist: status %d\n%s", code, said)
	}
	a.create(t, "/api/v1/nodes", m{"metadata": m{"name": "node1"}}, &struct{}{})
	one.must(t, one.request(lease.Policy{}, ""))
}

// startsNone waits until no pod starts on the node, for that reason.
func (m *member) startsNone(t *testing.T, want string) {
	t.Helper()
	await(t, 20*time.Second, "no pod to start", func() bool {
		p, err := m.add(t.Context(), m.request(lease.Policy{}, ""))
		if err == nil {
			m.del(t, p)
		}
		return err != nil && strings.Contains(err.Error(), want)
	})
}
