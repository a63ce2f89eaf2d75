package deploy

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	flowv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/relink-cni/relink/pkg/pool"
)

// of returns the objects of one kind.
func of[T runtime.Object](objects []runtime.Object) (all []T) {
	for _, o := range objects {
		if one, is := o.(T); is {
			all = append(all, one)
		}
	}
	return all
}

// What agents, the controller and operators may do with pools, and nothing else. Who is an operator, the cluster says. test/cluster shows
// it on an API.
func TestRightsOfPools(t *testing.T) {
	const group = pool.Group
	agents := []rbacv1.PolicyRule{
		rule(group, "addresspools", "get list watch patch"), rule(group, "addresspools/status", "update"), rule(group, "addressblocks", "get list watch create update patch delete"),
		rule(group, "addressclaims", "get list watch create update patch delete"), rule("", "nodes", "get list watch"),
	}
	leases := rule("coordination.k8s.io", "leases", "get update")
	leases.ResourceNames = []string{"relink-controller"}
	want := map[string][]rbacv1.PolicyRule{
		"relink-agent-pools": agents,
		"relink-nodes-pools": agents,
		"relink-controller": {
			rule(group, "addresspools", "get list watch patch"), {APIGroups: []string{group}, Resources: []string{"addresspools/status", "addresspools/finalizers"}, Verbs: []string{"update"}},
			rule(group, "addressblocks", "list watch update delete"), rule(group, "addressclaims", "list watch delete"),
			rule("", "nodes", "get list watch"),
			rule("", "events", "create patch"),
		},
		"relink-viewer": {
			{APIGroups: []string{group}, Resources: []string{"addresspools", "addressblocks", "addressclaims"}, Verbs: []string{"get", "list"}}, rule("", "nodes", "list"),
			rule("", "pods", "get"), rule("apps", "statefulsets", "get"), rule("apps.kruise.io", "statefulsets", "get"),
			{APIGroups: []string{"kubevirt.io"}, Resources: []string{"virtualmachines", "virtualmachineinstances"}, Verbs: []string{"get"}},
		},
		"relink-system/relink-viewer": {rule("", "pods", "list"), rule("", "pods/proxy", "get")},
		"relink-controller-owners": {
			{APIGroups: []string{"apps", "apps.kruise.io"}, Resources: []string{"statefulsets"}, Verbs: []string{"get"}},
			{APIGroups: []string{"kubevirt.io"}, Resources: []string{"virtualmachines", "virtualmachineinstances"}, Verbs: []string{"get"}},
		},
		"relink-operator":                 {rule(group, "addressblocks", "get list update"), rule("", "nodes", "get patch")},
		"relink-system/relink-controller": {rule("coordination.k8s.io", "leases", "create"), leases},
	}
	account := func(name string) []rbacv1.Subject {
		return []rbacv1.Subject{{Kind: "ServiceAccount", Name: name, Namespace: "relink-system"}}
	}
	subjects := map[string][]rbacv1.Subject{
		"relink-agent-pools": account("relink-agent"), "relink-controller": account("relink-controller"), "relink-system/relink-controller": account("relink-controller"),
		"relink-controller-owners": account("relink-controller"),
		"relink-nodes-pools":       {{Kind: "Group", APIGroup: "rbac.authorization.k8s.io", Name: "system:nodes"}},
	}
	rules, bound := map[string][]rbacv1.PolicyRule{}, map[string][]rbacv1.Subject{}
	objects := slices.Concat(built(t, "pools"), built(t, "pools/nodes"))
	for _, r := range of[*rbacv1.ClusterRole](objects) {
		rules[r.Name] = r.Rules
	}
	for _, r := range of[*rbacv1.Role](objects) {
		rules[r.Namespace+"/"+r.Name] = r.Rules
	}
	for _, b := range of[*rbacv1.ClusterRoleBinding](objects) {
		bound[b.RoleRef.Name] = b.Subjects
	}
	for _, b := range of[*rbacv1.RoleBinding](objects) {
		bound[b.Namespace+"/"+b.RoleRef.Name] = b.Subjects
	}
	if diff := cmp.Diff(want, rules); diff != "" {
		t.Errorf("the rules differ:\n%s", diff)
	}
	if diff := cmp.Diff(subjects, bound); diff != "" {
		t.Errorf("who has them differs:\n%s", diff)
	}
}

// The controller needs nothing of the node. test/cluster shows that its pod is of the level restricted.
func TestController(t *testing.T) {
	for _, dir := range []string{"examples/pools", "examples/pools-reclaim", "examples/pools-systemd"} {
		all := of[*appsv1.Deployment](built(t, dir))
		if len(all) != 1 {
			t.Fatalf("%s has %d Deployments", dir, len(all))
		}
		pod := all[0].Spec.Template.Spec
		c := pod.Containers[0]
		if *all[0].Spec.Replicas != 2 || pod.ServiceAccountName != "relink-controller" || c.Image != "registry.example/relink:v1.0.0" || !slices.Equal(c.Command, []string{"/relink-agent", "--controller", "--metrics-listen", ":9477"}) {
			t.Errorf("%s: %d replicas as %s run %v of %s", dir, *all[0].Spec.Replicas, pod.ServiceAccountName, c.Command, c.Image)
		}
		if pod.HostNetwork || pod.HostPID || pod.HostIPC || len(pod.Volumes)+len(c.VolumeMounts)+len(pod.Tolerations) > 0 || len(c.SecurityContext.Capabilities.Add) > 0 {
			t.Errorf("%s: it has something of the node: %+v", dir, pod)
		}
	}
}

// Each policy is bound, and refuses if it cannot be evaluated. Those of the agents begin with the same question: who is it, and of which
// node. The one for the deletion of blocks binds exactly those that are no agents.
func TestPolicies(t *testing.T) {
	objects := built(t, "pools")
	bindings := map[string][]admissionv1.ValidationAction{}
	for _, b := range of[*admissionv1.ValidatingAdmissionPolicyBinding](objects) {
		bindings[b.Spec.PolicyName] = b.Spec.ValidationActions
	}
	all := of[*admissionv1.ValidatingAdmissionPolicy](objects)
	if len(all) != 7 {
		t.Fatalf("%d policies, want one each for pools, blocks and claims, and four for people", len(all))
	}
	for _, p := range all {
		if *p.Spec.FailurePolicy != admissionv1.Fail || !slices.Equal(bindings[p.Name], []admissionv1.ValidationAction{admissionv1.Deny}) {
			t.Errorf("%s: %s, %v", p.Name, *p.Spec.FailurePolicy, bindings[p.Name])
		}
		if text, err := json.Marshal(p.Spec); err != nil || bytes.Contains(text, []byte("relink-system")) {
			t.Errorf("%s holds in one namespace only: %v", p.Name, err)
		}
		first := all[0].Spec
		switch p.Name {
		case "relink-pools-finalizer", "relink-pools-ranges", "relink-pools-in-use":
			continue // They bind people: all but the controller, or all.
		case "relink-blocks-in-use":
			if got, want := p.Spec.MatchConditions[0].Expression, "!("+first.MatchConditions[0].Expression+")"; got != want {
				t.Errorf("%s binds those for whom %s, want %s", p.Name, got, want)
			}
			continue
		}
		if diff := cmp.Diff(first.MatchConditions, p.Spec.MatchConditions) + cmp.Diff(first.Variables[0], p.Spec.Variables[0]) + cmp.Diff(first.Validations[0], p.Spec.Validations[0]); diff != "" {
			t.Errorf("%s asks otherwise than %s who it is:\n%s", p.Name, all[0].Name, diff)
		}
		for i, v := range p.Spec.Validations {
			if *v.Reason != "Forbidden" || v.MessageExpression == "" || i > 0 && !strings.HasPrefix(v.MessageExpression, "variables.mayNot + ") {
				t.Errorf("%s: %q does not say what the node may not do: %s", p.Name, v.Message, v.MessageExpression)
			}
		}
	}
}

// All flows are of the agents' own level, and come before those that Kubernetes has for all.
func TestFlows(t *testing.T) {
	objects := slices.Concat(built(t, "pools"), built(t, "pools/nodes"))
	levels := of[*flowv1.PriorityLevelConfiguration](objects)
	if len(levels) != 1 {
		t.Fatalf("%d levels", len(levels))
	}
	builtIn := map[string]int32{"relink-nodes": 500, "relink": 900, "relink-lists": 900}
	for _, f := range of[*flowv1.FlowSchema](objects) {
		if f.Spec.PriorityLevelConfiguration.Name != levels[0].Name || f.Spec.MatchingPrecedence >= builtIn[f.Name] {
			t.Errorf("%s has the precedence %d, in level %s", f.Name, f.Spec.MatchingPrecedence, f.Spec.PriorityLevelConfiguration.Name)
		}
		delete(builtIn, f.Name)
	}
	if len(builtIn) > 0 {
		t.Errorf("there are no flows %v", builtIn)
	}
}

// The definitions come with pools only. A cluster without pools has nothing new.
func TestDefinitions(t *testing.T) {
	type count struct{ definitions, policies int }
	for dir, want := range map[string]count{"base": {}, "examples/registry": {}, "examples/reclaim": {}, "examples/k3s": {}, "examples/pools": {3, 7}, "examples/pools-reclaim": {3, 7}, "examples/pools-systemd": {3, 7}} {
		objects := built(t, dir)
		has := count{len(of[*unstructured.Unstructured](objects)), len(of[*admissionv1.ValidatingAdmissionPolicy](objects))}
		if has != want {
			t.Errorf("%s has %d CustomResourceDefinitions and %d policies, want %+v", dir, has.definitions, has.policies, want)
		}
	}
}
