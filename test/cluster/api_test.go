package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resource"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/relink-cni/relink/pkg/kube"
	"github.com/relink-cni/relink/test/fresh"
	"github.com/relink-cni/relink/test/kubeapi"
	"github.com/relink-cni/relink/test/node"
)

const (
	apiAddress = kubeapi.Address
	adminToken = kubeapi.AdminToken
)

// api is an API server, and what an administrator asks it.
type api struct {
	*kubeapi.API
	// whole is the test at whose end the API ends.
	whole *testing.T
	keys  authority
	http  *http.Client
	stop  func()
	etcd  etcd
	// clients are those of the users of pools, by their names.
	clients map[string]*kube.Client
	// nodes are those of the last pool that was made. They end before the next one.
	nodes []*member
}

// startAPI starts etcd and an API server with RBAC, and waits until it answers. The end of the test ends both.
func startAPI(t *testing.T) *api {
	t.Helper()
	made, err := kubeapi.New(t.Context(), fresh.InMemory(t))
	if err != nil {
		t.Fatal(err)
	}
	a := &api{API: made, whole: t, keys: authority{made.Keys}, http: made.HTTP, clients: map[string]*kube.Client{}}
	a.startEtcd(a.path("etcd"))
	a.start(t)
	return a
}

func (a *api) path(name string) string { return a.Path(name) }

// start starts the API server. a.stop kills it. With GOGC it collects garbage less often: that takes processor time, and memory is there.
func (a *api) start(t *testing.T) {
	t.Helper()
	_, end := run(a.whole, []string{"GOGC=400"}, a.APIServer, a.ServerArgs()...)
	a.stop = func() { _ = end(syscall.SIGKILL) }
	await(t, 3*time.Minute, "the API", a.Ready)
}

// run starts a program. It returns what it writes, and what sends it a signal and waits for its end. The program is killed at the end of
// the test. If the test fails, the end of what it wrote is shown.
func run(t *testing.T, env []string, path string, args ...string) (log *node.Log, end func(os.Signal) error) {
	t.Helper()
	log = &node.Log{}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started, ended := make(chan error), make(chan struct{})
	var status error
	go func() {
		runtime.LockOSThread() // Linux sends the signal when the thread ends that started the program.
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			status = cmd.Wait()
		}
		close(ended)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	end = func(s os.Signal) error {
		_ = cmd.Process.Signal(s) // It may have ended.
		<-ended
		return status
	}
	t.Cleanup(func() {
		_ = end(syscall.SIGKILL)
		if text := log.String(); t.Failed() {
			t.Logf("the end of what %s wrote:\n%s", filepath.Base(path), text[max(0, len(text)-3000):])
		}
	})
	return log, end
}

func await(t *testing.T, limit time.Duration, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !done(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// try makes a request as the administrator. The status is 0 if nobody answers.
func (a *api) try(method, path, contentType string, body []byte) (answer []byte, status int) {
	return a.Try(method, path, contentType, body)
}

// ask makes a request that must succeed.
func (a *api) ask(t *testing.T, method, path, contentType string, body []byte) []byte {
	t.Helper()
	answer, err := a.Ask(method, path, contentType, body)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// create makes an object, and fills into what the API made of it.
func (a *api) create(t *testing.T, path string, object, into any) {
	t.Helper()
	b, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	answer := a.ask(t, http.MethodPost, path, "application/json", b)
	if err := json.Unmarshal(answer, into); err != nil {
		t.Fatal(err)
	}
}

// where are the collections of the kinds in deploy/.
var where = kubeapi.Collections

// deploy applies what most clusters use of deploy/.
func (a *api) deploy(t *testing.T) {
	t.Helper()
	a.apply(t, "examples/registry")
}

// built runs kustomize in a directory of deploy/.
func built(t *testing.T, dir string) []*resource.Resource {
	t.Helper()
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), "../../deploy/kubernetes/"+dir)
	if err != nil {
		t.Fatal(err)
	}
	return all.Resources()
}

// apply applies a directory of deploy/. The API refuses keys that it does not know.
func (a *api) apply(t *testing.T, dir string) {
	t.Helper()
	for _, r := range built(t, dir) {
		if err := a.Apply(r); err != nil {
			t.Fatal(err)
		}
	}
}

// token returns a token of the agent's service account.
func (a *api) token(t *testing.T) string {
	t.Helper()
	var request struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	body := map[string]any{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": map[string]any{}}
	a.create(t, where["ServiceAccount"]+"/relink-agent/token", body, &request)
	if request.Status.Token == "" {
		t.Fatal("the API gives no token")
	}
	return request.Status.Token
}

// pod makes a pod in the namespace shop, and returns its UID.
func (a *api) pod(t *testing.T, name string, annotations map[string]string) types.UID {
	t.Helper()
	pod := corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
		Spec:       corev1.PodSpec{NodeName: "node1", Containers: []corev1.Container{{Name: "web", Image: "web"}}},
	}
	var made corev1.Pod
	a.create(t, "/api/v1/namespaces/shop/pods", pod, &made)
	return made.UID
}

// events are those that "kubectl describe pod" shows: kubectl asks by name, namespace and UID.
func (a *api) events(t *testing.T, name string, uid types.UID) []corev1.Event {
	t.Helper()
	selector := fmt.Sprintf("involvedObject.name=%s,involvedObject.namespace=shop,involvedObject.uid=%s", name, uid)
	return a.list(t, "/api/v1/namespaces/shop/events?fieldSelector="+url.QueryEscape(selector))
}

func (a *api) list(t *testing.T, path string) []corev1.Event {
	t.Helper()
	var list corev1.EventList
	if err := json.Unmarshal(a.ask(t, http.MethodGet, path, "", nil), &list); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// find returns the event with the reason, nil if there is none.
func find(events []corev1.Event, reason string) *corev1.Event {
	for i := range events {
		if events[i].Reason == reason {
			return &events[i]
		}
	}
	return nil
}

// shown is the events as people read them.
func shown(events []corev1.Event) string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "%s %s x%d %s: %s\n", e.Type, e.Reason, e.Count, e.InvolvedObject.Name, e.Message)
	}
	return b.String()
}
