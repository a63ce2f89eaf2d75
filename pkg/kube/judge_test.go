package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kube/objects"
	"github.com/relink-cni/relink/pkg/owner"
)

func setOwner(group string, ordinal int) attachment.Owner {
	return attachment.Owner{Group: group, Kind: "StatefulSet", Namespace: "shop", Name: "web", UID: "uid-of-web", Ordinal: attachment.OrdinalOf(ordinal)}
}

func TestJudgeOne(t *testing.T) {
	of := func(group, kind string) attachment.Owner {
		return attachment.Owner{Group: group, Kind: kind, Namespace: "shop", Name: "web", UID: "uid-of-web"}
	}
	found := func(spec, status string) *readResult {
		r := &readResult{}
		r.object.Metadata.UID, r.object.Spec, r.object.Status = "uid-of-web", json.RawMessage(spec), json.RawMessage(status)
		return r
	}
	another, deleted := found(`{"replicas":3}`, `{}`), found(`{"replicas":1}`, `{}`)
	another.object.Metadata.UID = "uid-of-another"
	deleted.object.Metadata.DeletionTimestamp = &metav1.Time{Time: time.Now()}
	byName := of("", "pod")
	byName.UID = ""
	vmOrdinal := of("kubevirt.io", "VirtualMachine")
	vmOrdinal.Ordinal = 1
	anew := "the StatefulSet shop/web was made anew: its UID is uid-of-another, and was uid-of-web"
	for name, test := range map[string]struct {
		owner   attachment.Owner
		reading *readResult
		want    owner.Standing
		why     string
	}{
		"nobody":               {attachment.Owner{}, nil, owner.Unknown, "it is known by its name only: nobody can prove that it does not come back"},
		"a static pod":         {byName, nil, owner.Unknown, "it is known by its name only: nobody can prove that it does not come back"},
		"no namespace":         {attachment.Owner{Kind: "pod", Name: "x", UID: "u"}, nil, owner.Unknown, "its namespace is not known"},
		"proven":               {of("", "pod"), &readResult{err: fmt.Errorf("%w: so it is", objects.ErrNotFound)}, owner.Gone, "the Kubernetes API answers that it does not exist: so it is"},
		"not served":           {of("", "pod"), &readResult{err: fmt.Errorf("%w: x", objects.ErrNotServed)}, owner.Unknown, "the Kubernetes API does not serve it: x"},
		"an error":             {of("", "pod"), &readResult{err: errors.New("broken")}, owner.Unknown, "broken"},
		"a pod":                {of("", "pod"), found("", `{"phase":"Running"}`), owner.Exists, "the pod exists with this UID"},
		"a pod that starts":    {of("", "pod"), found("", `{}`), owner.Exists, "the pod exists with this UID"},
		"a pod that is done":   {of("", "pod"), found("", `{"phase":"Succeeded"}`), owner.Gone, "the pod has ended and does not start again: its phase is Succeeded"},
		"a pod that failed":    {of("", "pod"), found("", `{"phase":"Failed"}`), owner.Gone, "the pod has ended and does not start again: its phase is Failed"},
		"a pod without status": {of("", "pod"), found("", ``), owner.Unknown, "the status of the pod cannot be read: unexpected end of JSON input"},
		"a named pod":          {of("", "Pod"), found("", `{"phase":"Succeeded"}`), owner.Exists, "the Pod shop/web exists with this UID"},
		"a VM":                 {of("kubevirt.io", "VirtualMachine"), found("", ""), owner.Exists, "the VirtualMachine shop/web exists with this UID"},
		"a VMI that is done":   {of("kubevirt.io", "VirtualMachineInstance"), found("", `{"phase":"Succeeded"}`), owner.Exists, "the VirtualMachineInstance shop/web exists with this UID"},
		"an ordinal of a VM":   {vmOrdinal, found("{}", ""), owner.Unknown, "nobody knows what the ordinals of a VirtualMachine are"},
		"a named set":          {of("apps", "StatefulSet"), found(`{"replicas":0}`, ""), owner.Exists, "the StatefulSet shop/web exists with this UID"},

		"its ordinal":       {setOwner("apps", 2), found(`{"replicas":3}`, ""), owner.Exists, "the StatefulSet shop/web uses the ordinal 2"},
		"scaled past":       {setOwner("apps", 3), found(`{"replicas":3}`, ""), owner.Gone, "the StatefulSet shop/web has no pod with the ordinal 3: it is scaled to 3 replicas, and ordinal 3 would be number 4 of them"},
		"before its start":  {setOwner("apps", 0), found(`{"replicas":3,"ordinals":{"start":1}}`, ""), owner.Gone, "the StatefulSet shop/web has no pod with the ordinal 0: its ordinals begin with 1"},
		"from its start":    {setOwner("apps", 3), found(`{"replicas":3,"ordinals":{"start":1}}`, ""), owner.Exists, "the StatefulSet shop/web uses the ordinal 3"},
		"made anew":         {setOwner("apps", 0), another, owner.Gone, anew},
		"being deleted":     {setOwner("apps", 1), deleted, owner.Exists, "the StatefulSet shop/web is being deleted, and is still there"},
		"no spec":           {setOwner("apps", 0), found(``, ""), owner.Unknown, "the StatefulSet shop/web does not tell which ordinals it uses: its spec cannot be read: unexpected end of JSON input"},
		"reserved":          {setOwner("apps.kruise.io", 1), found(`{"replicas":3,"reserveOrdinals":["1-1"]}`, ""), owner.Gone, "the StatefulSet shop/web has no pod with the ordinal 1: its reserveOrdinals leave out ordinal 1"},
		"in place of it":    {setOwner("apps.kruise.io", 3), found(`{"replicas":3,"reserveOrdinals":[1]}`, ""), owner.Exists, "the StatefulSet shop/web uses the ordinal 3"},
		"reserved in words": {setOwner("apps.kruise.io", 9), found(`{"replicas":3,"reserveOrdinals":["one"]}`, ""), owner.Unknown, `the StatefulSet shop/web does not tell which ordinals it uses: its reserveOrdinals have "one", which is no number and no range such as 3-5`},
	} {
		t.Run(name, func(t *testing.T) {
			if got, why := judge(test.owner, test.reading); got != test.want || why != test.why {
				t.Errorf("%s, %q, want %s, %q", got, why, test.want, test.why)
			}
		})
	}
}

// The pod of an ordinal is elsewhere only if the API itself says that it is on another node and stays there.
func TestElsewhere(t *testing.T) {
	of, isOf := setOwner("apps", 2), true
	pod := func(spec, phase string, change ...func(*metav1.ObjectMeta)) readResult {
		var r readResult
		r.object.Metadata = metav1.ObjectMeta{Namespace: "shop", Name: "web-2", UID: "uid-of-web-2", OwnerReferences: []metav1.OwnerReference{{UID: "uid-of-web", Controller: &isOf}}}
		r.object.Spec, r.object.Status = json.RawMessage(spec), json.RawMessage(`{"phase":"`+phase+`"}`)
		for _, c := range change {
			c(&r.object.Metadata)
		}
		return r
	}
	const other = `{"nodeName":"node2"}`
	for name, test := range map[string]struct {
		reading readResult
		node    string
		uid     string
		where   string
	}{
		"runs elsewhere":        {pod(other, "Running"), "node1", "uid-of-web-2", "its pod shop/web-2 is on node node2"},
		"starts elsewhere":      {pod(other, "Pending"), "node1", "uid-of-web-2", "its pod shop/web-2 is on node node2"},
		"here":                  {pod(`{"nodeName":"node1"}`, "Running"), "node1", "", "its pod shop/web-2 is on this node"},
		"no node yet":           {pod(`{}`, "Pending"), "node1", "", "its pod shop/web-2 has no node yet"},
		"which node is this":    {pod(other, "Running"), "", "", "its pod shop/web-2 is on node node2, and the name of this node is not known"},
		"failed elsewhere":      {pod(other, "Failed"), "node1", "", "its pod shop/web-2: the pod has ended and does not start again: its phase is Failed"},
		"terminating elsewhere": {pod(other, "Running", func(m *metav1.ObjectMeta) { m.DeletionTimestamp = &metav1.Time{Time: time.Now()} }), "node1", "", "its pod shop/web-2 is being deleted"},
		"of a set made anew": {pod(other, "Running", func(m *metav1.ObjectMeta) { m.OwnerReferences[0].UID = "uid-of-another" }), "node1", "",
			"its pod shop/web-2 is not one that the StatefulSet with the UID uid-of-web controls"},
		"nobody's":      {pod(other, "Running", func(m *metav1.ObjectMeta) { m.OwnerReferences = nil }), "node1", "", "its pod shop/web-2 is not one that the StatefulSet with the UID uid-of-web controls"},
		"no pod":        {readResult{err: fmt.Errorf("%w: x", objects.ErrNotFound)}, "node1", "", "its pod shop/web-2 does not exist"},
		"no answer":     {readResult{err: fmt.Errorf("%w: x", objects.ErrRefused)}, "node1", "", "where its pod shop/web-2 is, is not known: the Kubernetes API refuses: x"},
		"a strange one": {pod(`{"nodeName":7}`, "Running"), "node1", "", "the spec of its pod shop/web-2 cannot be read: json: cannot unmarshal number into Go struct field .nodeName of type string"},
	} {
		t.Run(name, func(t *testing.T) {
			if uid, where := otherNodePod(of, test.reading, test.node); uid != test.uid || where != test.where {
				t.Errorf("%q, %q, want %q, %q", uid, where, test.uid, test.where)
			}
		})
	}
}

// A name that is not this node's would make the pods of this node look as if they were elsewhere. So the API must have shown a pod that
// was asked for on this node.
func TestElsewhereNeedsTheNameOfThisNode(t *testing.T) {
	set := controlled("apps/v1", "StatefulSet", "web")
	on := func(node string) map[string]any {
		return map[string]any{"spec": map[string]string{"nodeName": node}, "status": map[string]string{"phase": "Running"}}
	}
	away := on("node2")
	maps.Copy(away, set)
	o, w, _ := newOwners(t, "node1", map[string]string{
		podsPath + "here": objectJSON(t, "here", on("node1")), setsPath + "web": objectJSON(t, "web", map[string]any{"spec": map[string]int{"replicas": 2}}),
	})
	startWatch(t, o)
	await(t, "a pod of this node", func() bool { return o.watch.pod("shop", "here") != nil })
	w.set(podsPath+"web-1", objectJSON(t, "web-1", away))
	judged := func() owner.Judgement { return o.Judge(t.Context(), []attachment.Owner{setOwner("apps", 1)})[0] }
	if j := judged(); j.Standing != owner.Exists || j.RemotePodUID != "" || j.PodLocation != `its pod shop/web-1 is on node node2, and nothing proves that this node is "node1": no pod that was asked for here is there by the API` {
		t.Errorf("%+v", j)
	}
	if _, err := o.Ask(t.Context(), ask("here")); err != nil {
		t.Fatal(err)
	}
	if j := judged(); j.Standing != owner.Exists || j.RemotePodUID != "uid-of-web-1" || j.PodLocation != "its pod shop/web-1 is on node node2" {
		t.Errorf("%+v", j)
	}
	w.answers(func(to http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == podsPath+"web-1" { // As the API does with a kubelet that asks for another node's pod.
			refuse(to, http.StatusForbidden)
			return true
		}
		return false
	})
	if j := judged(); j.Standing != owner.Exists || j.RemotePodUID != "" || !strings.HasPrefix(j.PodLocation, "where its pod shop/web-1 is, is not known: the Kubernetes API refuses") {
		t.Errorf("%+v", j)
	}
}

// Each owner is judged by itself, and each object is read once.
func TestJudge(t *testing.T) {
	o, w, _ := newOwners(t, "", map[string]string{
		setsPath + "web": objectJSON(t, "web", map[string]any{"spec": map[string]int{"replicas": 2}}), podsPath + "a": objectJSON(t, "a", map[string]any{"status": map[string]string{"phase": "Running"}}),
		"/apis/apps": `{"versions":[{"version":"v1"}],"preferredVersion":{"version":"v1"}}`, "/apis/apps/v1": `{"resources":[{"name":"deployments","kind":"Deployment","namespaced":true}]}`,
	})
	w.answers(func(to http.ResponseWriter, r *http.Request) bool {
		switch r.URL.Path {
		case podsPath + "hidden":
			refuse(to, http.StatusForbidden)
		case kubevirt + "virtualmachines/db", "/apis/example.org":
			http.NotFound(to, r)
		default:
			return false
		}
		return true
	})
	named := func(group, kind, name string) attachment.Owner {
		return attachment.Owner{Group: group, Kind: kind, Namespace: "shop", Name: name, UID: string(uidOf(name))}
	}
	owners := []attachment.Owner{
		setOwner("apps", 0), setOwner("apps", 1), setOwner("apps", 2), named("", "pod", "a"), named("", "pod", "b"), named("", "pod", "hidden"),
		named("kubevirt.io", "VirtualMachine", "db"), {Kind: "pod", Namespace: "shop", Name: "proxy"}, named("apps", "Deployment", "x"), named("apps", "Deployment", "y"),
		named("apps", "deployment", "z"), named("example.org", "Thing", "x"), named("apps", "Nothing", "x"),
	}
	want := []owner.Standing{
		owner.Exists, owner.Exists, owner.Gone, owner.Exists, owner.Gone, owner.Unknown, owner.Unknown, owner.Unknown, owner.Gone, owner.Gone, owner.Unknown, owner.Unknown, owner.Unknown,
	}
	got := o.Judge(t.Context(), owners)
	for i, j := range got {
		if j.Owner != owners[i] || j.Standing != want[i] || j.Reason == "" {
			t.Errorf("%+v, want %s of %s", j, want[i], owners[i])
		}
	}
	seen := map[string]int{}
	for _, request := range w.requestPaths() {
		seen[request]++
	}
	for _, path := range []string{setsPath + "web", "/apis/apps/v1", podsPath + "a"} {
		if n := seen["GET "+path]; n < 1 || n > 3 {
			t.Errorf("%d requests for %s", n, path)
		}
	}
	if n := seen["GET "+setsPath+"web"]; n != 1 {
		t.Errorf("%d requests for the StatefulSet", n)
	}
	if len(o.Judge(t.Context(), nil)) != 0 {
		t.Error("judgements of nobody")
	}
}

// An API that hangs or is away leaves all owners, and takes no longer than it may.
func TestJudgeWithoutTheAPI(t *testing.T) {
	var owners []attachment.Owner
	for i := range 40 {
		owners = append(owners, attachment.Owner{Kind: "pod", Namespace: "shop", Name: fmt.Sprint("p", i), UID: "u"})
	}
	o, w, _ := newOwners(t, "", nil)
	w.answers(func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true })
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	for _, j := range o.Judge(ctx, owners) {
		if j.Standing != owner.Unknown || !strings.Contains(j.Reason, "the Kubernetes API does not answer: ") {
			t.Fatalf("%+v", j)
		}
	}
	if took := time.Since(began); took >= readLimit { // Each object that is waited for takes that long.
		t.Errorf("it took %s", took)
	}
}
