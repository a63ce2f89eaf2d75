package cluster

import (
	"context"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/relink-cni/relink/test/fresh"
	"github.com/relink-cni/relink/test/kubeapi"
	"github.com/relink-cni/relink/test/node"
)

func TestMain(m *testing.M) {
	node.Main(m, func(ctx context.Context) error {
		_, err := kubeapi.Prepare(ctx)
		return err
	})
}

const agentAddress = "127.0.0.1:9477"

// host is the node with its pods and its agent.
type host struct {
	*node.Node
	// stop ends the agent in order. end sends it a signal, and waits for its end.
	stop func(t *testing.T)
	end  func(os.Signal) error
	log  *node.Log
}

// start runs the agent until stop, or to the end of the test.
func (h *host) start(t *testing.T, env []string, args ...string) {
	t.Helper()
	args = append([]string{"--checkpoint-dir", h.Store.Dir(), "--host-grace", "0s", "--metrics-listen", agentAddress}, args...)
	log, end := run(t, env, filepath.Join(node.Bin, "relink-agent"), args...)
	h.log, h.end = log, end
	h.stop = func(t *testing.T) {
		t.Helper()
		if err := end(syscall.SIGTERM); err != nil {
			t.Errorf("the agent ends with %v", err)
		}
	}
	await(t, 30*time.Second, "the agent", func() bool {
		res, err := http.Get("http://" + agentAddress + "/readyz")
		if err != nil {
			return false
		}
		_ = res.Body.Close()
		return res.StatusCode == http.StatusOK
	})
}

// metric returns the value of one of the agent's metrics.
func (h *host) metric(t *testing.T, name string) string {
	t.Helper()
	res, err := http.Get("http://" + agentAddress + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\S+)$`).FindSubmatch(b)
	if found == nil {
		t.Fatalf("no %s in the metrics\n%s", name, h.log)
	}
	return string(found[1])
}

// count is what the metrics say about events with the result.
func (h *host) count(t *testing.T, result string) int {
	t.Helper()
	n, err := strconv.Atoi(h.metric(t, `relink_pod_events_total{result="`+result+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// attach gives a pod an interface on lan0, as a container runtime does.
func (h *host) attach(t *testing.T, i int, name, uid string) (netns string) {
	t.Helper()
	netns = fresh.Sandbox(t)
	cmd := exec.Command(filepath.Join(node.Bin, "relink-macvlan"))
	cmd.Env = []string{"CNI_COMMAND=ADD", "CNI_NETNS=" + netns, "CNI_IFNAME=eth0", "CNI_PATH=" + node.Bin, "PATH=" + node.Bin,
		fmt.Sprintf("CNI_CONTAINERID=c%d", i), "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=" + name + ";K8S_POD_UID=" + uid}
	cmd.Stdin = strings.NewReader(fmt.Sprintf(`{"cniVersion":"1.1.0","name":"lan","type":"relink-macvlan","master":"lan0",
		"checkpointDir":%q,"ipam":{"type":"static","addresses":[{"address":"10.%d.%d.2/24"}]}}`, h.Store.Dir(), 1+i/250, 1+i%250))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return netns
}

// lose takes the parent of all pods away, and the agent notices. back brings it back, and the agent restores all pods. A loss in the midst
// of a restore would be no second one.
func (h *host) lose(t *testing.T) {
	t.Helper()
	h.says(t, "interfaces are lost", func() { fresh.IP(t, "", "link del lan0") })
}

func (h *host) back(t *testing.T) {
	t.Helper()
	h.says(t, "interfaces are restored", func() {
		fresh.Run(t, "", "ip link add lan0 type veth peer name lan1; ip link set lan0 up; ip link set lan1 up")
	})
}

// says does something, and waits until the agent has said it once more.
func (h *host) says(t *testing.T, what string, do func()) {
	t.Helper()
	said := func() int { return strings.Count(h.log.String(), what) }
	before := said()
	do()
	await(t, 30*time.Second, "a word of the agent: "+what, func() bool { return said() > before })
}

func isThere(netns string) bool {
	is := false
	_ = fresh.In(netns, func() { is = exec.Command("ip", "link", "show", "dev", "eth0").Run() == nil })
	return is
}

const hash = "0123456789abcdef0123456789abcdef" // As the kubelet makes the UIDs of static pods.

// onPods has an interface lost and restored, and "kubectl describe pod" shows both. The agent has the rights of deploy/. Only
// living pods get events. This also works while the API comes and goes.
func (a *api) onPods(t *testing.T) {
	fresh.Run(t, "", "mount -t tmpfs own /run && mkdir -p /run/secrets/kubernetes.io/serviceaccount")
	t.Cleanup(func() { fresh.Run(t, "", "umount /run") })
	h := &host{Node: node.New(t)}

	web := a.pod(t, "web-0", nil)
	mirror := a.pod(t, "proxy-node1", map[string]string{corev1.MirrorPodAnnotationKey: hash, "kubernetes.io/config.hash": hash})
	anew := a.pod(t, "db-0", nil)
	netns := h.attach(t, 1, "web-0", string(web))
	h.attach(t, 2, "proxy-node1", hash)
	h.attach(t, 3, "db-0", "00000000-0000-4000-8000-000000000001") // The pod db-0 was deleted and made again on another node.
	h.attach(t, 4, "gone-0", "00000000-0000-4000-8000-000000000002")
	h.attach(t, 5, "old-0", "") // The runtime of this pod does not give the UID.

	inPod := []string{"KUBERNETES_SERVICE_HOST=127.0.0.1", "KUBERNETES_SERVICE_PORT=6443", "NODE_NAME=node1"}
	files(t, map[string]string{"token": a.token(t), "ca.crt": read(t, a.path("ca.crt"))})
	h.start(t, inPod)

	step := func(name string, f func(t *testing.T)) {
		if !t.Run(name, f) {
			t.FailNow()
		}
	}
	step("lost and restored", func(t *testing.T) {
		h.lose(t)
		await(t, 30*time.Second, "an event on web-0", func() bool { return find(a.events(t, "web-0", web), "InterfaceLost") != nil })
		h.back(t)
		await(t, 30*time.Second, "the end of it", func() bool { return find(a.events(t, "web-0", web), "InterfaceRestored") != nil })
		events := a.events(t, "web-0", web)
		lost, restored := find(events, "InterfaceLost"), find(events, "InterfaceRestored")
		if len(events) != 2 || lost.Type != "Warning" || lost.Message != "Network interface eth0 (network lan) is lost: lan0 has gone. It will be restored when the device is back" ||
			lost.Source != (corev1.EventSource{Component: "relink-agent", Host: "node1"}) || lost.ReportingController != "relink-agent" || lost.ReportingInstance != "node1" {
			t.Errorf("%s\n%+v", shown(events), lost)
		}
		if restored.Type != "Normal" || !regexp.MustCompile(`^Network interface eth0 \(network lan\) is restored. It was lost for [\d.]+m?s$`).MatchString(restored.Message) {
			t.Error(shown(events))
		}
		if !isThere(netns) {
			t.Error("the event says that the interface is restored, and it is not there")
		}
	})
	step("whose pods do not live under the UID", func(t *testing.T) {
		await(t, 30*time.Second, "all events", func() bool {
			return h.count(t, "sent") == 4 && h.count(t, "pod_gone") == 4 && h.count(t, "no_uid") == 2
		})
		if events := a.events(t, "proxy-node1", hash); len(events) != 2 {
			t.Errorf("kubectl looks for the events of a static pod under the hash of its manifest, and finds %s", shown(events))
		}
		// The API server has events of its own.
		if all := a.list(t, "/api/v1/events?fieldSelector=source=relink-agent"); len(all) != 4 || len(a.events(t, "proxy-node1", mirror))+len(a.events(t, "db-0", anew)) > 0 {
			t.Errorf("events on others: %s", shown(all))
		}
	})
	step("again", func(t *testing.T) {
		h.lose(t)
		await(t, 30*time.Second, "a second loss", func() bool { return find(a.events(t, "web-0", web), "InterfaceLost").Count == 2 })
		h.back(t)
		await(t, 30*time.Second, "all events", func() bool { return h.count(t, "sent") == 8 })
		lost := find(a.events(t, "web-0", web), "InterfaceLost")
		if !lost.LastTimestamp.After(lost.FirstTimestamp.Time) && lost.LastTimestamp != lost.FirstTimestamp {
			t.Errorf("the second loss has the times %s to %s", lost.FirstTimestamp, lost.LastTimestamp)
		}
	})
	step("without rights", func(t *testing.T) {
		for _, name := range []string{"relink-agent", "relink-agent-owners"} { // Both give "get" on pods.
			a.ask(t, http.MethodDelete, where["ClusterRoleBinding"]+"/"+name, "", nil)
		}
		agent := user{a.http, a.token(t)}
		await(t, 30*time.Second, "the authorizer to hear of it", func() bool { return !agent.can(t, "get", "pods") })
		h.lose(t)
		await(t, 30*time.Second, "refusals", func() bool { return h.count(t, "refused") > 0 })
		h.back(t)
		await(t, 30*time.Second, "the restore", func() bool { return isThere(netns) })
		if n := strings.Count(h.log.String(), "the Kubernetes API refuses an event"); n != 1 || !strings.Contains(h.log.String(), `cannot get resource \"pods\"`) {
			t.Errorf("the log does not tell once what is refused:\n%s", h.log)
		}
		await(t, 30*time.Second, "all refusals", func() bool { return h.count(t, "refused") == 8 && h.count(t, "sent") == 8 })
	})
	a.deploy(t)
	step("the API is away", func(t *testing.T) {
		a.stop()
		h.lose(t)
		await(t, 30*time.Second, "the loss", func() bool { return !isThere(netns) })
		h.back(t)
		await(t, 30*time.Second, "the restore without the API", func() bool { return isThere(netns) })
		await(t, 30*time.Second, "a line in the log", func() bool {
			return strings.Contains(h.log.String(), "the Kubernetes API does not answer: events wait")
		})
	})
	was := time.Now()
	a.start(t)
	step("the API is back", func(t *testing.T) {
		await(t, 30*time.Second, "the events that waited", func() bool { return h.count(t, "sent") == 12 })
		lost := find(a.events(t, "web-0", web), "InterfaceLost")
		if lost.Count != 3 || lost.LastTimestamp.After(was) {
			t.Errorf("the loss has the count %d and the time %s. It was before %s", lost.Count, lost.LastTimestamp, was)
		}
		if n := strings.Count(h.log.String(), "does not answer: events wait"); n != 1 || !strings.Contains(h.log.String(), "the Kubernetes API answers again") {
			t.Errorf("the log does not tell once that the API was away:\n%s", h.log)
		}
	})
	step("many at once", func(t *testing.T) { h.many(t, a) })
	h.stop(t)
	step("with the kubelet's rights", func(t *testing.T) {
		a.keys.issue(t, "kubelet", pkix.Name{CommonName: "system:node:node1", Organization: []string{"system:nodes"}})
		h.start(t, nil, "--kubeconfig", kubeconfig(t, a))
		before := find(a.events(t, "web-0", web), "InterfaceLost").Name
		h.lose(t)
		await(t, 30*time.Second, "an event of the new agent", func() bool {
			for _, e := range a.events(t, "web-0", web) {
				if e.Reason == "InterfaceLost" && e.Name != before {
					return true
				}
			}
			return false
		})
		h.back(t)
		await(t, 30*time.Second, "the restore", func() bool { return isThere(netns) })
		h.stop(t)
	})
}

// many makes many pods lose their interfaces at once. Each pod gets its event. The API gets at most 40 requests at once
// and 20 per second. An event takes two requests.
func (h *host) many(t *testing.T, a *api) {
	pods := 40
	if os.Getenv("RELINK_LONG") != "" {
		pods = 250
	}
	for i := range pods {
		name := fmt.Sprintf("many-%d", i)
		h.attach(t, 100+i, name, string(a.pod(t, name, nil)))
	}
	before := h.count(t, "sent")
	began := time.Now()
	h.lose(t)
	lost := time.Duration(2*pods-40) * time.Second / 20
	time.Sleep(lost)                                                                                   // Scrapes take memory, too.
	await(t, 60*time.Second, "all events", func() bool { return h.count(t, "sent") == before+pods+2 }) // web-0 and proxy-node1, too
	took := time.Since(began)
	t.Logf("the losses of %d pods were in the API after %s. The agent takes %s bytes of memory, %s of them Go has", pods, took, h.metric(t, "process_resident_memory_bytes"), h.metric(t, "go_memstats_heap_inuse_bytes"))
	if took < lost {
		t.Errorf("the losses of %d pods were in the API after %s: that is too fast", pods, took)
	}
	seen := map[string]int32{}
	for _, e := range a.list(t, "/api/v1/namespaces/shop/events?fieldSelector=reason%3DInterfaceLost") {
		seen[e.InvolvedObject.Name] = e.Count
	}
	for i := range pods {
		if name := fmt.Sprintf("many-%d", i); seen[name] != 1 {
			t.Errorf("%s has %d losses", name, seen[name])
		}
	}
	h.back(t)
}

// files are those of the service account, in the place where client-go looks for them.
func files(t *testing.T, content map[string]string) {
	t.Helper()
	for name, text := range content {
		if err := os.WriteFile(filepath.Join("/run/secrets/kubernetes.io/serviceaccount", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// kubeconfig writes a file as kubeadm makes it for the kubelet.
func kubeconfig(t *testing.T, a *api) string {
	t.Helper()
	path := a.path("kubelet.conf")
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
  - name: test
    cluster: {server: "https://%s", certificate-authority-data: %s}
contexts:
  - name: test
    context: {cluster: test, user: node}
current-context: test
users:
  - name: node
    user: {client-certificate: kubelet.crt, client-key: kubelet.key}
`, apiAddress, base64.StdEncoding.EncodeToString([]byte(read(t, a.path("ca.crt")))))
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
