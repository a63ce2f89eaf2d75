package cluster

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/relink-cni/relink/pkg/kube"
	"github.com/relink-cni/relink/test/node"
)

// gatedHost is a node whose agent asks the API by a proxy, which counts the patches of conditions by their paths.
type gatedHost struct {
	*host
	*api
	*proxy
	config string
	// pods are the UIDs of the pods by their names.
	pods map[string]string

	mu      sync.Mutex
	patches map[string]int
}

func newGatedHost(t *testing.T, a *api) *gatedHost {
	g := &gatedHost{host: &host{Node: node.New(t)}, api: a, proxy: newProxy(t, a), pods: map[string]string{}, patches: map[string]int{}}
	a.create(t, "/api/v1/namespaces", m{"metadata": m{"name": "shop"}}, &struct{}{})
	a.create(t, "/api/v1/nodes", m{"metadata": m{"name": "node1"}}, &struct{}{})
	a.create(t, "/api/v1/namespaces/shop/services", m{"metadata": m{"name": "web"}, "spec": m{"selector": m{"app": "web"}, "ports": []m{{"port": 80}}}}, &struct{}{})
	admin := a.config(t, "https://"+apiAddress, "controllers.conf", "{token: "+adminToken+"}")
	run(t, nil, a.ControllerManager, "--kubeconfig="+admin, "--controllers=endpointslice-controller", "--leader-elect=false", "--secure-port=0")
	go g.actAsKubelet(t)
	g.config = a.config(t, g.URL, "agent.conf", "{token: "+a.token(t)+"}")
	g.answers(nil)
	g.run()
	return g
}

// run starts the agent. It runs to the end of the whole test.
func (g *gatedHost) run() {
	g.host.start(g.whole, []string{"NODE_NAME=node1"}, "--kubeconfig", g.config)
}

// answers counts each patch of a condition, and has the rule answer requests. A rule that is nil answers nothing.
func (g *gatedHost) answers(rule func(*http.Request) http.HandlerFunc) {
	g.answer(g.whole, func(r *http.Request) http.HandlerFunc {
		if r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/status") {
			g.mu.Lock()
			g.patches[r.URL.Path]++
			g.mu.Unlock()
		}
		if rule == nil {
			return nil
		}
		return rule(r)
	})
}

// counted returns the number of patches since the last call: of all pods, of the pod with the most, and of the node.
func (g *gatedHost) counted() (pods, most, nodes int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for path, n := range g.patches {
		if strings.HasPrefix(path, "/api/v1/nodes/") {
			nodes += n
			continue
		}
		pods, most = pods+n, max(most, n)
	}
	clear(g.patches)
	return pods, most, nodes
}

// actAsKubelet sets the condition Ready of each pod as a kubelet does whose probes succeed: a pod is ready if all of its readiness gates have
// the status True (GenerateReadyCondition in pkg/kubelet/status of Kubernetes).
func (g *gatedHost) actAsKubelet(t *testing.T) {
	client := http.Client{Transport: g.http.Transport}
	for t.Context().Err() == nil {
		r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+apiAddress+"/api/v1/pods?watch=true", nil)
		r.Header.Set("Authorization", "Bearer "+adminToken)
		res, err := client.Do(r)
		if err != nil {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		for events := json.NewDecoder(res.Body); ; {
			var e struct{ Object corev1.Pod }
			if err := events.Decode(&e); err != nil {
				break
			}
			g.setReady(&e.Object)
		}
		_ = res.Body.Close()
	}
}

func (g *gatedHost) setReady(pod *corev1.Pod) {
	ready := corev1.ConditionTrue
	for _, gate := range pod.Spec.ReadinessGates {
		if statusOf(pod.Status.Conditions, gate.ConditionType) != corev1.ConditionTrue {
			ready = corev1.ConditionFalse
		}
	}
	if statusOf(pod.Status.Conditions, corev1.PodReady) == ready {
		return
	}
	change, _ := json.Marshal(m{"metadata": m{"uid": pod.UID}, "status": m{
		"phase": "Running", "podIP": "10.1.1.2", "podIPs": []m{{"ip": "10.1.1.2"}}, "conditions": []m{{"type": "Ready", "status": ready}},
	}})
	g.try(http.MethodPatch, "/api/v1/namespaces/"+pod.Namespace+"/pods/"+pod.Name+"/status", "application/strategic-merge-patch+json", change)
}

// statusOf is the status of the condition of the type, empty for none.
func statusOf(conditions []corev1.PodCondition, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, c := range conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

// newPod makes a pod, with the readiness gate or without.
func (g *gatedHost) newPod(t *testing.T, name string, gated bool) {
	t.Helper()
	spec := m{"nodeName": "node1", "containers": []m{{"name": "c", "image": "i"}}}
	if gated {
		spec["readinessGates"] = []m{{"conditionType": kube.NetworkReady}}
	}
	g.pods[name] = string(g.make(t, "Pod", "shop", name, m{"metadata.labels": m{"app": "web"}, "spec": spec}).uid)
}

// condition returns the condition of a pod, empty if there is none.
func (g *gatedHost) condition(t *testing.T, name string) (c corev1.PodCondition) {
	t.Helper()
	var pod corev1.Pod
	if err := json.Unmarshal(g.ask(t, http.MethodGet, "/api/v1/namespaces/shop/pods/"+name, "", nil), &pod); err != nil {
		t.Fatal(err)
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == kube.NetworkReady {
			return c
		}
	}
	return c
}

// becomes waits until all pods have the status.
func (g *gatedHost) becomes(t *testing.T, want corev1.ConditionStatus, names ...string) {
	t.Helper()
	for _, name := range names {
		await(t, 90*time.Second, name+" to be "+string(want), func() bool { return g.condition(t, name).Status == want })
	}
}

// nodeCondition returns the condition of the node.
func (g *gatedHost) nodeCondition(t *testing.T) (c corev1.NodeCondition) {
	t.Helper()
	var n corev1.Node
	if err := json.Unmarshal(g.ask(t, http.MethodGet, "/api/v1/nodes/node1", "", nil), &n); err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kube.PodsCutOff }); i >= 0 {
		return n.Status.Conditions[i]
	}
	return c
}

// nodeBecomes waits until the node's condition has the status.
func (g *gatedHost) nodeBecomes(t *testing.T, want corev1.ConditionStatus) {
	t.Helper()
	await(t, 30*time.Second, "the node's condition to be "+string(want), func() bool { return g.nodeCondition(t).Status == want })
}

// endpoints are the names of the pods that clients of the service reach.
func (g *gatedHost) endpoints(t *testing.T) (names []string) {
	t.Helper()
	var list discoveryv1.EndpointSliceList
	if err := json.Unmarshal(g.ask(t, http.MethodGet, "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices", "", nil), &list); err != nil {
		t.Fatal(err)
	}
	for _, slice := range list.Items {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready != nil && *e.Conditions.Ready {
				names = append(names, e.TargetRef.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// soon waits until the endpoints are these, and fails if that takes more than a second.
func (g *gatedHost) soon(t *testing.T, what string, want ...string) {
	t.Helper()
	began := time.Now()
	await(t, 30*time.Second, what, func() bool { return slices.Equal(g.endpoints(t), want) })
	took := time.Since(began)
	t.Logf("%s: %s", what, took.Round(time.Millisecond))
	if took > time.Second {
		t.Errorf("%s: %s", what, took)
	}
}

// quiet fails if the agent patches anything for two seconds.
func (g *gatedHost) quiet(t *testing.T, what string) {
	t.Helper()
	time.Sleep(2 * time.Second)
	if pods, _, nodes := g.counted(); pods+nodes > 0 {
		t.Errorf("%s: %d patches of pods, %d of the node", what, pods, nodes)
	}
}
