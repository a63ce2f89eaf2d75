package kube

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/owner"
)

// uidOf is the UID of an object of the tests.
func uidOf(name string) types.UID { return types.UID("uid-of-" + name) }

// fakeAPI is an API with objects by their paths. test/cluster has a real one: this one does what that one seldom does, and
// counts what it is asked.
type fakeAPI struct {
	mu       sync.Mutex
	objects  map[string]string
	requests []string
	// odd answers a request in another way than usual, and returns true then.
	odd func(w http.ResponseWriter, r *http.Request) bool
	// events goes to whoever watches the pods.
	events chan string
}

const (
	allPods  = "/api/v1/pods"
	podsPath = "/api/v1/namespaces/shop/pods/"
	setsPath = "/apis/apps/v1/namespaces/shop/statefulsets/"
	kubevirt = "/apis/kubevirt.io/v1/namespaces/shop/"
	claimsAt = "/apis/k8s.cni.cncf.io/v1alpha1/namespaces/shop/ipamclaims/"
)

func (w *fakeAPI) ServeHTTP(to http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.requests = append(w.requests, r.Method+" "+r.URL.Path)
	odd, body, is := w.odd, w.objects[r.URL.Path], false
	if body != "" {
		is = true
	}
	w.mu.Unlock()
	switch {
	case odd != nil && odd(to, r):
	case r.URL.Path == allPods:
		w.pods(to, r)
	case is && r.Method == http.MethodGet:
		to.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(to, body)
	default:
		missing(to, r.URL.Path)
	}
}

// pods answers a list or a watch of all pods. Like an old API, it does not begin a watch with the list.
func (w *fakeAPI) pods(to http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	to.Header().Set("Content-Type", "application/json")
	switch {
	case q.Get("fieldSelector") != "spec.nodeName=node1":
		refuse(to, http.StatusForbidden)
	case q.Get("sendInitialEvents") != "":
		refuse(to, http.StatusUnprocessableEntity)
	case q.Get("watch") == "":
		var items []string
		w.mu.Lock()
		for path, body := range w.objects {
			if strings.HasPrefix(path, podsPath) {
				items = append(items, body)
			}
		}
		w.mu.Unlock()
		fmt.Fprintf(to, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[%s]}`, strings.Join(items, ","))
	default:
		to.(http.Flusher).Flush()
		for {
			select {
			case e, open := <-w.events:
				if !open {
					return
				}
				_, _ = io.WriteString(to, e+"\n")
				to.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}
}

// missing is the API's own answer that an object does not exist.
func missing(to http.ResponseWriter, path string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	group, resource, name := "", parts[len(parts)-2], parts[len(parts)-1]
	if parts[0] == "apis" {
		group = parts[1]
	}
	to.Header().Set("Content-Type", "application/json")
	to.WriteHeader(http.StatusNotFound)
	fmt.Fprintf(to, `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"%s \"%s\" not found","reason":"NotFound","details":{"name":%q,"group":%q,"kind":%q},"code":404}`,
		resource, name, name, group, resource)
}

// requestPaths returns the requests since the last call, without those of the informer: they come when it likes.
func (w *fakeAPI) requestPaths() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := slices.DeleteFunc(w.requests, func(request string) bool { return request == "GET "+allPods })
	w.requests = nil
	return all
}

func (w *fakeAPI) set(path, body string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.objects[path] = body
}

func (w *fakeAPI) answers(odd func(to http.ResponseWriter, r *http.Request) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.odd = odd
}

// lockedBuffer is a buffer for a log that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *lockedBuffer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(b)
}

func (s *lockedBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// newOwners returns the Owners of an API. They watch the pods of node.
func newOwners(t testing.TB, node string, objects map[string]string) (*Owners, *fakeAPI, *lockedBuffer) {
	t.Helper()
	w := &fakeAPI{objects: objects, events: make(chan string)}
	if objects == nil {
		w.objects = map[string]string{}
	}
	server := httptest.NewServer(w)
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	client, err := clientOf(server)
	if err != nil {
		t.Fatal(err)
	}
	log := &lockedBuffer{}
	return NewOwners(client, node, slog.New(slog.NewTextHandler(log, nil))), w, log
}

// objectJSON is an object of the API as JSON. Its UID is "uid-of-NAME". more are further parts of the object, or of its metadata
// if they begin with "metadata.".
func objectJSON(t testing.TB, name string, more map[string]any) string {
	t.Helper()
	metadata := map[string]any{"namespace": "shop", "name": name, "uid": uidOf(name), "resourceVersion": "7"}
	o := map[string]any{"metadata": metadata}
	for key, value := range more {
		if inside, is := strings.CutPrefix(key, "metadata."); is {
			metadata[inside] = value
			continue
		}
		o[key] = value
	}
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// controlled are the metadata of an object that another one controls.
func controlled(version, kind, name string) map[string]any {
	return map[string]any{"metadata.ownerReferences": []any{by(version, kind, name)}}
}

// running is a VirtualMachineInstance of the VirtualMachine vm, or of none if vm is empty. It lists the pods.
func running(t testing.TB, name, vm string, pods ...string) string {
	t.Helper()
	active := map[types.UID]string{}
	for _, pod := range pods {
		active[uidOf(pod)] = "node1"
	}
	more := map[string]any{}
	if vm != "" {
		more = controlled("kubevirt.io/v1", "VirtualMachine", vm)
	}
	more["status"] = map[string]any{"activePods": active}
	return objectJSON(t, name, more)
}

func ask(name string) owner.Question {
	return owner.Question{Pod: attachment.Pod{Namespace: "shop", Name: name, UID: string(uidOf(name))}, Network: "lan", IfName: "eth0"}
}

// wants fails the test unless the requests were these.
func (w *fakeAPI) wants(t *testing.T, want ...string) {
	t.Helper()
	if got := w.requestPaths(); !slices.Equal(got, want) {
		t.Errorf("requests %q, want %q", got, want)
	}
}
