package cluster

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/relink-cni/relink/pkg/pool"
)

// verbs are those that somebody could have. The rights of the agents and of the controller are exactly what is listed for them.
var verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// agentNeeds is what an agent does in the API for shared pools, controllerNeeds what the controller does, operatorNeeds what a person
// does who fences a node, and viewerNeeds what one does who looks.
var (
	agentNeeds = map[string]string{
		"addresspools":        "get list watch patch",
		"addresspools/status": "update",
		"addressblocks":       "get list watch create update patch delete",
		"addressclaims":       "get list watch create update patch delete",
		"nodes":               "get list watch",
	}
	controllerNeeds = map[string]string{
		"addresspools":            "get list watch patch",
		"addresspools/status":     "update",
		"addresspools/finalizers": "update",
		"addressblocks":           "list watch update delete",
		"addressclaims":           "list watch delete",
		"nodes":                   "get list watch",
		"pods":                    "",
		"events":                  "create patch",
		"leases":                  "get create update",
	}
	operatorNeeds = map[string]string{"addressblocks": "get list update", "nodes": "get patch"}
	viewerNeeds   = map[string]string{"addresspools": "get list", "addressblocks": "get list", "addressclaims": "get list", "nodes": "list", "pods": "get", "statefulsets": "get",
		"virtualmachines": "get", "virtualmachineinstances": "get"}
)

// can asks the API what the user may do with a resource.
func (u user) can(t *testing.T, verb, resource string) bool {
	t.Helper()
	bare, sub, _ := strings.Cut(resource, "/")
	of := m{"verb": verb, "group": pool.Group, "resource": bare, "subresource": sub, "name": "any"}
	switch bare {
	case "nodes", "pods", "events":
		of["group"] = ""
	case "statefulsets":
		of["group"] = "apps"
	case "virtualmachines", "virtualmachineinstances":
		of["group"] = "kubevirt.io"
	case "leases":
		of["group"], of["namespace"], of["name"] = "coordination.k8s.io", "relink-system", "relink-controller"
	}
	var review struct {
		Status struct {
			Allowed bool `json:"allowed"`
		} `json:"status"`
	}
	u.must(t, http.MethodPost, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", m{"spec": m{"resourceAttributes": of}}, &review)
	return review.Status.Allowed
}

// has returns what the user may do with the resource.
func (u user) has(t *testing.T, resource string) string {
	t.Helper()
	var all []string
	for _, verb := range verbs {
		if u.can(t, verb, resource) {
			all = append(all, verb)
		}
	}
	return strings.Join(all, " ")
}

// eachPoolRule compares what somebody may do with what they need, and takes the rules of the roles away, one after the other: no rule has
// what another one has, too.
func (a *api) eachPoolRule(t *testing.T, users map[string]user) {
	const roles = "/apis/rbac.authorization.k8s.io/v1/"
	a.ask(t, http.MethodDelete, where["ClusterRoleBinding"]+"/relink-agent-conditions", "", nil) // It has rules of the others, too.
	for _, try := range []struct {
		who, path, kind string
		needs           map[string]string
		// also is what other roles have.
		also map[string]string
	}{
		{"node1", roles + "clusterroles/relink-agent-pools", "ClusterRole", agentNeeds, map[string]string{"pods": "get list watch", "events": "create patch"}},
		{"node1's unit", roles + "clusterroles/relink-nodes-pools", "ClusterRole", agentNeeds, nil},
		{"controller", roles + "clusterroles/relink-controller", "ClusterRole", controllerNeeds, nil},
		{"controller", roles + "namespaces/relink-system/roles/relink-controller", "Role", controllerNeeds, nil},
		{"operator", roles + "clusterroles/relink-operator", "ClusterRole", operatorNeeds, nil},
		{"viewer", roles + "clusterroles/relink-viewer", "ClusterRole", viewerNeeds, nil},
	} {
		u := users[try.who]
		for resource := range controllerNeeds {
			want := try.needs[resource] + try.also[resource]
			if try.who == "node1's unit" && (resource == "pods" || resource == "nodes" || resource == "events" || resource == "leases") {
				continue // A kubelet has other rights, too.
			}
			if got := u.has(t, resource); got != want {
				t.Errorf("%s may %s %s, want %s", try.who, got, resource, want)
			}
		}
		var whole struct{ Rules []rights }
		if err := json.Unmarshal(a.ask(t, http.MethodGet, try.path, "", nil), &whole); err != nil || len(whole.Rules) == 0 {
			t.Fatalf("%+v, %v", whole, err)
		}
		apply := func(rules []rights) {
			a.merge(t, try.path, m{"rules": rules})
		}
		for i, rule := range whole.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					if !strings.Contains(try.needs[resource], verb) {
						t.Errorf("%s of %s has %s of %s, and nobody needs it", try.kind, try.who, verb, resource)
					}
				}
			}
			if rule.APIGroups[0] == "apps.kruise.io" {
				continue // As the one of apps.
			}
			lost := func() bool { return !u.can(t, rule.Verbs[0], rule.Resources[0]) }
			apply(slices.Delete(slices.Clone(whole.Rules), i, i+1))
			await(t, 30*time.Second, fmt.Sprintf("the loss of %v", rule), lost)
			apply(whole.Rules)
			await(t, 30*time.Second, fmt.Sprintf("the return of %v", rule), func() bool { return !lost() })
		}
	}
}

// rights is a rule of a role.
type rights struct {
	APIGroups     []string `json:"apiGroups"`
	Resources     []string `json:"resources"`
	ResourceNames []string `json:"resourceNames,omitempty"`
	Verbs         []string `json:"verbs"`
}

// flows shows in which flow the API handles what somebody asks.
func (a *api) flows(t *testing.T, users map[string]user) {
	uid := func(kind, name string) string {
		var o struct {
			Metadata pool.Meta `json:"metadata"`
		}
		if err := json.Unmarshal(a.ask(t, http.MethodGet, where[kind]+"/"+name, "", nil), &o); err != nil {
			t.Fatal(err)
		}
		return o.Metadata.UID
	}
	for _, try := range []struct{ who, method, path, flow, level string }{
		{"node1", http.MethodGet, blocks + "/lan-0", "relink", "relink"},
		{"node1", http.MethodPost, claims, "relink", "relink"},
		{"node1", http.MethodGet, blocks, "relink-lists", "relink"},
		{"node1", http.MethodGet, "/api/v1/nodes/node1", "service-accounts", "workload-low"},
		{"node1's unit", http.MethodGet, blocks + "/lan-0", "relink-nodes", "relink"},
		{"node1's unit", http.MethodGet, claims, "relink-nodes", "relink"},
		{"node1's unit", http.MethodGet, "/api/v1/pods?fieldSelector=spec.nodeName=node1", "system-nodes", "system"},
		{"controller", http.MethodGet, pools, "relink-lists", "relink"},
		{"controller", http.MethodGet, "/api/v1/nodes", "service-accounts", "workload-low"},
	} {
		var got [2]string
		want := [2]string{uid("FlowSchema", try.flow), uid("PriorityLevelConfiguration", try.level)}
		for deadline := time.Now().Add(30 * time.Second); got != want && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
			_, answer := users[try.who].send(t, try.method, try.path, m{})
			got = [2]string{answer.Header.Get("X-Kubernetes-Pf-Flowschema-Uid"), answer.Header.Get("X-Kubernetes-Pf-Prioritylevel-Uid")}
		}
		if got != want {
			t.Errorf("%s %s of %s is not in %s of %s", try.method, try.path, try.who, try.flow, try.level)
		}
	}
}

// restricted makes pods as the Deployment and the DaemonSet would, in a namespace of the level restricted.
func (a *api) restricted(t *testing.T) {
	a.create(t, "/api/v1/namespaces", m{"metadata": m{"name": "strict", "labels": m{"pod-security.kubernetes.io/enforce": "restricted"}}}, &struct{}{})
	objects := built(t, "examples/pools")
	for kind, want := range map[string]string{"Deployment": "", "DaemonSet": "violates PodSecurity"} {
		for _, r := range objects {
			if r.GetKind() != kind {
				continue
			}
			object, err := r.Map()
			if err != nil {
				t.Fatal(err)
			}
			template := object["spec"].(m)["template"].(m)
			template["metadata"].(m)["name"] = strings.ToLower(kind)
			said, answer := user{a.http, adminToken}.send(t, http.MethodPost, "/api/v1/namespaces/strict/pods", template)
			check(t, kind, said, answer, http.StatusForbidden, want)
		}
	}
}
