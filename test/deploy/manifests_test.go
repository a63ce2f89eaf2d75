package deploy

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	flowv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

const manifests = "../../deploy/kubernetes"

// built runs kustomize in the directory, and returns the objects. A key that the API does not have is an error, but not in a
// CustomResourceDefinition: test/cluster finds that.
func built(t *testing.T, dir string) []runtime.Object {
	t.Helper()
	all, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), filepath.Join(manifests, dir))
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{admissionv1.AddToScheme, appsv1.AddToScheme, corev1.AddToScheme, flowv1.AddToScheme, rbacv1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	var objects []runtime.Object
	for _, r := range all.Resources() {
		if r.GetKind() == "CustomResourceDefinition" {
			definition, err := r.Map()
			if err != nil {
				t.Fatal(err)
			}
			objects = append(objects, &unstructured.Unstructured{Object: definition})
			continue
		}
		text, err := r.AsYAML()
		if err != nil {
			t.Fatal(err)
		}
		object, _, err := decoder.Decode(text, nil, nil)
		if err != nil {
			t.Fatalf("%s: %v\n%s", r.OrgId(), err, text)
		}
		objects = append(objects, object)
	}
	return objects
}

// daemonSet returns the one DaemonSet of the directory.
func daemonSet(t *testing.T, dir string) *appsv1.DaemonSet {
	t.Helper()
	var found *appsv1.DaemonSet
	for _, o := range built(t, dir) {
		if set, ok := o.(*appsv1.DaemonSet); ok {
			if found != nil {
				t.Fatalf("%s has several DaemonSets", dir)
			}
			found = set
		}
	}
	if found == nil {
		t.Fatalf("%s has no DaemonSet", dir)
	}
	return found
}

func TestUnknownKeysAreErrors(t *testing.T) {
	scheme := runtime.NewScheme()
	_ = appsv1.AddToScheme(scheme)
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
	_, _, err := decoder.Decode([]byte("apiVersion: apps/v1\nkind: DaemonSet\nspec:\n  minReadySecond: 1\n"), &schema.GroupVersionKind{}, nil)
	if err == nil || !strings.Contains(err.Error(), "minReadySecond") {
		t.Errorf("%v", err)
	}
}

func TestDaemonSet(t *testing.T) {
	set := daemonSet(t, "base")
	pod := set.Spec.Template.Spec
	if pod.PriorityClassName != "system-node-critical" || !pod.HostNetwork || pod.HostPID {
		t.Errorf("priority %q, hostNetwork %v, hostPID %v", pod.PriorityClassName, pod.HostNetwork, pod.HostPID)
	}
	if len(pod.Tolerations) != 1 || pod.Tolerations[0] != (corev1.Toleration{Operator: corev1.TolerationOpExists}) {
		t.Errorf("it does not tolerate everything: %v", pod.Tolerations)
	}
	if most := set.Spec.UpdateStrategy.RollingUpdate.MaxUnavailable; most.IntValue() != 1 {
		t.Errorf("maxUnavailable is %v", most)
	}
	agent := pod.Containers[0]
	rights := agent.SecurityContext
	want := []corev1.Capability{"SYS_ADMIN", "NET_ADMIN", "NET_RAW", "NET_BROADCAST"}
	if !slices.Equal(rights.Capabilities.Add, want) || !slices.Equal(rights.Capabilities.Drop, []corev1.Capability{"ALL"}) || *rights.Privileged {
		t.Errorf("the agent's rights are %+v", rights)
	}
	if add := pod.InitContainers[0].SecurityContext.Capabilities.Add; len(add) > 0 {
		t.Errorf("the init container has the capabilities %v", add)
	}
	seen := 0
	for _, m := range agent.VolumeMounts {
		if m.MountPath == "/run/netns" || m.MountPath == "/var/run/netns" {
			seen++
		}
		if m.Name == "netns" && (m.MountPropagation == nil || *m.MountPropagation != corev1.MountPropagationHostToContainer) {
			t.Errorf("namespaces that come and go do not come and go in the container: %+v", m)
		}
	}
	if seen != 2 {
		t.Errorf("the node's namespaces are mounted under %d of the two names that they have", seen)
	}
}

func rule(group, resources, verbs string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: strings.Fields(resources), Verbs: strings.Fields(verbs)}
}

// The agent may write events, read pods and owners, write conditions and the status of IPAMClaims, and nothing else. Its container has the
// token for that. test/cluster shows that the agent needs each of the rules.
func TestRightsInTheAPI(t *testing.T) {
	clusterID := rule("", "namespaces", "get") // The UID of kube-system tells clusters apart.
	clusterID.ResourceNames = []string{"kube-system"}
	want := map[string][]rbacv1.PolicyRule{
		"relink-agent": {rule("", "events", "create patch"), rule("", "pods", "get")},
		"relink-agent-owners": {
			rule("", "pods", "get list watch"), clusterID, rule("apps", "statefulsets", "get list watch"), rule("apps.kruise.io", "statefulsets", "get list watch"),
			rule("kubevirt.io", "virtualmachines virtualmachineinstances", "get list watch"),
			rule("k8s.cni.cncf.io", "ipamclaims", "get"), rule("k8s.cni.cncf.io", "ipamclaims/status", "patch"),
		},
		"relink-agent-conditions": {rule("", "pods", "list watch"), rule("", "pods/status", "patch"), rule("", "nodes", "get"), rule("", "nodes/status", "patch")},
	}
	pod := daemonSet(t, "base").Spec.Template.Spec
	subject := rbacv1.Subject{Kind: "ServiceAccount", Name: pod.ServiceAccountName, Namespace: "relink-system"}
	roles, bound := map[string][]rbacv1.PolicyRule{}, map[string][]rbacv1.PolicyRule{}
	for _, o := range built(t, "base") {
		if role, is := o.(*rbacv1.ClusterRole); is {
			roles[role.Name] = role.Rules
		}
	}
	for _, o := range built(t, "base") {
		if binding, is := o.(*rbacv1.ClusterRoleBinding); is {
			bound[binding.RoleRef.Name] = roles[binding.RoleRef.Name]
			if !slices.Equal(binding.Subjects, []rbacv1.Subject{subject}) {
				t.Errorf("%s is bound to %+v, want %+v", binding.RoleRef.Name, binding.Subjects, subject)
			}
		}
	}
	if diff := cmp.Diff(want, roles); diff != "" {
		t.Errorf("the roles differ:\n%s", diff)
	}
	if diff := cmp.Diff(want, bound); diff != "" {
		t.Errorf("the roles of the agent differ:\n%s", diff)
	}
	if pod.AutomountServiceAccountToken == nil || !*pod.AutomountServiceAccountToken {
		t.Error("the agent gets no token")
	}
}

// To prove that a sandbox is gone, the agent sees all processes and asks the container runtime.
func TestReclaimExample(t *testing.T) {
	for _, dir := range []string{"examples/reclaim", "examples/pools-reclaim"} {
		provesThatSandboxesAreGone(t, daemonSet(t, dir).Spec.Template.Spec)
	}
}

func provesThatSandboxesAreGone(t *testing.T, pod corev1.PodSpec) {
	t.Helper()
	agent := pod.Containers[0]
	want := []corev1.Capability{"SYS_ADMIN", "NET_ADMIN", "NET_RAW", "NET_BROADCAST", "SYS_PTRACE"}
	if !pod.HostPID || !slices.Equal(agent.SecurityContext.Capabilities.Add, want) || !slices.Equal(agent.SecurityContext.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		t.Errorf("hostPID %v, rights %+v", pod.HostPID, agent.SecurityContext.Capabilities)
	}
	if !slices.ContainsFunc(agent.VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/run/containerd" && !m.ReadOnly }) {
		t.Errorf("the runtime's socket is not mounted: %+v", agent.VolumeMounts)
	}
}

// Each volume is mounted, and each mount has its volume.
func TestVolumes(t *testing.T) {
	for _, dir := range []string{"base", "examples/registry", "examples/k3s", "examples/reclaim", "examples/pools", "examples/pools-reclaim"} {
		pod := daemonSet(t, dir).Spec.Template.Spec
		var volumes, mounted []string
		for _, v := range pod.Volumes {
			volumes = append(volumes, v.Name)
			if v.HostPath == nil || v.HostPath.Type == nil {
				t.Errorf("%s: volume %s does not say what is on the node", dir, v.Name)
			}
		}
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			for _, m := range c.VolumeMounts {
				mounted = append(mounted, m.Name)
			}
		}
		slices.Sort(volumes)
		slices.Sort(mounted)
		if !slices.Equal(volumes, slices.Compact(mounted)) {
			t.Errorf("%s: the volumes are %v, mounted are %v", dir, volumes, mounted)
		}
	}
}

func TestExamples(t *testing.T) {
	for dir, bin := range map[string]string{"examples/registry": "/opt/cni/bin", "examples/reclaim": "/opt/cni/bin", "examples/k3s": "/var/lib/rancher/k3s/data/cni"} {
		objects, pod := built(t, dir), daemonSet(t, dir).Spec.Template.Spec
		if len(objects) != 9 {
			t.Errorf("%s has %d objects, want a Namespace, a ServiceAccount, its three ClusterRoles and ClusterRoleBindings, and a DaemonSet", dir, len(objects))
		}
		for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
			if c.Image != "registry.example/relink:v1.0.0" {
				t.Errorf("%s: %s has the image %s", dir, c.Name, c.Image)
			}
		}
		if got := pod.Volumes[slices.IndexFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "cni-bin" })].HostPath.Path; got != bin {
			t.Errorf("%s puts the plugins into %s, want %s", dir, got, bin)
		}
	}
}
