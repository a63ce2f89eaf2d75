package cluster

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
)

// blocksInUse says that a person deletes a block with addresses of a node only after an annotation with its name. Agents are bound by
// another policy. Afterwards the binding is gone: other tests lose blocks.
func (a *api) blocksInUse(t *testing.T, users map[string]user) {
	const binding = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/relink-blocks-in-use"
	const hint = "another node could give them a second time. If no pod has any of them, annotate it first: kubectl annotate addressblock NAME ipam.relink.dev/delete=NAME"
	admin := users["admin"]
	all := []int{0, 1, 2, 3}
	for _, try := range []struct {
		name  string
		is    step
		by    string
		given string
		want  string
	}{
		{"a node has all", whole, "admin", "", "node node1 has addresses of AddressBlock NAME: " + hint},
		{"a node has one", gives(node1, all[1:]...), "admin", "", "node node1 has addresses of AddressBlock NAME: " + hint},
		{"a fenced node has one", then(gives(node1, all[1:]...), fenced(node1)), "admin", "", "node node1 has addresses of AddressBlock NAME: "},
		{"the annotation names another block", whole, "admin", "lan-7", "node node1 has addresses of AddressBlock NAME: "},
		{"nobody has any", gives(node1, all...), "admin", "", ""},
		{"the annotation names it", whole, "admin", "NAME", ""},
		{"its node deletes it", whole, "node1", "", ""},
	} {
		var now pool.Block
		admin.must(t, http.MethodPost, blocks, blockObject(try.is(taken(200, node1))), &now)
		at := blocks + "/" + now.Metadata.Name
		if given := ofBlock(try.given, now); given != "" {
			admin.must(t, http.MethodPatch, at, m{"metadata": m{"annotations": m{"ipam.relink.dev/delete": given}}}, nil)
		}
		said, answer := users[try.by].send(t, http.MethodDelete, at, m{})
		check(t, try.name, said, answer, http.StatusForbidden, ofBlock(try.want, now))
		if try.want == "" {
			continue
		}
		said, answer = admin.send(t, http.MethodDelete, blocks, m{})
		check(t, try.name+", and all blocks are deleted", said, answer, http.StatusForbidden, ofBlock(try.want, now))
		admin.must(t, http.MethodPatch, at, m{"metadata": m{"annotations": m{"ipam.relink.dev/delete": now.Metadata.Name}}}, nil)
		admin.must(t, http.MethodDelete, at, m{}, nil)
	}
	var now pool.Block
	admin.must(t, http.MethodPost, blocks, blockObject(taken(200, node1)), &now)
	admin.must(t, http.MethodDelete, binding, m{}, nil)
	await(t, 20*time.Second, "the end of the policy", func() bool {
		_, answer := admin.send(t, http.MethodDelete, blocks+"/"+now.Metadata.Name, m{})
		return answer.StatusCode < 300
	})
}

// poolsInUse says that a person deletes a pool of which nodes have addresses only after an annotation with its name.
func (a *api) poolsInUse(t *testing.T, users map[string]user) {
	admin := users["admin"]
	const refused = "nodes have addresses of AddressPool used: it would give nothing new, for ever. If it is to end, annotate it first: " +
		"kubectl annotate addresspool used ipam.relink.dev/delete=used"
	status := func(taken int64) m { return m{"blocks": 4, "taken": taken, "granted": taken, "observedGeneration": 1} }
	for _, try := range []struct {
		name, finalizer, annotation string
		status                      m
		want                        string
	}{
		{"a new one", "", "", nil, ""},
		{"nobody has counted, and a node may have taken something", pool.Finalizer, "", nil, refused},
		{"nodes have some", pool.Finalizer, "", status(1), refused},
		{"the annotation names another pool", pool.Finalizer, "lan", status(1), refused},
		{"the annotation names it", pool.Finalizer, "used", status(1), ""},
		{"nobody has any", pool.Finalizer, "", status(0), ""},
	} {
		p := lan()
		p.Metadata.Name, p.Metadata.Annotations = "used", map[string]string{"ipam.relink.dev/delete": try.annotation}
		if try.finalizer != "" {
			p.Metadata.Finalizers = []string{try.finalizer}
		}
		admin.must(t, http.MethodPost, pools, poolObject(p), nil)
		if try.status != nil {
			admin.must(t, http.MethodPatch, pools+"/used/status", m{"status": try.status}, nil)
		}
		said, answer := admin.send(t, http.MethodDelete, pools+"/used", m{})
		check(t, try.name, said, answer, http.StatusForbidden, try.want)
		if try.want == "" && try.finalizer != "" { // It waits for its end, and can be deleted again.
			admin.must(t, http.MethodDelete, pools+"/used", m{}, nil)
		}
		deletePool(t, admin, "used")
		await(t, 5*time.Second, "the end of the pool", func() bool {
			_, answer := admin.send(t, http.MethodGet, pools+"/used", nil)
			return answer.StatusCode == http.StatusNotFound
		})
	}
}

// elsewhere says that the policies bind an agent in any namespace, and that only who has the controller's rights is one.
func (a *api) elsewhere(t *testing.T, users map[string]user) {
	const bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	admin := users["admin"]
	as := func(account string) user {
		return user{&http.Client{Timeout: admin.http.Timeout, Transport: impersonates{admin.http.Transport, "system:serviceaccount:network:" + account}}, admin.token}
	}
	bind := func(account, role string) {
		admin.must(t, http.MethodPost, bindings, m{
			"metadata": m{"name": account + "-" + role}, "roleRef": m{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
			"subjects": []m{{"kind": "ServiceAccount", "name": account, "namespace": "network"}},
		}, nil)
	}
	p := lan()
	p.Metadata.Name, p.Metadata.Finalizers = "held", []string{pool.Finalizer}
	admin.must(t, http.MethodPost, pools, poolObject(p), nil)
	bind("relink-agent", "relink-agent-pools")
	bind("relink-controller", "relink-agent-pools") // It may change pools, and not count them.
	try := func(account string, want string) {
		t.Helper()
		await(t, 30*time.Second, account+" in another namespace: "+want, func() bool {
			said, answer := as(account).send(t, http.MethodPatch, pools+"/held?dryRun=All", m{"metadata": m{"finalizers": nil}})
			return want == "" && answer.StatusCode < 300 || want != "" && strings.Contains(said, want)
		})
	}
	try("relink-agent", "the user system:serviceaccount:network:relink-agent is of no node")
	try("relink-controller", "AddressPool held keeps its finalizer")
	bind("relink-controller", "relink-controller")
	try("relink-controller", "")
	for _, name := range []string{"relink-agent-relink-agent-pools", "relink-controller-relink-agent-pools", "relink-controller-relink-controller"} {
		admin.must(t, http.MethodDelete, bindings+"/"+name, m{}, nil)
	}
	deletePool(t, admin, "held")
}
