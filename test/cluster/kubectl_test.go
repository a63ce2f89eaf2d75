package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/test/fresh"
	"github.com/relink-cni/relink/test/node"
)

// kubectl calls kubectl relink in an environment that names a kubeconfig: kubectl itself only finds the program by its name.
func kubectl(t *testing.T, env string, args ...string) (said string, code int) {
	t.Helper()
	cmd := exec.Command(filepath.Join(node.Bin, "kubectl-relink"), args...)
	cmd.Env = []string{env}
	out, err := cmd.CombinedOutput()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// adminConfig is the kubeconfig of the administrator.
func (a *api) adminConfig(t *testing.T) string {
	t.Helper()
	return a.config(t, "https://"+apiAddress, "admin.conf", fmt.Sprintf("{token: %q}", adminToken))
}

// viewer is a person with a certificate who has the ClusterRole relink-viewer.
func (a *api) viewer(t *testing.T) user {
	t.Helper()
	a.create(t, where["ClusterRoleBinding"], m{
		"metadata": m{"name": "vera"}, "roleRef": m{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "relink-viewer"},
		"subjects": []m{{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "vera"}},
	}, &struct{}{})
	return a.certified(t, "vera", "people")
}

// The verbs of kubectl relink, by a person with the rights that deploy/ has for them, on a real API.
func TestKubectl(t *testing.T) {
	fresh.Run(t, "", "ip link set lo up; ip address add 10.99.0.1/32 dev lo")
	a := startAPI(t)
	a.apply(t, "examples/pools")
	for _, name := range []string{"node1", "node2", "node3"} {
		a.create(t, "/api/v1/nodes", m{"metadata": m{"name": name}}, &struct{}{})
	}
	a.viewer(t)
	env := "KUBECONFIG=" + a.config(t, "https://"+apiAddress, "vera.conf", fmt.Sprintf("{client-certificate: %s, client-key: %s}", a.path("vera.crt"), a.path("vera.key")))
	// says runs it until the rights have come, and compares what it says.
	says := func(args string, code int, want string) {
		t.Helper()
		var said string
		var got int
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
			if said, got = kubectl(t, env, strings.Fields(args)...); got == code && said == want {
				return
			}
		}
		t.Errorf("kubectl relink %s: status %d\n%s\nwant %d\n%s", args, got, said, code, want)
	}
	t.Run("pools", func(t *testing.T) { a.poolVerbs(t, says) })
	t.Run("check", func(t *testing.T) { a.checkVerb(t, says) })
	t.Run("status", func(t *testing.T) { a.statusVerb(t, says) })
}

// poolVerbs asks about pools.
func (a *api) poolVerbs(t *testing.T, says func(args string, code int, want string)) {
	says("pools", 0, "relink: the cluster has no AddressPool\n")
	says("blocks lan", 2, "relink: get AddressPool lan: the Kubernetes API answers that it does not exist: addresspools.ipam.relink.dev \"lan\" not found\n")
	p := lan()
	p.Spec.Paused = true
	a.create(t, pools, poolObject(p), &p)
	a.merge(t, pools+"/lan/status", m{"status": m{"conditions": []m{{"type": "Ready", "status": "False", "reason": "Paused", "message": "spec.paused is true", "lastTransitionTime": "2030-01-01T00:00:00Z"}}}})
	b := taken(1, node1).HandOver(node1, []int{3}, node2)
	a.create(t, blocks, blockObject(b.Request(pool.Want{Party: node3, Count: 2})), &b)
	a.create(t, blocks, blockObject(taken(10, node2)), &struct{}{})
	says("pools", 0, "POOL  SUBNET       ADDRESSES  ON NODES  BLOCKS  TAKEN\nlan   10.3.0.0/16  -          0         0       0\nlan gives nothing new: spec.paused is true\n")
	says("pools lan", 0, "NODE   NETWORK  ADDRESSES  BLOCKS  FENCED  ASKS  BOOT\n"+
		fmt.Sprintf("node1  %s      3          1       -       -     boot-1\nnode2  %s      5          2       -       -     boot-1\nnode3  %s      0          0       -       2     -\n", node1.Network, node2.Network, node3.Network))
	says("blocks lan", 0, "BLOCK   ADDRESSES            NODES               FREE  ASKED\nlan-1   10.3.0.5-10.3.0.8    node1: 3, node2: 1  0     node3\nlan-10  10.3.0.41-10.3.0.44  node2: 4            0     -\n")
	says("show 10.3.0.8", 0, fmt.Sprintf("Address:  10.3.0.8\nPool:     lan\nBlock:    lan-1\nNode:     node2\nNetwork:  %s\nStore:    %s\nSince:    epoch 2 of the block, or before\nOwner:    nobody\n\n", node2.Network, node2.Store))
	says("show 10.9.0.1", 1, "relink: 10.9.0.1 is of no AddressPool\n")
	said, code := kubectl(t, "KUBECONFIG="+a.adminConfig(t), "blocks", "lan", "-o", "json")
	var all []pool.Block
	if err := json.Unmarshal([]byte(said), &all); err != nil || code != 0 || len(all) != 2 || all[1].Metadata.Name != "lan-10" {
		t.Errorf("status %d, %v\n%s", code, err, said)
	}
	if said, code := kubectl(t, "KUBECONFIG="+a.adminConfig(t), "__complete", "blocks", ""); code != 0 || !strings.HasPrefix(said, "lan\n:4\n") {
		t.Errorf("the pools are completed to\n%s", said)
	}
}

// checkVerb breaks what there is, and mends it by what the findings say.
func (a *api) checkVerb(t *testing.T, says func(args string, code int, want string)) {
	const well = "1 pool, 2 blocks, 0 claims, 3 nodes: "
	asks := "AddressBlock lan-1: useless request: node node3 asks for 2 addresses, and it is not Ready: no pod of it waits for that\n" +
		"  relink-agent of node3 withdraws it within minutes: see that it runs; if the machine is dead: kubectl relink fence node3\n"
	says("check", 1, asks+well+"1 finding\n")
	for _, name := range []string{"node1", "node2", "node3"} {
		a.merge(t, "/api/v1/nodes/"+name+"/status", m{"status": m{"conditions": []m{{"type": "Ready", "status": "True"}}}})
	}
	says("check", 0, well+"nothing is wrong\n")
	says("check -q", 0, "")

	set := attachment.Owner{Group: "apps", Kind: "StatefulSet", Namespace: "shop", Name: "none", UID: "11111111-2222-3333-4444-555555555555", Ordinal: attachment.OrdinalOf(0)}
	c := pool.Claim{Metadata: pool.Meta{Name: pool.ClaimName("lan", "eth0", set)}, Spec: pool.ClaimSpec{Pool: "lan", IfName: "eth0", Owner: set}, Status: claimOf(node1, "web").Status}
	a.create(t, claims, claimObject(c), &c)
	says("check", 1, "AddressClaim "+c.Metadata.Name+": no owner: 10.3.0.5 is the address of StatefulSet shop/none, ordinal 0, and the owner is gone: "+
		"the Kubernetes API answers that it does not exist: statefulsets.apps \"none\" not found\n"+
		"  relink-agent of node1 deletes it when it frees the address: relink gc --leases --dry-run says there when\n"+
		"1 pool, 2 blocks, 1 claim, 3 nodes: 1 finding\n")
	a.ask(t, http.MethodDelete, claims+"/"+c.Metadata.Name, "", nil)

	// Its node is gone. A person declares it dead, as the finding says.
	a.ask(t, http.MethodDelete, "/api/v1/nodes/node2", "", nil)
	says("check", 1, "node node2: no node: there is no such Node, and it has 5 addresses of lan-1, lan-10\n  switch the machine off, then: kubectl relink fence node2\n"+
		"1 pool, 2 blocks, 0 claims, 2 nodes: 1 finding\n")
	if said, code := kubectl(t, "KUBECONFIG="+a.adminConfig(t), "fence", "node2", "--yes", "--reason", "test"); code != 0 {
		t.Fatalf("status %d\n%s", code, said)
	}
	fenced := regexp.MustCompile(`^node node2: no node, fenced: there is no such Node, and it has 5 addresses of lan-1, lan-10. It is declared dead: by hand: test, \S+\n  others take these addresses, each after a probe. `)
	if said, code := kubectl(t, "KUBECONFIG="+a.adminConfig(t), "check"); code != 1 || !fenced.MatchString(said) {
		t.Errorf("status %d\n%s", code, said)
	}
	// A block of which only the dead node had something goes as the finding says.
	a.merge(t, blocks+"/lan-10", m{"metadata": m{"annotations": m{"ipam.relink.dev/delete": "lan-10"}}})
	a.ask(t, http.MethodDelete, blocks+"/lan-10", "", nil)
	if said, _ := kubectl(t, "KUBECONFIG="+a.adminConfig(t), "check"); !strings.Contains(said, "it has 1 address of lan-1. ") {
		t.Errorf("without lan-10:\n%s", said)
	}
	a.create(t, "/api/v1/nodes", m{"metadata": m{"name": "node2"}}, &struct{}{})
}

// agentPod makes the pod of the node's agent, as the DaemonSet has it, with an address.
func (a *api) agentPod(t *testing.T, name, node, ip string) {
	t.Helper()
	const path = "/api/v1/namespaces/relink-system/pods"
	a.create(t, path, m{"metadata": m{"name": name, "labels": m{"app.kubernetes.io/name": "relink-agent"}}, "spec": m{
		"nodeName": node, "serviceAccountName": "relink-agent", "hostNetwork": true,
		"containers": []m{{"name": "relink-agent", "image": "i", "ports": []m{{"name": "metrics", "containerPort": 9477, "hostPort": 9477}}}},
	}}, &struct{}{})
	a.merge(t, path+"/"+name+"/status", m{"status": m{"phase": "Running", "podIP": ip, "podIPs": []m{{"ip": ip}}, "conditions": []m{{"type": "Ready", "status": "True"}}}})
}

// statusVerb asks a real agent by the API server. Another agent does not answer, and a node has none.
func (a *api) statusVerb(t *testing.T, says func(args string, code int, want string)) {
	const forbidden = "relink: list pods: the Kubernetes API refuses: pods is forbidden: User \"vera\" cannot list resource \"pods\" in API group \"\" in the namespace \"relink-system\" (status 403)." +
		" This account needs the rule {apiGroups: [\"\"], resources: [\"pods\"], verbs: [\"list\"]}\n"
	says("status", 2, forbidden)
	a.create(t, where["RoleBinding"], m{
		"metadata": m{"name": "vera"}, "roleRef": m{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "relink-viewer"},
		"subjects": []m{{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "vera"}},
	}, &struct{}{})
	const none = "relink: no pod of relink-agent is in namespace relink-system: name the right one by --namespace; agents that are services of systemd answer only on their nodes\n"
	says("status", 2, none)
	const path = "/api/v1/namespaces/relink-system/pods"
	a.create(t, path, m{"metadata": m{"name": "anywhere", "labels": m{"app.kubernetes.io/name": "relink-agent"}}, "spec": m{"containers": []m{{"name": "relink-agent", "image": "i"}}}}, &struct{}{})
	says("status", 2, none)
	a.ask(t, http.MethodDelete, path+"/anywhere", `{"gracePeriodSeconds": 0}`, nil)
	a.create(t, path, m{"metadata": m{"name": "pending", "labels": m{"app.kubernetes.io/name": "relink-agent"}}, "spec": m{
		"containers": []m{{"name": "relink-agent", "image": "i"}}, "affinity": m{"nodeAffinity": m{"requiredDuringSchedulingIgnoredDuringExecution": m{
			"nodeSelectorTerms": []m{{"matchFields": []m{{"key": "metadata.name", "operator": "In", "values": []string{"node1"}}}}},
		}}},
	}}, &struct{}{})
	says("status -q", 1, "NODE   VERSION  INTERFACES  LOST  DRIFTED  STATE      WHY\n"+
		"node1  -        -           -     -        no answer  its pod waits for the scheduler\n")
	a.ask(t, http.MethodDelete, path+"/pending", `{"gracePeriodSeconds": 0}`, nil)
	a.agentPod(t, "relink-agent-a", "node1", "10.99.0.1")
	says("status -q", 1, "NODE   VERSION  INTERFACES  LOST  DRIFTED  STATE      WHY\n"+
		"node1  -        -           -     -        no answer  the Kubernetes API answers with an error: error trying to reach service: dial tcp 10.99.0.1:9477: connect: connection refused (status 503)\n")
	h := &host{Node: node.New(t)}
	h.log, _ = run(t, nil, filepath.Join(node.Bin, "relink-agent"), "--checkpoint-dir", h.Store.Dir(), "--metrics-listen", "10.99.0.1:9477", "--host-grace", "0s")
	const whole = "NODE   VERSION      INTERFACES  LOST  DRIFTED  STATE        WHY\nnode1  development  0           0     0        as recorded  -\n" +
		"node2  -            -           -     -        no agent     it has no pod of relink-agent\nnode3  -            -           -     -        no agent     it has no pod of relink-agent\n" +
		"3 nodes: 1 as recorded, 2 no agent; 0 interfaces\n"
	says("status", 0, whole)
	h.attach(t, 1, "web-1", "u1")
	attached := strings.NewReplacer("  0           0", "  1           0", "0 interfaces", "1 interface").Replace(whole)
	says("status", 0, attached)
	h.lose(t)
	says("status -q", 1, "NODE   VERSION      INTERFACES  LOST  DRIFTED  STATE    WHY\nnode1  development  1           1     0        differs  lan0 is lost\n")
	h.back(t)
	says("status", 0, attached)
}
