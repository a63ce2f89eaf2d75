package cluster

import (
	"crypto/x509/pkix"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/relink-cni/relink/test/fresh"
)

// Pods with the readiness gate leave their EndpointSlices while they are cut off. The node shows it, too.
func TestConditions(t *testing.T) {
	fresh.Run(t, "", "ip link set lo up")
	a := startAPI(t)
	a.deploy(t)
	g := newGatedHost(t, a)
	for _, step := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"an endpoint goes and comes", g.endpoint}, {"no carrier", g.noCarrier}, {"the agent is killed", g.agentKilled}, {"the API is away", g.apiAway},
		{"nothing to record", g.nothingToRecord}, {"the watch is late", g.lateWatch}, {"a pod of the same name", g.recreated}, {"rights are left out", g.rightsLeftOut}, {"the kubelet's rights", g.kubeletsRights},
		{"250 pods", g.crowd},
	} {
		if !t.Run(step.name, step.do) {
			return
		}
	}
	g.host.stop(t)
}

func (g *gatedHost) endpoint(t *testing.T) {
	g.newPod(t, "gated", true)
	g.newPod(t, "plain", false)
	await(t, 30*time.Second, "the endpoint without the gate", func() bool { return slices.Equal(g.endpoints(t), []string{"plain"}) })
	g.nodeBecomes(t, corev1.ConditionFalse)
	if c := g.condition(t, "gated"); c.Status != "" {
		t.Errorf("nothing is recorded of the pod, and it has %+v", c)
	}
	g.attach(g.whole, 1, "gated", g.pods["gated"])
	g.attach(g.whole, 2, "plain", g.pods["plain"])
	await(t, 10*time.Second, "both endpoints", func() bool { return slices.Equal(g.endpoints(t), []string{"gated", "plain"}) })
	g.counted()
	for range 2 {
		g.lose(t)
		g.soon(t, "the endpoint leaves", "plain")
		if c := g.condition(t, "gated"); c.Reason != "InterfaceLost" || c.Message != "Network interface eth0 (network lan) is lost: lan0 has gone. It will be restored when the device is back" {
			t.Errorf("%+v", c)
		}
		g.nodeBecomes(t, corev1.ConditionTrue)
		if c := g.nodeCondition(t); c.Reason != "InterfacesLost" || c.Message != "2 network interfaces of pods are lost with what they were on: lan0 (2)" {
			t.Errorf("%+v", c)
		}
		time.Sleep(time.Second)
		g.back(t)
		g.soon(t, "the endpoint is back", "gated", "plain")
		if c := g.condition(t, "gated"); c.Reason != "InterfacesWhole" || time.Since(c.LastTransitionTime.Time) > 5*time.Second {
			t.Errorf("%+v", c)
		}
		g.nodeBecomes(t, corev1.ConditionFalse)
	}
	if pods, most, nodes := g.counted(); pods != 4 || most != 4 || nodes != 4 {
		t.Errorf("%d patches of pods, %d of one, and %d of the node; 4 were needed of each", pods, most, nodes)
	}
	if c := g.condition(t, "plain"); c.Status != "" {
		t.Errorf("a pod without the gate has %+v", c)
	}
}

// noCarrier has an interface that is restored, and whose addresses nobody can be told yet.
func (g *gatedHost) noCarrier(t *testing.T) {
	g.lose(t)
	g.becomes(t, corev1.ConditionFalse, "gated")
	g.says(t, "interfaces are restored", func() { fresh.Run(t, "", "ip link add lan0 type veth peer name lan1; ip link set lan0 up") })
	g.nodeBecomes(t, corev1.ConditionFalse)
	time.Sleep(time.Second)
	if c := g.condition(t, "gated"); c.Status != corev1.ConditionFalse {
		t.Errorf("without carrier: %+v", c)
	}
	fresh.IP(t, "", "link set lan1 up")
	g.soon(t, "the endpoint is back with the carrier", "gated", "plain")
	g.counted()
}

// kill ends the agent without warning.
func (g *gatedHost) kill(t *testing.T) {
	t.Helper()
	if err := g.end(syscall.SIGKILL); err == nil {
		t.Error("the agent has ended in order")
	}
}

func (g *gatedHost) agentKilled(t *testing.T) {
	g.kill(t)
	fresh.IP(t, "", "link del lan0")
	g.quiet(t, "without an agent")
	g.run()
	g.becomes(t, corev1.ConditionFalse, "gated")
	g.nodeBecomes(t, corev1.ConditionTrue)
	g.counted()
	since := g.condition(t, "gated").LastTransitionTime
	g.kill(t)
	g.quiet(t, "without an agent")
	g.run()
	g.quiet(t, "a new agent, with everything lost")
	if c := g.condition(t, "gated"); c.Status != corev1.ConditionFalse || c.LastTransitionTime != since {
		t.Errorf("%+v, since %s", c, since)
	}
	g.back(t)
	g.becomes(t, corev1.ConditionTrue, "gated")
	g.nodeBecomes(t, corev1.ConditionFalse)
	g.counted()
	g.host.stop(t)
	g.quiet(t, "an agent ends in order")
	g.run()
	g.quiet(t, "a new agent, with everything whole")
}

func (g *gatedHost) apiAway(t *testing.T) {
	away := func() {
		g.answers(func(*http.Request) http.HandlerFunc { return hangUp })
		g.CloseClientConnections()
	}
	away()
	g.lose(t)
	await(t, 10*time.Second, "a word in the log", func() bool { return strings.Contains(g.log.String(), "conditions wait") })
	g.answers(nil)
	g.becomes(t, corev1.ConditionFalse, "gated")
	g.nodeBecomes(t, corev1.ConditionTrue)
	away()
	g.back(t)
	time.Sleep(time.Second)
	g.lose(t)
	time.Sleep(time.Second)
	g.counted()
	g.answers(nil)
	time.Sleep(8 * time.Second)
	if pods, _, _ := g.counted(); pods > 0 {
		t.Errorf("the API has what it needs, and gets %d patches of pods", pods)
	}
	away()
	g.back(t)
	time.Sleep(time.Second)
	g.counted()
	g.answers(nil)
	g.becomes(t, corev1.ConditionTrue, "gated")
	if n := strings.Count(g.log.String(), "conditions wait"); n > 3 {
		t.Errorf("the log says %d times that the API is away", n)
	}
}

// lateWatch has a pod with the gate that the agent's watch shows after the pod's record.
func (g *gatedHost) lateWatch(t *testing.T) {
	release := g.hold()
	g.newPod(t, "late", true)
	g.attach(g.whole, 3, "late", g.pods["late"])
	time.Sleep(time.Second)
	if c := g.condition(t, "late"); c.Status != "" {
		t.Errorf("%+v", c)
	}
	release()
	g.becomes(t, corev1.ConditionTrue, "late")
}

// nothingToRecord has a pod without an interface on a device of the node: nothing is to be waited for once its ADD is over.
func (g *gatedHost) nothingToRecord(t *testing.T) {
	for _, dir := range []string{"/run/netns", "/var/lib/cni"} { // Those of the machine are not the node's.
		fresh.Run(t, "", fmt.Sprintf("mkdir -p %[1]s; mount -t tmpfs tmpfs %[1]s", dir))
		t.Cleanup(func() { fresh.Run(t, "", "umount -l "+dir) })
	}
	g.host.stop(t)
	g.run()
	g.newPod(t, "empty", true)
	const netns = "/run/netns/cni-empty"
	fresh.At(t, netns)
	fresh.Run(t, netns, "ip link add eth0 type veth peer name far")
	time.Sleep(3 * time.Second)
	if c := g.condition(t, "empty"); c.Status != "" {
		t.Errorf("its ADD may be under way, and it has %+v", c)
	}
	keep := func(dir, network, ifName string) string {
		result, err := json.Marshal(m{
			"kind": "cniCacheV1", "containerId": "empty", "ifName": ifName, "networkName": network, "netns": netns, "config": []byte("{}"), "result": m{"cniVersion": "1.0.0"},
			"cniArgs": [][]string{{"K8S_POD_NAMESPACE", "shop"}, {"K8S_POD_NAME", "empty"}, {"K8S_POD_UID", g.pods["empty"]}},
		})
		must(t, err)
		must(t, os.MkdirAll(dir, 0o700))
		path := filepath.Join(dir, network+"-empty-"+ifName)
		must(t, os.WriteFile(path, result, 0o600))
		return path
	}
	torn := "/var/lib/cni/multus/results/lan-empty-net1"
	keep("/var/lib/cni/multus/results", "podnet", "eth0")
	must(t, os.WriteFile(torn, []byte(`{"kind`), 0o600))
	keep("/var/lib/cni/results", "podnet", "eth0")
	time.Sleep(3 * time.Second)
	if c := g.condition(t, "empty"); c.Status != "" {
		t.Errorf("a cache may name an interface that is not there, and it has %+v", c)
	}
	must(t, os.Remove(torn))
	g.becomes(t, corev1.ConditionTrue, "empty")
	if c := g.condition(t, "empty"); c.Reason != "NothingRecorded" {
		t.Errorf("%+v", c)
	}

	// It gets an interface, which is detached while it is lost.
	fresh.Run(t, "", "ip link add net1 link lan0 netns cni-empty type macvlan && ip -n cni-empty link set net1 up && ip -n cni-empty addr add 10.8.0.9/24 dev net1")
	net1 := keep("/var/lib/cni/multus/results", "lan", "net1")
	await(t, 20*time.Second, "its checkpoint", func() bool { _, err := g.Store.Load("empty", "net1"); return err == nil })
	g.lose(t)
	g.becomes(t, corev1.ConditionFalse, "empty")
	must(t, os.Remove(net1))
	g.back(t)
	g.becomes(t, corev1.ConditionTrue, "empty")
	g.ask(t, http.MethodDelete, "/api/v1/namespaces/shop/pods/empty?gracePeriodSeconds=0", "", nil)
	g.counted()
}

// recreated has a new pod under the name of one that still has a checkpoint. The watch shows the old one for longer.
func (g *gatedHost) recreated(t *testing.T) {
	g.shows(t, made{name: "late", uid: "late"})
	release := g.hold()
	g.ask(t, http.MethodDelete, "/api/v1/namespaces/shop/pods/late?gracePeriodSeconds=0", "", nil)
	g.newPod(t, "late", true)
	g.lose(t)
	await(t, 10*time.Second, "a patch of the old pod", func() bool { return g.metric(t, `relink_condition_patches_total{result="gone"}`) == "1" })
	release()
	g.becomes(t, corev1.ConditionFalse, "gated")
	g.back(t)
	g.becomes(t, corev1.ConditionTrue, "gated")
	time.Sleep(time.Second)
	if c := g.condition(t, "late"); c.Status != "" {
		t.Errorf("the new pod has the condition of the old one: %+v", c)
	}
	g.attach(g.whole, 4, "late", g.pods["late"])
	g.becomes(t, corev1.ConditionTrue, "late")
}

func (g *gatedHost) rightsLeftOut(t *testing.T) {
	role := where["ClusterRoleBinding"] + "/relink-agent-conditions"
	g.ask(t, http.MethodDelete, role, "", nil)
	agent := user{g.http, g.token(t)}
	await(t, 30*time.Second, "the authorizer to hear of it", func() bool { return !agent.can(t, "patch", "pods/status") })
	g.counted()
	g.lose(t)
	time.Sleep(4 * time.Second)
	if pods, _, nodes := g.counted(); pods == 0 || pods > 20 || nodes > 0 {
		t.Errorf("%d patches of pods and %d of the node are refused", pods, nodes)
	}
	g.back(t)
	for _, line := range []string{"the Kubernetes API refuses conditions of pods", "the Kubernetes API refuses conditions of the node"} {
		if n := strings.Count(g.log.String(), line); n != 1 {
			t.Errorf("the log says %d times that %s", n, line)
		}
	}
	g.lose(t)
	g.deploy(t)
	g.becomes(t, corev1.ConditionFalse, "gated", "late")
	g.back(t)
	g.becomes(t, corev1.ConditionTrue, "gated", "late")
}

// kubeletsRights has an agent with the credentials of the node, as a unit of systemd has them.
func (g *gatedHost) kubeletsRights(t *testing.T) {
	g.host.stop(t)
	g.keys.issue(t, "kubelet", pkix.Name{CommonName: "system:node:node1", Organization: []string{"system:nodes"}})
	g.host.start(g.whole, []string{"NODE_NAME=node1"}, "--kubeconfig", kubeconfig(t, g.api))
	g.lose(t)
	g.becomes(t, corev1.ConditionFalse, "gated", "late")
	g.nodeBecomes(t, corev1.ConditionTrue)
	g.back(t)
	g.becomes(t, corev1.ConditionTrue, "gated", "late")
	g.nodeBecomes(t, corev1.ConditionFalse)
	g.host.stop(t)
	g.run()
}

// crowd has 250 pods that are lost at once, an API that is slow, and a NIC that comes and goes.
func (g *gatedHost) crowd(t *testing.T) {
	const crowd, losses = 250, 20
	names := []string{"gated", "late"}
	for i := range crowd - len(names) {
		name := fmt.Sprintf("crowd-%d", i)
		g.newPod(t, name, true)
		g.attach(g.whole, 10+i, name, g.pods[name])
		names = append(names, name)
	}
	g.becomes(t, corev1.ConditionTrue, names...)
	await(t, 30*time.Second, "the endpoints", func() bool { return len(g.endpoints(t)) == crowd+1 })
	settle := func(what string, want corev1.ConditionStatus, most int) {
		t.Helper()
		began := time.Now()
		g.becomes(t, want, names...)
		took := time.Since(began)
		time.Sleep(time.Second)
		pods, ofOne, nodes := g.counted()
		t.Logf("%s: %d patches of pods, at most %d of one, %d of the node, in %s", what, pods, ofOne, nodes, took.Round(10*time.Millisecond))
		if pods > most || nodes > 2*losses {
			t.Errorf("%s: %d patches of pods, want %d at most", what, pods, most)
		}
	}
	time.Sleep(time.Second)
	g.counted()
	g.lose(t)
	settle("all are lost", corev1.ConditionFalse, crowd)
	g.back(t)
	settle("all are back", corev1.ConditionTrue, crowd)
	g.answers(func(r *http.Request) http.HandlerFunc {
		if r.Method == http.MethodPatch {
			time.Sleep(300 * time.Millisecond)
		}
		return nil
	})
	g.lose(t)
	time.Sleep(2 * time.Second)
	g.back(t)
	settle("back while the API is slow", corev1.ConditionTrue, 2*crowd)
	g.answers(nil)
	for range losses {
		fresh.Run(t, "", "ip link del lan0; sleep 0.4; ip link add lan0 type veth peer name lan1; ip link set lan0 up; ip link set lan1 up; sleep 0.4")
	}
	settle("losses in a row", corev1.ConditionTrue, 8*crowd)
}
