package cluster

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/kube/objects"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/pool/fence"
)

// operator is a person with a certificate who has the role relink-operator.
func (a *api) operator(t *testing.T) user {
	t.Helper()
	a.create(t, where["ClusterRoleBinding"], m{
		"metadata": m{"name": "olga"}, "roleRef": m{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "relink-operator"},
		"subjects": []m{{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "olga"}},
	}, &struct{}{})
	return a.certified(t, "olga", "people")
}

// operatorConfig is the kubeconfig of the operator.
func (a *api) operatorConfig(t *testing.T) string {
	t.Helper()
	return a.config(t, "https://"+apiAddress, "olga.conf", fmt.Sprintf("{client-certificate: %s, client-key: %s}", a.path("olga.crt"), a.path("olga.key")))
}

// fenceBy calls kubectl relink fence in an environment that names a kubeconfig.
func fenceBy(t *testing.T, env string, args ...string) (said string, code int) {
	t.Helper()
	return kubectl(t, env, append([]string{"fence"}, args...)...)
}

// fencedByHand has people declare nodes dead, on a real API and with the rights that deploy/ has for them.
func (a *api) fencedByHand(t *testing.T, users map[string]user) {
	t.Run("its object is gone", func(t *testing.T) { a.fencedWithoutObject(t, users) })
	t.Run("it lives", func(t *testing.T) { a.fencedAlive(t, users) })
	t.Run("it has a new disk", func(t *testing.T) { a.fencedStore(t, users) })
}

// all starts pods until they have all addresses of had, each after a probe, and the node gets no more. No pod may get one of has.
func (m *member) all(t *testing.T, had, has map[netip.Addr]bool) {
	t.Helper()
	probed := 0
	for deadline := time.Now().Add(time.Minute); ; {
		p, err := m.add(t.Context(), m.request(lease.Policy{}, ""))
		switch {
		case err != nil && probed == len(had):
			return
		case err != nil && time.Now().After(deadline):
			t.Fatalf("%d addresses of the fenced store were given, it had %d: %v\n%s", probed, len(had), err, m.log.String())
		case err != nil:
			continue
		}
		if has[p.address] || had[p.address] && !p.probe {
			t.Fatalf("%s gives %s, with a probe: %t", m.name, p.address, p.probe)
		}
		if had[p.address] {
			probed++
		}
	}
}

// fill starts n pods, and returns them and their addresses.
func (m *member) fill(t *testing.T, n int) (pods []given, has map[netip.Addr]bool) {
	t.Helper()
	has = map[netip.Addr]bool{}
	for range n {
		p := m.must(t, m.request(lease.Policy{}, ""))
		pods, has[p.address] = append(pods, p), true
	}
	return pods, has
}

// The Node object is deleted. By a person's word others get the node's addresses, to be probed for. An agent cannot say it. When the node
// is back it gives none of them, and leaves its blocks when its last pod has ended.
func (a *api) fencedWithoutObject(t *testing.T, users map[string]user) {
	nodes := a.members(t, users, "10.12.0.0/27")
	dead, other := nodes[2], nodes[0]
	pods, had := dead.fill(t, 10)
	dead.end()
	users["admin"].must(t, http.MethodDelete, "/api/v1/nodes/node3", m{}, nil)
	agent := a.config(t, "https://"+apiAddress, "node1-by-hand.conf", fmt.Sprintf("{token: %q}", users["node1"].token))
	if said, code := fenceBy(t, "KUBECONFIG="+agent, "node3", "--yes"); code != 1 || !strings.Contains(said, "node node1 may not change AddressBlock lan-") || !strings.Contains(said, "the controller and people fence the holder") {
		t.Errorf("an agent fences: status %d\n%s", code, said)
	}
	for _, b := range a.blocksNow(t, users) {
		if len(b.FencedOffsets()) > 0 {
			t.Errorf("an agent has fenced: %+v", b.Status)
		}
	}
	said, code := fenceBy(t, "KUBECONFIG="+a.operatorConfig(t), "node3", "--yes", "--reason", "power is off")
	if code != 0 || !strings.Contains(said, " fenced\n") {
		t.Fatalf("status %d\n%s", code, said)
	}
	other.all(t, had, nil)
	for _, b := range a.blocksNow(t, users) {
		for _, h := range b.Status.Holders {
			if is := strings.HasPrefix(h.Fenced, "by hand: power is off, "); is != (h.Node == "node3") {
				t.Errorf("%s says of %s: %q", b.Metadata.Name, h.Node, h.Fenced)
			}
		}
	}
	a.comesBack(t, users, dead, pods)
	users["admin"].must(t, http.MethodPost, "/api/v1/nodes", m{"metadata": m{"name": "node3"}}, nil)
}

// comesBack starts the agent of a fenced node again.
func (a *api) comesBack(t *testing.T, users map[string]user, dead *member, pods []given) {
	t.Helper()
	back := a.again(t, users, dead)
	back.Reconcile(t.Context())
	a.within(t, users, back, "back")
	if want := "this node was declared dead, and pods still have addresses that others may have by now"; !strings.Contains(back.log.String(), want) {
		t.Errorf("its log does not say %s:\n%s", want, back.log.String())
	}
	if p, err := back.add(t.Context(), back.request(lease.Policy{}, "")); err == nil {
		t.Errorf("it gives %s, and others have all addresses", p.address)
	}
	holds := func() (n int) {
		for _, b := range a.blocksNow(t, users) {
			for _, h := range b.Status.Holders {
				if h.Node == dead.name {
					n++
				}
			}
		}
		return n
	}
	if holds() == 0 {
		t.Error("it has left blocks while its pods have their addresses")
	}
	for _, p := range pods {
		back.del(t, p)
	}
	await(t, 20*time.Second, "it to leave its blocks", func() bool { back.Reconcile(t.Context()); return holds() == 0 })
	a.within(t, users, back, "gone")
}

// A node that writes one of its blocks meanwhile is not fenced. What another node writes does not matter.
func (a *api) fencedAlive(t *testing.T, users map[string]user) {
	nodes := a.members(t, users, "10.13.0.0/27")
	alive, other := nodes[2], nodes[0]
	alive.fill(t, 6)
	alive.end()
	other.end()
	client, err := objects.ConnectAsPerson(a.operatorConfig(t), "", "relink", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	look := func() (fence.Plan, []pool.Block) {
		plan, err := fence.NewPlan(t.Context(), fence.Target{API: objects.NewPoolAPI(client), Node: "node3", Reason: "by hand: the test"})
		if err != nil {
			t.Fatal(err)
		}
		all, err := objects.NewPoolAPI(client).BlocksOf(t.Context(), "node3")
		if err != nil || len(all) < 2 {
			t.Fatalf("%d blocks, %v", len(all), err)
		}
		return plan, all
	}
	writes := func(who string, b pool.Block) {
		users[who].must(t, http.MethodPut, blocks+"/"+b.Metadata.Name, blockObject(b), nil)
	}
	plan, all := look()
	next, _ := all[0].Confirm(all[0].Status.Holders[0].Party, "boot-of-the-test")
	writes("node3", next)
	r := plan.Run(t.Context())
	if want := "the node lives: it has confirmed what it has of AddressBlock " + all[0].Metadata.Name; !strings.HasPrefix(r.Alive, want) || r.Count(fence.Skipped) != len(r.Parts) {
		t.Errorf("%+v, want %s", r, want)
	}
	for _, b := range a.blocksNow(t, users) {
		if len(b.FencedOffsets()) > 0 {
			t.Errorf("a node that lives is fenced: %+v", b.Status)
		}
	}
	plan, all = look()
	writes("node1", all[0].Request(pool.Want{Party: node1, Count: 1}))
	r = plan.Run(t.Context())
	if !r.Complete() || r.Count(fence.Fenced) != len(all) {
		t.Errorf("another node has asked meanwhile: %+v", r)
	}
	var now pool.Block
	users["admin"].must(t, http.MethodGet, blocks+"/"+all[0].Metadata.Name, nil, &now)
	if len(now.FencedOffsets()) == 0 || len(now.Status.Want) != 1 {
		t.Errorf("what another node asks for is lost, or nothing is fenced: %+v", now.Status)
	}
}

// The node has a new disk, and runs again. By its store, only what the old disk had is fenced.
func (a *api) fencedStore(t *testing.T, users map[string]user) {
	nodes := a.members(t, users, "10.14.0.0/27")
	old, other := nodes[2], nodes[0]
	_, had := old.fill(t, 6)
	old.end()
	renewed := a.member(t, "node3", users["node3"])
	_, has := renewed.fill(t, 6)
	was, err := old.store.Granted(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ready := func(status string) {
		users["admin"].must(t, http.MethodPatch, "/api/v1/nodes/node3/status", m{"status": m{"conditions": []m{{"type": "Ready", "status": status}}}}, nil)
	}
	ready("True")
	defer ready("Unknown")
	said, code := fenceBy(t, "KUBECONFIG="+a.operatorConfig(t), "node3", "--yes", "--store", was.ID)
	if want := "WARNING: node node3 is Ready: its kubelet has answered lately"; !strings.Contains(said, want) {
		t.Errorf("it does not say %s:\n%s", want, said)
	}
	is, err := renewed.store.Granted(t.Context())
	if err != nil || code != 0 || !strings.Contains(said, " fenced; not touched: store "+is.ID+"\n") {
		t.Fatalf("%v, status %d\n%s", err, code, said)
	}
	other.all(t, had, has)
	if err := os.Mkdir(a.path(".kube"), 0o700); err != nil {
		t.Fatal(err)
	}
	a.operatorConfig(t)
	if err := os.Rename(a.path("olga.conf"), a.path(".kube/config")); err != nil {
		t.Fatal(err)
	}
	if said, code := fenceBy(t, "HOME="+a.path(""), "node3", "--yes", "--store", was.ID); code != 0 || !strings.Contains(said, "others may take what node3 had: by hand: ") {
		t.Errorf("again, with the credentials in the home: status %d\n%s", code, said)
	}
	renewed.Reconcile(t.Context())
	a.within(t, users, renewed, "after the fence")
	for _, b := range a.blocksNow(t, users) {
		if h, holds := b.Holder(pool.Party{Node: "node3", Store: is.ID}); holds && h.Fenced != "" {
			t.Errorf("%s says that the new disk is dead: %+v", b.Metadata.Name, b.Status)
		}
	}
}
