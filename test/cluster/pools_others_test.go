package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
)

// claimPolicy tries what agents do with claims, and what they never do.
func (a *api) claimPolicy(t *testing.T, users map[string]user) {
	at := func(p pool.Party) pool.Place { return pool.Place{Party: p, PodUID: "pod-2"} }
	moves := func(p pool.Party) func(*pool.ClaimStatus) {
		return func(s *pool.ClaimStatus) { s.Epoch, s.Active = s.Epoch+1, at(p) }
	}
	readdress := func(s *pool.ClaimStatus) { s.Address = netip.MustParseAddr("10.3.0.9") }
	same := func(*pool.ClaimStatus) {}
	for i, try := range []struct {
		name   string
		before func(*pool.ClaimStatus)
		by     string
		do     func(*pool.ClaimStatus)
		want   string
	}{
		{"the next pod on the node", same, "node1", func(s *pool.ClaimStatus) { s.Active = at(node1) }, ""},
		{"the next pod has another address", same, "node1", readdress, ""},
		{"a pod on another node", same, "node2", moves(node2), ""},
		{"the pod is gone", same, "node1", nil, ""},

		{"moves to another node", same, "node1", moves(node2), "node node1 may not change AddressClaim NAME: status.active.node is node1, and this node makes it its own only"},
		{"moves from another node to a third one", same, "node2", moves(node3), "and this node makes it its own only"},
		{"moves too far", same, "node2", func(s *pool.ClaimStatus) { s.Epoch, s.Active = s.Epoch+2, at(node2) }, "status.epoch grows by 1 at most"},
		{"changes another's pod", same, "node2", func(s *pool.ClaimStatus) { s.Active.PodUID = "pod-3" }, "and this node makes it its own only"},
		{"changes another's address", same, "node2", readdress, "status.address and status.retain belong to node node1"},
		{"changes another's time", same, "node2", func(s *pool.ClaimStatus) { s.Retain = "1s" }, "status.address and status.retain belong to node node1"},
		{"deletes another's", same, "node3", nil, "node node3 may not delete AddressClaim NAME: it is of node node1"},
	} {
		c := claimOf(node1, fmt.Sprintf("pod-%d", i))
		try.before(&c.Status)
		var now pool.Claim
		users["admin"].must(t, http.MethodPost, claims, claimObject(c), &now)
		for _, who := range []string{try.by + "'s unit", try.by} {
			dry := who != try.by
			method, object, query := http.MethodDelete, deletion(now.Metadata, dry), ""
			if try.do != nil {
				next := now
				try.do(&next.Status)
				method, object = http.MethodPut, claimObject(next)
			}
			if dry && try.do != nil {
				query = "?dryRun=All"
			}
			said, answer := users[who].send(t, method, claims+"/"+now.Metadata.Name+query, object)
			check(t, who+": "+try.name, said, answer, http.StatusForbidden, strings.ReplaceAll(try.want, "NAME", now.Metadata.Name))
		}
	}
	for _, try := range []struct {
		by   string
		new  pool.Claim
		want string
	}{
		{"node1", claimOf(node1, "new"), ""},
		{"node2", claimOf(node1, "new"), "status.active.node is node1, and a node makes claims of its own only"},
	} {
		said, answer := users[try.by].send(t, http.MethodPost, claims+"?dryRun=All", claimObject(try.new))
		check(t, try.by+" makes a claim", said, answer, http.StatusForbidden, try.want)
	}
}

// poolPolicy tries what agents do with pools, and what they never do.
func (a *api) poolPolicy(t *testing.T, users map[string]user) {
	// set writes fields of the pool. Those of the status have a request of their own.
	set := func(u user, fields m, query string) (string, *http.Response) {
		status, found := fields["status"]
		if !found {
			return u.send(t, http.MethodPatch, pools+"/lan"+query, fields)
		}
		var p m
		users["admin"].must(t, http.MethodGet, pools+"/lan", nil, &p)
		next, _ := p["status"].(map[string]any)
		if next == nil {
			next = m{}
		}
		maps.Copy(next, status.(m))
		p["status"] = next
		return u.send(t, http.MethodPut, pools+"/lan/status"+query, p)
	}
	recovery := func(r *pool.Recovery) m { return m{"status": m{"recovery": r}} }
	clean := func() {
		users["controller"].must(t, http.MethodPatch, pools+"/lan", m{"metadata": m{"finalizers": nil}}, nil)
		users["admin"].must(t, http.MethodPatch, pools+"/lan", m{"metadata": m{"annotations": nil}}, nil)
		users["admin"].must(t, http.MethodPatch, pools+"/lan/status", m{"status": m{"recovery": nil}}, nil)
	}
	begun := pool.Recovery{Message: `node node1: "lan-0" <older> \ ["asserted":`, Nodes: []string{"node1"}}
	asserted := func(r pool.Recovery, nodes ...string) *pool.Recovery {
		for _, n := range nodes {
			r, _ = r.WithAsserted(n)
		}
		return &r
	}
	finalizers := func(all ...string) m { return m{"metadata": m{"finalizers": all}} }
	written := recovery(&pool.Recovery{Message: "etcd was restored"})
	const (
		fields   = "an agent changes metadata.finalizers and status.recovery only"
		adds     = "an agent adds the finalizer ipam.relink.dev/blocks, and changes no other; the controller removes it"
		ends     = "the controller and people end a recovery"
		itself   = "a node adds itself only to status.recovery"
		held     = "example.org/hold"
		retained = pool.Finalizer
	)
	other := begun
	other.Message = "other"
	for _, try := range []struct {
		name         string
		before, done m
		want         string
	}{
		{"takes its first block", m{}, finalizers(retained), ""},
		{"keeps the others' finalizers", finalizers(held), finalizers(held, retained), ""},
		{"begins a recovery", m{}, recovery(&begun), ""},
		{"asserts first", recovery(&begun), recovery(asserted(begun, "node1")), ""},
		{"asserts after others", recovery(asserted(begun, "node3", "node2")), recovery(asserted(begun, "node3", "node2", "node1")), ""},
		{"asserts after empty values", m{"status": m{"recovery": m{"message": "", "nodes": []string{}, "asserted": []string{}}, "free": "", "conditions": []string{}, "sequence": 0, "updated": ""}},
			recovery(asserted(pool.Recovery{}, "node1")), ""},
		{"begins one after empty values", m{"status": m{"free": "", "conditions": []string{}, "sequence": 0, "updated": "", "observedGeneration": 0}}, recovery(&begun), ""},
		{"asserts twice", recovery(asserted(begun, "node1")), recovery(&pool.Recovery{Message: begun.Message, Nodes: begun.Nodes, Asserted: []string{"node1", "node1"}}), itself},
		{"asserts what a person has begun", written, recovery(asserted(pool.Recovery{Message: "etcd was restored"}, "node1")), ""},

		{"removes the finalizer", finalizers(retained), finalizers(), "node node1 may not change AddressPool lan: " + adds},
		{"adds another finalizer", m{}, finalizers(held), adds},
		{"removes another finalizer", finalizers(held), finalizers(retained), adds},
		{"ends a recovery", recovery(asserted(begun, "node1")), recovery(nil), ends},
		{"asserts for another", recovery(asserted(begun, "node3")), recovery(asserted(begun, "node3", "node2")), itself},
		{"asserts for all", recovery(&begun), recovery(asserted(begun, "node1", "node2")), itself},
		{"begins one for another node", m{}, recovery(&pool.Recovery{Message: "lost", Nodes: []string{"node2"}}), itself},
		{"takes back what another asserts", recovery(asserted(begun, "node2")), recovery(asserted(begun, "node1")), itself},
		{"changes the reason", recovery(&begun), recovery(asserted(other, "node1")), itself},
		{"begins one and asserts for another", m{}, recovery(asserted(begun, "node3")), itself},
		{"adds a node that knows of a loss", recovery(&begun), recovery(&pool.Recovery{Message: begun.Message, Nodes: []string{"node1", "node2"}}), itself},
		{"counts", m{}, m{"status": m{"granted": 9}}, fields},
		{"writes a newer status", m{}, m{"status": m{"sequence": 99}}, fields},
		{"says what holds", m{}, m{"status": m{"conditions": []m{{"type": "Ready", "status": "True", "reason": "Available", "message": "x", "lastTransitionTime": "2030-01-02T03:04:05Z"}}}}, fields},
		{"pauses it", m{}, m{"spec": m{"paused": true}}, fields},
		{"adds a label", m{}, m{"metadata": m{"labels": m{"a": "b"}}}, fields},
		{"adds an annotation", m{}, m{"metadata": m{"annotations": m{"a": "b"}}}, fields},
		{"changes an annotation", m{"metadata": m{"annotations": m{"a": "b"}}}, m{"metadata": m{"annotations": m{"a": "c"}}}, fields},
		{"removes an annotation", m{"metadata": m{"annotations": m{"a": "b"}}}, m{"metadata": m{"annotations": m{"a": nil}}}, fields},
		{"makes it another's", m{}, m{"metadata": m{"ownerReferences": []m{{"apiVersion": "v1", "kind": "Node", "name": "node1", "uid": "u"}}}}, fields},
	} {
		clean()
		if said, answer := set(users["admin"], try.before, ""); answer.StatusCode > 299 {
			t.Fatalf("%s: %s", try.name, said)
		}
		for _, who := range []string{"node1's unit", "node1"} {
			query := map[bool]string{true: "?dryRun=All"}[who != "node1"]
			said, answer := set(users[who], try.done, query)
			check(t, who+": "+try.name, said, answer, http.StatusForbidden, try.want)
		}
	}
	clean()
}

// finalizerPolicy shows that a person does not free the name and the addresses of a pool of which nodes have some.
func (a *api) finalizerPolicy(t *testing.T, users map[string]user) {
	admin := users["admin"]
	p := lan()
	p.Metadata.Name, p.Metadata.Finalizers = "kept", []string{pool.Finalizer}
	at := pools + "/kept"
	admin.must(t, http.MethodPost, pools, poolObject(p), &p)
	counted := func(taken, generation int64) {
		admin.must(t, http.MethodPatch, at+"/status", m{"status": m{"blocks": 4, "taken": taken, "granted": taken, "observedGeneration": generation}}, nil)
	}
	const (
		refused = "AddressPool kept keeps its finalizer: nodes have addresses in 2 blocks of it. Another pool could give these while pods have them. " +
			"kubectl relink pools kept names the nodes. When they have given back all, relink-controller removes the finalizer"
		lives     = "AddressPool kept keeps its finalizer: nodes can have addresses of it. Delete the pool: relink-controller removes the finalizer"
		uncounted = "AddressPool kept keeps its finalizer: relink-controller has not counted its blocks since it was deleted"
	)
	none, another := m{"metadata": m{"finalizers": nil}}, m{"metadata": m{"finalizers": []string{"example.org/hold"}}}
	try := func(name, who string, done m, want string) {
		t.Helper()
		said, answer := users[who].send(t, http.MethodPatch, at+"?dryRun=All", done)
		check(t, name, said, answer, http.StatusForbidden, want)
	}
	try("nobody has ever counted", "admin", none, lives)
	counted(2, p.Metadata.Generation)
	try("a person, with blocks", "admin", none, refused)
	try("a person who keeps another", "admin", another, refused)
	try("a person who changes the spec", "admin", m{"spec": m{"paused": true}}, "")
	try("the controller, which has just seen that there are none", "controller", none, "")
	counted(0, p.Metadata.Generation)
	try("a person, without blocks, of a pool that gives", "admin", none, lives)
	admin.must(t, http.MethodDelete, at, m{}, nil)
	try("nobody has counted since the end", "admin", none, uncounted)
	admin.must(t, http.MethodGet, at, nil, &p)
	counted(2, p.Metadata.Generation)
	try("with blocks, since the end", "admin", none, refused)
	counted(0, p.Metadata.Generation)
	try("without blocks, since the end", "admin", none, "")
	deletePool(t, admin, "kept")
}

// whoIsBound shows who must be on a node, that nobody adopts an object of all, and that the policies bind agents only.
func (a *api) whoIsBound(t *testing.T, users map[string]user) {
	const token = "the user system:serviceaccount:relink-system:relink-agent is of no node: use the token that Kubernetes mounts into the pod of the agent"
	for who, want := range map[string]string{"unbound": token, "stranger": "the user stranger is of no node: use the token", "node1": "", "node1's unit": ""} {
		for path, object := range map[string]m{blocks: blockObject(taken(1, node1)), claims: claimObject(claimOf(node1, "bound"))} {
			said, answer := users[who].send(t, http.MethodPost, path+"?dryRun=All", object)
			check(t, who, said, answer, http.StatusForbidden, want)
		}
		said, answer := users[who].send(t, http.MethodPatch, pools+"/lan?dryRun=All", m{"metadata": m{"finalizers": []string{pool.Finalizer}}})
		check(t, who, said, answer, http.StatusForbidden, want)
	}
	owned := m{"metadata": m{"ownerReferences": []m{{"apiVersion": "v1", "kind": "Node", "name": "node1", "uid": "u"}}}}
	held := m{"metadata": m{"finalizers": []string{"example.org/hold"}}}
	for path, object := range map[string]m{blocks: blockObject(taken(1, node1)), claims: claimObject(claimOf(node1, "bound"))} {
		at := path + "/" + object["metadata"].(m)["name"].(string)
		users["admin"].must(t, http.MethodPost, path, object, nil)
		for _, try := range []struct {
			change m
			want   string
		}{{owned, "metadata.ownerReferences would let Kubernetes delete it"}, {held, "metadata.finalizers stay as they are"}} {
			said, answer := users["node1"].send(t, http.MethodPatch, at+"?dryRun=All", try.change)
			check(t, at, said, answer, http.StatusForbidden, try.want)
			said, answer = users["admin"].send(t, http.MethodPatch, at+"?dryRun=All", try.change)
			check(t, at+" by the administrator", said, answer, http.StatusForbidden, "")
		}
		// What somebody else has written stays, or goes.
		users["admin"].must(t, http.MethodPatch, at, owned, nil)
		said, answer := users["node1"].send(t, http.MethodPatch, at+"?dryRun=All", m{"metadata": m{"ownerReferences": nil, "labels": m{"a": "b"}}})
		check(t, at, said, answer, http.StatusForbidden, "")
		users["admin"].must(t, http.MethodDelete, at, m{}, nil)
	}
	for name, made := range map[string]pool.Block{"of another node": taken(2, node2), "with a fence": fenced(node1)(taken(2, node1)), "with another's want": asks(pool.Want{Party: node2, Count: 1})(taken(2, node1)), "with another's holder": shared(taken(2, node1)), "in doubt": doubtsFirst(taken(2, node1))} {
		want := map[string]string{"of another node": "spec.node is node2, and a node makes blocks of its own only", "in doubt": "from a fenced holder, and puts it into unproven"}[name]
		if want == "" {
			want = "a new block has no holders and wants of other nodes, and no fence"
		}
		said, answer := users["node1"].send(t, http.MethodPost, blocks+"?dryRun=All", blockObject(made))
		check(t, "a new block "+name, said, answer, http.StatusForbidden, want)
	}
	// The controller fences.
	var now pool.Block
	users["node1"].must(t, http.MethodPost, blocks, blockObject(taken(2, node1)), &now)
	users["controller"].must(t, http.MethodPut, blocks+"/"+now.Metadata.Name, blockObject(fenced(node1)(now)), nil)
	users["admin"].must(t, http.MethodDelete, blocks+"/"+now.Metadata.Name, m{}, nil)
}

// withAllRights gives the agents all rights. The policies bind them as before.
func (a *api) withAllRights(t *testing.T, users map[string]user) {
	const all = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
	a.create(t, all, m{
		"metadata": m{"name": "all"}, "roleRef": m{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
		"subjects": []m{{"kind": "ServiceAccount", "name": "relink-agent", "namespace": "relink-system"}},
	}, &struct{}{})
	await(t, 30*time.Second, "the rights", func() bool { return users["node1"].can(t, "deletecollection", "addresspools") })
	p := lan()
	p.Metadata.Name = "own"
	for _, try := range []struct {
		method, path string
		object       m
		want         string
	}{
		{http.MethodPost, pools, poolObject(p), "node node1 may not make AddressPool own: people make and delete pools"},
		{http.MethodDelete, pools + "/lan", m{}, "node node1 may not delete AddressPool lan: people make and delete pools"},
		{http.MethodPatch, pools + "/lan/status", m{"status": m{"blocks": 1, "taken": 1, "granted": 1}}, "node node1 may not change AddressPool lan: an agent changes metadata.finalizers"},
	} {
		said, answer := users["node1"].send(t, try.method, try.path, try.object)
		check(t, try.method+" "+try.path, said, answer, http.StatusForbidden, try.want)
	}
	a.ask(t, http.MethodDelete, all+"/all", "", nil)
	await(t, 30*time.Second, "the loss of the rights", func() bool { return !users["node1"].can(t, "deletecollection", "addresspools") })
}

// selected finds objects by what the agents and the controller look for.
func (a *api) selected(t *testing.T) {
	admin := user{a.http, adminToken}
	admin.must(t, http.MethodPost, blocks, blockObject(taken(50, node1)), nil)
	admin.must(t, http.MethodPost, blocks, blockObject(taken(51, node2)), nil)
	one, two := claimOf(node1, "one"), claimOf(node2, "two")
	two.Status.Address = netip.MustParseAddr("10.3.0.6")
	admin.must(t, http.MethodPost, claims, claimObject(one), nil)
	admin.must(t, http.MethodPost, claims, claimObject(two), nil)
	for query, want := range map[string][]string{
		blocks + "?fieldSelector=spec.node=node2":                         {"lan-51"},
		blocks + "?fieldSelector=spec.pool=lan":                           {"lan-50", "lan-51"},
		blocks + "?fieldSelector=spec.pool=wan":                           nil,
		blocks + "?labelSelector=" + pool.NodeLabel("node1"):              {"lan-50"},
		claims + "?fieldSelector=status.address=10.3.0.6":                 {two.Metadata.Name},
		claims + "?fieldSelector=status.active.node=node1":                {one.Metadata.Name},
		claims + "?fieldSelector=spec.pool=lan,status.active.node!=node1": {two.Metadata.Name},
	} {
		var list struct {
			Items []struct {
				Metadata pool.Meta `json:"metadata"`
			} `json:"items"`
		}
		if err := json.Unmarshal(a.ask(t, http.MethodGet, query, "", nil), &list); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range list.Items {
			got = append(got, o.Metadata.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", query, got, want)
		}
	}
	for _, path := range []string{blocks + "/lan-50", blocks + "/lan-51", claims + "/" + one.Metadata.Name, claims + "/" + two.Metadata.Name} {
		admin.must(t, http.MethodDelete, path, m{}, nil)
	}
}
