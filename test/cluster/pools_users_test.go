package cluster

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// addNode makes a node and the user that its agent is.
func (a *api) addNode(t *testing.T, users map[string]user, name string) {
	t.Helper()
	a.create(t, "/api/v1/nodes", m{"metadata": m{"name": name}}, &struct{}{})
	var pod metav1.PartialObjectMetadata
	a.create(t, "/api/v1/namespaces/relink-system/pods", m{"metadata": m{"name": "relink-agent-" + name}, "spec": m{
		"nodeName": name, "serviceAccountName": "relink-agent", "containers": []m{{"name": "c", "image": "i"}},
	}}, &pod)
	users[name] = user{a.http, a.tokenOf(t, "relink-agent", m{"apiVersion": "v1", "kind": "Pod", "name": pod.Name, "uid": pod.UID})}
}
