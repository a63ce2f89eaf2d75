package kube

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/owner"
)

// by is a reference of a controller. Its UID is "uid-of-NAME".
func by(version, kind, name string) *metav1.OwnerReference {
	is := true
	return &metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: uidOf(name), Controller: &is}
}

func podBy(name string, r *metav1.OwnerReference) *metav1.ObjectMeta {
	pod := &metav1.ObjectMeta{Namespace: "shop", Name: name, UID: uidOf(name)}
	if r != nil {
		pod.OwnerReferences = []metav1.OwnerReference{*r}
	}
	return pod
}

func labelled(pod *metav1.ObjectMeta, key, value string) *metav1.ObjectMeta {
	pod.Labels = map[string]string{key: value}
	return pod
}

// reads are what the API says of one reference after the other. asked are the references.
type reads struct {
	referents []referent
	asked     []*metav1.OwnerReference
}

func (r *reads) read(reference *metav1.OwnerReference) (referent, error) {
	r.asked = append(r.asked, reference)
	if len(r.asked) > len(r.referents) {
		return referent{}, errors.New("nobody knows")
	}
	return r.referents[len(r.asked)-1], nil
}

func TestDecide(t *testing.T) {
	const vmi, vm = "VirtualMachineInstance", "VirtualMachine"
	web, kruise := by("apps/v1", "StatefulSet", "web"), by("apps.kruise.io/v1beta1", "StatefulSet", "web")
	run, machine := by("kubevirt.io/v1", vmi, "db"), by("kubevirt.io/v1", vm, "db")
	noController := *web
	noController.Controller = nil
	lasts := func(group, kind, name string, ordinal attachment.Ordinal) decision {
		return decision{Answer: owner.Answer{Owner: attachment.Owner{Group: group, Kind: kind, Namespace: "shop", Name: name, UID: "uid-of-" + name, Ordinal: ordinal}, Persistent: true, SinglePod: true}}
	}
	itself := func(name string) decision {
		return decision{Answer: owner.Answer{Owner: attachment.Owner{Kind: "pod", Namespace: "shop", Name: name, UID: "uid-of-" + name}, SinglePod: true}}
	}
	there, gone := referent{exists: true}, referent{}
	// lists is the sighting of a VirtualMachineInstance that lists the launchers of the table.
	lists := func(controller *metav1.OwnerReference) referent {
		return referent{exists: true, controller: controller, active: map[types.UID]string{uidOf("virt-launcher-db-x"): "node1", uidOf("virt-launcher-db-y"): ""}}
	}
	index := appsv1.PodIndexLabel
	for name, test := range map[string]struct {
		pod  *metav1.ObjectMeta
		seen []referent
		want decision
		why  string
	}{
		"a pod":              {podBy("a", nil), nil, itself("a"), "nothing controls the pod"},
		"of a Deployment":    {podBy("web-0", by("apps/v1", "ReplicaSet", "web")), nil, itself("web-0"), "the pods of its ReplicaSet can stand in for each other"},
		"of another's kind":  {podBy("web-0", by("example.org/v1", "StatefulSet", "web")), nil, itself("web-0"), "the pods of its StatefulSet can stand in for each other"},
		"no group at all":    {podBy("web-0", by("a/b/c", "StatefulSet", "web")), nil, itself("web-0"), "the pods of its StatefulSet can stand in for each other"},
		"not the controller": {podBy("web-0", &noController), nil, itself("web-0"), "nothing controls the pod"},

		"of a StatefulSet":           {podBy("web-7", web), []referent{there}, lasts("apps", "StatefulSet", "web", 8), "a StatefulSet of apps controls the pod"},
		"with the label":             {labelled(podBy("web-0", web), index, "0"), []referent{there}, lasts("apps", "StatefulSet", "web", 1), "a StatefulSet of apps controls the pod"},
		"of OpenKruise":              {podBy("web-2", kruise), []referent{there}, lasts("apps.kruise.io", "StatefulSet", "web", 3), "a StatefulSet of apps.kruise.io controls the pod"},
		"its set is gone":            {podBy("web-7", web), []referent{gone}, itself("web-7"), "no StatefulSet has the UID of the pod's controller"},
		"a label of the template":    {labelled(podBy("web-1", web), index, "0"), nil, itself("web-1"), `the pod's label apps.kubernetes.io/pod-index is "0", and its name says 1`},
		"a label that is no number":  {labelled(podBy("web-1", web), index, "one"), nil, itself("web-1"), `the pod's label apps.kubernetes.io/pod-index is "one", and its name says 1`},
		"a label alone":              {labelled(podBy("db", web), index, "0"), nil, itself("db"), "a StatefulSet controls the pod, but its name is not web-ORDINAL"},
		"another set's name":         {podBy("webs-1", web), nil, itself("webs-1"), "a StatefulSet controls the pod, but its name is not web-ORDINAL"},
		"a longer name":              {podBy("web-a-1", web), nil, itself("web-a-1"), "a StatefulSet controls the pod, but its name is not web-ORDINAL"},
		"a number in another way":    {podBy("web-01", web), nil, itself("web-01"), "a StatefulSet controls the pod, but its name is not web-ORDINAL"},
		"a number below zero":        {podBy("web--1", web), nil, itself("web--1"), "a StatefulSet controls the pod, but its name is not web-ORDINAL"},
		"a number that is too large": {podBy("web-2147483647", web), nil, itself("web-2147483647"), "a StatefulSet controls the pod, but its name is not web-ORDINAL"},

		"a launcher":               {podBy("virt-launcher-db-x", run), []referent{lists(machine), there}, lasts("kubevirt.io", vm, "db", 0), "the pod's VirtualMachineInstance is of a VirtualMachine"},
		"the target of a move":     {labelled(podBy("virt-launcher-db-y", run), "kubevirt.io/migrationJobUID", "m"), []referent{lists(machine), there}, lasts("kubevirt.io", vm, "db", 0), "the pod's VirtualMachineInstance is of a VirtualMachine"},
		"a label of another VM":    {labelled(podBy("virt-launcher-db-x", run), "vm.kubevirt.io/name", "other"), []referent{lists(machine), there}, lasts("kubevirt.io", vm, "db", 0), "the pod's VirtualMachineInstance is of a VirtualMachine"},
		"a VMI alone":              {podBy("virt-launcher-db-x", run), []referent{lists(nil)}, lasts("kubevirt.io", vmi, "db", 0), "a VirtualMachineInstance without a VirtualMachine controls the pod"},
		"a VMI of something else":  {podBy("virt-launcher-db-x", run), []referent{lists(by("pool.kubevirt.io/v1", "VirtualMachinePool", "p"))}, lasts("kubevirt.io", vmi, "db", 0), "a VirtualMachineInstance controls the pod, and a VirtualMachinePool controls that"},
		"a VMI of a VMI":           {podBy("virt-launcher-db-x", run), []referent{lists(run)}, lasts("kubevirt.io", vmi, "db", 0), "a VirtualMachineInstance controls the pod, and a VirtualMachineInstance controls that"},
		"its VMI is gone":          {podBy("virt-launcher-db-x", run), []referent{gone}, itself("virt-launcher-db-x"), "no VirtualMachineInstance has the UID of the pod's controller"},
		"its VM is gone":           {podBy("virt-launcher-db-x", run), []referent{lists(machine), gone}, lasts("kubevirt.io", vmi, "db", 0), "no VirtualMachine has the UID of the controller of the pod's VirtualMachineInstance"},
		"an attachment pod":        {podBy("hp-volume-x", by("v1", "Pod", "virt-launcher-db-x")), nil, itself("hp-volume-x"), "the pods of its Pod can stand in for each other"},
		"a VM controls it at once": {podBy("x", machine), nil, itself("x"), "the pods of its VirtualMachine can stand in for each other"},
	} {
		t.Run(name, func(t *testing.T) {
			reads := &reads{referents: test.seen}
			got, err := decide(test.pod, reads.read)
			if err != nil || len(reads.asked) != len(test.seen) || got.Owner != test.want.Owner || got.Persistent != test.want.Persistent || got.SinglePod != test.want.SinglePod || got.reason != test.why {
				t.Errorf("%+v after %v, %v,\nwant %+v because %q", got, reads.asked, err, test.want, test.why)
			}
		})
	}
}

// The second sighting is that of the VMI's controller, and not of anything that the pod says. Without it there is no decision.
func TestDecideAsksForTheController(t *testing.T) {
	pod := podBy("virt-launcher-db-x", by("kubevirt.io/v1", "VirtualMachineInstance", "db"))
	none := &reads{}
	if d, err := decide(pod, none.read); err == nil || d.Owner != (attachment.Owner{}) || none.asked[0].Kind != "VirtualMachineInstance" || none.asked[0].UID != "uid-of-db" {
		t.Errorf("%+v, %v, asked %+v", d, err, none.asked)
	}
	vm := by("kubevirt.io/v1", "VirtualMachine", "vm-of-db")
	one := &reads{referents: []referent{{exists: true, controller: vm, active: map[types.UID]string{pod.UID: "node1"}}}}
	if d, err := decide(pod, one.read); err == nil || d.Owner != (attachment.Owner{}) || len(one.asked) != 2 || one.asked[1] != vm {
		t.Errorf("%+v, %v, asked %+v", d, err, one.asked)
	}
	none = &reads{}
	if d, err := decide(podBy("web-7", by("apps/v1", "StatefulSet", "web")), none.read); err == nil || d.Owner != (attachment.Owner{}) {
		t.Errorf("a StatefulSet: %+v, %v", d, err)
	}
}

// A pod that refers to a VirtualMachineInstance, and that the instance does not list, has no owner: not the machine, and not
// itself.
func TestDecideAPodThatTheInstanceDoesNotList(t *testing.T) {
	pod := podBy("evil", by("kubevirt.io/v1", "VirtualMachineInstance", "db"))
	vm := by("kubevirt.io/v1", "VirtualMachine", "db")
	others := map[types.UID]string{uidOf("virt-launcher-db-x"): "node1", "": "node1", types.UID(pod.Name): "node1"}
	for name, run := range map[string]referent{
		"no list":             {exists: true, controller: vm},
		"others":              {exists: true, controller: vm, active: others},
		"a VMI without VM":    {exists: true, active: others},
		"a VMI of a stranger": {exists: true, active: others, controller: by("example.org/v1", "Thing", "x")},
	} {
		reads := &reads{referents: []referent{run}}
		got, err := decide(pod, reads.read)
		const want = "the VirtualMachineInstance db, which controls the pod shop/evil, does not list the pod's UID uid-of-evil in status.activePods"
		if got.Owner != (attachment.Owner{}) || len(reads.asked) != 1 || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v, want %q", name, got, err, want)
		}
	}
}

// The other pods of one run of a machine are those of a migration.
func TestDecideSiblings(t *testing.T) {
	pod := podBy("virt-launcher-db-y", by("kubevirt.io/v1", "VirtualMachineInstance", "db"))
	many := map[types.UID]string{pod.UID: "node1"}
	for i := range 2 * maxSiblings {
		many[types.UID(fmt.Sprintf("%03d", i))] = ""
	}
	for name, test := range map[string]struct {
		active map[types.UID]string
		want   string
	}{
		"no migration": {map[types.UID]string{pod.UID: "node1"}, "[]"},
		"a migration":  {map[types.UID]string{pod.UID: "node2", "b": "node1", "a": ""}, "[a b]"},
	} {
		d, err := decide(pod, (&reads{referents: []referent{{exists: true, active: test.active}}}).read)
		if got := fmt.Sprint(d.Siblings); err != nil || got != test.want {
			t.Errorf("%s: %s, %v, want %s", name, got, err, test.want)
		}
	}
	if d, err := decide(pod, (&reads{referents: []referent{{exists: true, active: many}}}).read); err != nil || len(d.Siblings) != maxSiblings || d.Siblings[maxSiblings-1] != "031" {
		t.Errorf("many pods: %v, %v", d.Siblings, err)
	}
}
