package cluster

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kube"
	"github.com/relink-cni/relink/pkg/owner"
	"github.com/relink-cni/relink/test/node"
)

// m is a part of an object of the API.
type m = map[string]any

// definition makes a CustomResourceDefinition unless it is there, with the status apart as in the real ones, and waits until the API
// serves it.
func (a *api) definition(t *testing.T, group, kind, plural string, versions []string, status m) {
	t.Helper()
	loose := m{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	if status == nil {
		status = loose
	}
	schema := m{"openAPIV3Schema": m{"type": "object", "properties": m{"spec": loose, "status": status}}}
	var all []m
	for i, v := range versions {
		all = append(all, m{"name": v, "served": true, "storage": i == 0, "schema": schema, "subresources": m{"status": m{}}})
	}
	object := m{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": m{"name": plural + "." + group},
		"spec": m{"group": group, "scope": "Namespaced", "names": m{"kind": kind, "plural": plural, "singular": strings.ToLower(kind)}, "versions": all},
	}
	said, code := a.try(http.MethodPost, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", "application/json", text(t, object))
	if code != http.StatusCreated && code != http.StatusConflict {
		t.Fatalf("%s: status %d\n%s", plural, code, said)
	}
	await(t, 20*time.Second, plural, func() bool {
		_, status := a.try(http.MethodGet, "/apis/"+group+"/"+versions[0]+"/"+plural, "", nil)
		return status == http.StatusOK
	})
}

// collections are the paths of the kinds in a namespace.
var collections = map[string]string{
	"Pod": "/api/v1/namespaces/%s/pods", "StatefulSet.apps": "/apis/apps/v1/namespaces/%s/statefulsets",
	"StatefulSet.apps.kruise.io": "/apis/apps.kruise.io/v1beta1/namespaces/%s/statefulsets",
	"VirtualMachine.kubevirt.io": "/apis/kubevirt.io/v1/namespaces/%s/virtualmachines", "VirtualMachineInstance.kubevirt.io": "/apis/kubevirt.io/v1/namespaces/%s/virtualmachineinstances",
	"IPAMClaim.k8s.cni.cncf.io": "/apis/k8s.cni.cncf.io/v1alpha1/namespaces/%s/ipamclaims", "ConfigMap": "/api/v1/namespaces/%s/configmaps",
}

// made is an object that the test has made.
type made struct {
	kind, namespace, name string
	uid                   types.UID
}

func (o made) path() string { return fmt.Sprintf(collections[o.kind], o.namespace) + "/" + o.name }

// object is an object of the kind, which has the form KIND.GROUP. more are parts of it, and of its metadata if they begin with "metadata.".
func object(kind, name string, more m) m {
	metadata := m{"name": name}
	bare, group, _ := strings.Cut(kind, ".")
	version := map[string]string{"": "v1", "apps": "apps/v1", "apps.kruise.io": "apps.kruise.io/v1beta1", "kubevirt.io": "kubevirt.io/v1", "k8s.cni.cncf.io": "k8s.cni.cncf.io/v1alpha1"}[group]
	o := m{"apiVersion": version, "kind": bare, "metadata": metadata}
	for key, value := range more {
		if inside, is := strings.CutPrefix(key, "metadata."); is {
			metadata[inside] = value
			continue
		}
		o[key] = value
	}
	return o
}

// make makes such an object.
func (a *api) make(t *testing.T, kind, namespace, name string, more m) made {
	t.Helper()
	var answer metav1.PartialObjectMetadata
	a.create(t, fmt.Sprintf(collections[kind], namespace), object(kind, name, more), &answer)
	return made{kind, namespace, name, answer.UID}
}

// by is metadata that say that the object controls another one.
func by(o made) m {
	bare, group, _ := strings.Cut(o.kind, ".")
	version := "v1"
	switch group {
	case "apps.kruise.io":
		version = group + "/v1beta1"
	case "":
	default:
		version = group + "/v1"
	}
	return m{"metadata.ownerReferences": []m{{"apiVersion": version, "kind": bare, "name": o.name, "uid": o.uid, "controller": true}}}
}

func with(parts ...m) m {
	all := m{}
	for _, p := range parts {
		maps.Copy(all, p)
	}
	return all
}

func annotated(key, value string) m { return m{"metadata.annotations": m{key: value}} }

// podOn makes a pod on node1, with parts as for make.
func (a *api) podOn(t *testing.T, namespace, name string, parts ...m) made {
	t.Helper()
	return a.make(t, "Pod", namespace, name, onNode1(parts...))
}

// onNode1 are the parts of a pod on node1.
func onNode1(parts ...m) m {
	spec := m{"spec": m{"nodeName": "node1", "containers": []m{{"name": "c", "image": "i"}}}}
	return with(append([]m{spec}, parts...)...)
}

// listed writes the pod into the list of its VirtualMachineInstance, as KubeVirt's virt-controller does.
func (a *api) listed(t *testing.T, run, pod made) made {
	t.Helper()
	a.merge(t, run.path()+"/status", m{"status": m{"activePods": m{string(pod.uid): "node1"}}})
	return pod
}

// setOf makes a StatefulSet with a spec.
func (a *api) setOf(t *testing.T, kind, namespace, name string, spec m) made {
	t.Helper()
	return a.make(t, kind, namespace, name, setSpec(name, spec))
}

// setSpec is the spec of a StatefulSet with the name.
func setSpec(name string, more m) m {
	labels := m{"app": name}
	full := m{"serviceName": name, "selector": m{"matchLabels": labels}, "template": m{"metadata": m{"labels": labels}, "spec": m{"containers": []m{{"name": "c", "image": "i"}}}}}
	return m{"spec": with(full, more)}
}

func (a *api) delete(t *testing.T, o made) {
	t.Helper()
	a.ask(t, http.MethodDelete, o.path()+"?gracePeriodSeconds=0", "", nil)
}

func (a *api) merge(t *testing.T, path string, change m) {
	t.Helper()
	b, err := json.Marshal(change)
	if err != nil {
		t.Fatal(err)
	}
	a.ask(t, http.MethodPatch, path, "application/merge-patch+json", b)
}

// owners returns Owners with the rights of the agent's service account, and their log.
func (a *api) owners(t *testing.T) (*kube.Owners, *node.Log) {
	t.Helper()
	user := "{token: " + a.token(t) + "}"
	return connected(t, a, "agent.conf", user)
}

// config writes a kubeconfig file for the API at the address, and returns its path. user is YAML, as in such a file.
func (a *api) config(t *testing.T, server, file, user string) string {
	t.Helper()
	path, err := a.Config(server, file, user)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// connected returns Owners with the credentials of user. They know the pods of node1.
func connected(t *testing.T, a *api, file, user string) (*kube.Owners, *node.Log) {
	t.Helper()
	path := a.config(t, "https://"+apiAddress, file, user)
	log := &node.Log{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	client, err := kube.Connect(path, logger)
	if err != nil {
		t.Fatal(err)
	}
	o := kube.NewOwners(client, "node1", logger)
	return o, log
}

func question(pod made) owner.Question {
	return owner.Question{Pod: attachment.Pod{Namespace: pod.namespace, Name: pod.name, UID: string(pod.uid)}, Network: "lan", IfName: "eth0"}
}

func lasting(of made, ordinal attachment.Ordinal) owner.Answer {
	kind, group, _ := strings.Cut(of.kind, ".")
	return owner.Answer{Owner: attachment.Owner{Group: group, Kind: kind, Namespace: of.namespace, Name: of.name, UID: string(of.uid), Ordinal: ordinal}, Persistent: true, SinglePod: true}
}

func itself(pod made) owner.Answer {
	return owner.Answer{Owner: attachment.Owner{Kind: "pod", Namespace: pod.namespace, Name: pod.name, UID: string(pod.uid)}, SinglePod: true}
}
