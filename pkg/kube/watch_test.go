package kube

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/owner"
)

// startWatch runs the watch until the end of the test.
func startWatch(t testing.TB, o *Owners) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { o.Run(ctx); close(ended) }()
	t.Cleanup(func() { cancel(); <-ended })
}

func await(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// A pod that the watch has shown is not asked for. One that it has not shown, or with another UID, is.
func TestTheWatch(t *testing.T) {
	set := controlled("apps/v1", "StatefulSet", "web")
	o, w, log := newOwners(t, "node1", map[string]string{podsPath + "web-0": objectJSON(t, "web-0", set), setsPath + "web": objectJSON(t, "web", nil)})
	startWatch(t, o)
	await(t, "web-0", func() bool { return o.watch.pod("shop", "web-0") != nil })
	w.requestPaths()
	got, err := o.Ask(t.Context(), ask("web-0"))
	if err != nil || got.Owner.Name != "web" {
		t.Errorf("%+v, %v", got, err)
	}
	w.wants(t, "GET "+setsPath+"web")
	if again, err := o.Ask(t.Context(), ask("web-0")); err != nil || !cmp.Equal(again, got) {
		t.Errorf("%+v, %v", again, err)
	}
	w.wants(t)

	w.set(podsPath+"new", objectJSON(t, "new", nil))
	if got, err := o.Ask(t.Context(), ask("new")); err != nil || got.Owner.Name != "new" {
		t.Errorf("%+v, %v", got, err)
	}
	w.wants(t, "GET "+podsPath+"new")
	event := func(kind string, more map[string]any) {
		w.events <- fmt.Sprintf(`{"type":%q,"object":%s}`, kind, strings.Replace(objectJSON(t, "new", more), "{", `{"kind":"Pod","apiVersion":"v1",`, 1))
	}
	event("ADDED", nil)
	await(t, "the new pod", func() bool { return o.watch.pod("shop", "new") != nil })
	event("MODIFIED", map[string]any{"metadata.annotations": map[string]string{"ipam.relink.dev/lan": "10.0.0.1", "other": "x"}})
	await(t, "its annotation", func() bool { return len(o.watch.pod("shop", "new").Annotations) == 1 })
	if got, err := o.Ask(t.Context(), ask("new")); err != nil || got.Static == nil {
		t.Errorf("%+v, %v", got, err)
	}
	w.wants(t)
	before := ask("new")
	before.Pod.UID = "uid-before"
	if got, err := o.Ask(t.Context(), before); err == nil {
		t.Errorf("%+v", got)
	}
	w.wants(t, "GET "+podsPath+"new")
	event("DELETED", nil)
	await(t, "its end", func() bool { return o.watch.pod("shop", "new") == nil })
	if log.String() != "" {
		t.Errorf("the log is %s", log)
	}
}

// An old runtime gives no UID. What the watch has may be of the pod before.
func TestWithoutAUIDTheWatchIsNotAsked(t *testing.T) {
	o, w, _ := newOwners(t, "node1", map[string]string{podsPath + "web": objectJSON(t, "web", nil)})
	startWatch(t, o)
	await(t, "the pod", func() bool { return o.watch.pod("shop", "web") != nil })
	w.requestPaths()
	if _, err := o.Ask(t.Context(), owner.Question{Pod: attachment.Pod{Namespace: "shop", Name: "web"}}); err != nil {
		t.Error(err)
	}
	w.wants(t, "GET "+podsPath+"web")
}

// An interface that is added to a running pod can be ahead of the watch.
func TestAClaimThatTheWatchHasNotSeen(t *testing.T) {
	o, w, _ := newOwners(t, "node1", map[string]string{
		podsPath + "x": objectJSON(t, "x", controlled("kubevirt.io/v1", "VirtualMachineInstance", "db")), claimsAt + "db.lan": objectJSON(t, "db.lan", nil),
		kubevirt + "virtualmachineinstances/db": running(t, "db", "", "x"),
	})
	startWatch(t, o)
	await(t, "the pod", func() bool { return o.watch.pod("shop", "x") != nil })
	plugged := controlled("kubevirt.io/v1", "VirtualMachineInstance", "db")
	plugged["metadata.annotations"] = map[string]string{networksKey: `[{"interface":"pod1","ipam-claim-reference":"db.lan"}]`}
	w.set(podsPath+"x", objectJSON(t, "x", plugged))
	w.requestPaths()
	q := ask("x")
	q.Claims = true
	if got, err := o.Ask(t.Context(), q); err != nil || got.Claim != nil {
		t.Errorf("the first interface: %+v, %v", got.Claim, err)
	}
	w.wants(t, "GET "+kubevirt+"virtualmachineinstances/db")
	q.IfName = "pod1"
	if got, err := o.Ask(t.Context(), q); err != nil || got.Claim == nil || got.Claim.Name != "db.lan" {
		t.Errorf("%+v, %v", got.Claim, err)
	}
	w.wants(t, "GET "+podsPath+"x", "GET "+claimsAt+"db.lan")
}

// The API goes away and comes back: the log says each once, and what was seen counts meanwhile.
func TestTheWatchGoesAway(t *testing.T) {
	o, w, log := newOwners(t, "node1", map[string]string{podsPath + "web": objectJSON(t, "web", nil)})
	startWatch(t, o)
	await(t, "the pod", func() bool { return o.watch.pod("shop", "web") != nil })
	w.answers(func(to http.ResponseWriter, _ *http.Request) bool {
		refuse(to, http.StatusServiceUnavailable)
		return true
	})
	w.requestPaths()
	close(w.events)
	await(t, "another try", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return len(w.requests) > 1 })
	if got, err := o.Ask(t.Context(), ask("web")); err != nil || got.Owner.Name != "web" {
		t.Errorf("%+v, %v", got, err)
	}
	w.mu.Lock()
	w.events = make(chan string)
	w.mu.Unlock()
	w.answers(nil)
	await(t, "the API", func() bool { return strings.Contains(log.String(), "shows the pods of this node again") })
	if text := log.String(); strings.Count(text, "\n") != 2 || strings.Count(text, `level=WARN msg="the Kubernetes API does not show the pods of this node: new pods are asked for one by one" error="no, because 503"`) != 1 {
		t.Errorf("the log is\n%s", text)
	}
}

// Without a name of the node nothing is watched: not the pods of all nodes.
func TestANodeWithoutAName(t *testing.T) {
	o, w, _ := newOwners(t, "", nil)
	startWatch(t, o)
	time.Sleep(50 * time.Millisecond)
	w.wants(t)
}

// Of a pod only that is kept which counts.
func TestReduced(t *testing.T) {
	web := by("apps/v1", "StatefulSet", "web")
	other := *web
	other.Controller, other.Name = nil, "other"
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "web-0", UID: "u", ResourceVersion: "7", GenerateName: "web-", Finalizers: []string{"f"},
		OwnerReferences: []metav1.OwnerReference{other, *web},
		Labels:          map[string]string{"apps.kubernetes.io/pod-index": "0", "app": "web"},
		Annotations: map[string]string{
			"kubernetes.io/config.mirror": "m", networksKey: "n", defaultNetworkKey: "d", "ipam.relink.dev/lan": "a", "ipam.relink.dev/owner": "o",
			"kubectl.kubernetes.io/last-applied-configuration": strings.Repeat("x", 1<<16), "x.ipam.relink.dev/lan": "a",
		},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
	}}
	got := trimmed(pod)
	if keys := slices.Sorted(maps.Keys(got.Annotations)); !slices.Equal(keys, []string{"ipam.relink.dev/lan", "ipam.relink.dev/owner", networksKey, "kubernetes.io/config.mirror", defaultNetworkKey}) {
		t.Errorf("annotations %q", keys)
	}
	if len(got.OwnerReferences) != 1 || got.OwnerReferences[0].Name != "web" || len(got.Labels) != 1 || got.ManagedFields != nil || got.Finalizers != nil ||
		got.Namespace != "shop" || got.Name != "web-0" || got.UID != "u" || got.ResourceVersion != "7" {
		t.Errorf("%+v", got)
	}
	if gone := any(struct{}{}); trim(gone) != gone {
		t.Error("what is no pod has changed")
	}
}

func trim(o any) any {
	trimmed, _ := trimPod(o)
	return trimmed
}

// trimmed is what the watch keeps of a pod.
func trimmed(pod *corev1.Pod) *watchedPod { return trim(pod).(*watchedPod) }

// A runtime waits for the answer.
func BenchmarkAsk(b *testing.B) {
	o, _, _ := newOwners(b, "node1", map[string]string{podsPath + "web-0": objectJSON(b, "web-0", controlled("apps/v1", "StatefulSet", "web")), setsPath + "web": objectJSON(b, "web", nil)})
	startWatch(b, o)
	await(b, "web-0", func() bool { return o.watch.pod("shop", "web-0") != nil })
	q := ask("web-0")
	for b.Loop() {
		if _, err := o.Ask(b.Context(), q); err != nil {
			b.Fatal(err)
		}
	}
}
