package kube

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/kube/objects"
)

// decision says who the owner of a pod's addresses is. Owner, lasts and alone are as in owner.Answer.
type decision struct {
	owner        attachment.Owner
	lasts, alone bool
	// run is the UID of the VirtualMachineInstance whose launcher the pod is, empty for any other pod.
	run types.UID
	// siblings are the other launchers that the VirtualMachineInstance lists.
	siblings []string
	// why is the reason in words.
	why string
}

// sighting is what the API says of the object that a reference names.
type sighting struct {
	// is says that it exists with the UID of the reference. A reference counts only then.
	is bool
	// controller is what controls the object itself. It may be nil.
	controller *metav1.OwnerReference
	// active are the pods that a VirtualMachineInstance lists, by UID.
	active map[types.UID]string
}

// decide finds the owner of a pod. seen are the sightings so far: first of the pod's controller, then of that one's
// controller. If next is not nil, a sighting of it is needed, and there is no decision yet. The error says why there is none
// now, although all that is needed was seen.
//
// Only the references that controllers write count, and never a name or a label. The label vm.kubevirt.io/name is the same
// for VMs whose long names are cut to one label, and anybody can set it. An attachment pod of KubeVirt (hp-volume) is
// controlled by a launcher: it has an address of its own. The two pods of a migration have one VM, on two nodes.
func decide(pod *metav1.ObjectMeta, seen []sighting) (d decision, next *metav1.OwnerReference, err error) {
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller == nil {
		return itself(pod, "nothing controls the pod"), nil, nil
	}
	switch k, _ := kindOf(controller); k.Resource {
	case sets.Resource:
		d, next = decideSet(pod, controller, k, seen)
		return d, next, nil
	case instances.Resource:
		return decideMachine(pod, controller, seen)
	}
	return itself(pod, fmt.Sprintf("the pods of its %.*s can stand in for each other", mostShown, controller.Kind)), nil, nil
}

// kindOf returns the kind of the object that is referred to. ok is false for a kind that is no owner.
func kindOf(r *metav1.OwnerReference) (k objects.Kind, ok bool) {
	version, err := schema.ParseGroupVersion(r.APIVersion)
	if err != nil {
		return objects.Kind{}, false
	}
	for _, k := range []objects.Kind{sets, kruises, instances, machines} {
		if k.Group == version.Group && k.Name == r.Kind {
			return k, true
		}
	}
	return objects.Kind{}, false
}

// itself is the decision for a pod that is its own owner: the next sandbox of it has the same UID.
func itself(pod *metav1.ObjectMeta, why string) decision {
	owner := attachment.Owner{Kind: attachment.OwnerPod, Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}
	return decision{owner: owner, alone: true, why: why}
}

// byName is the decision for a static pod: the next pod of its name is the same owner.
func byName(pod attachment.Pod, why string) decision {
	return decision{owner: pod.Owner(), lasts: true, alone: true, why: why}
}

func decideSet(pod *metav1.ObjectMeta, set *metav1.OwnerReference, k objects.Kind, seen []sighting) (decision, *metav1.OwnerReference) {
	ordinal, why := ordinalOf(pod, set.Name)
	switch {
	case ordinal == 0:
		return itself(pod, why), nil
	case len(seen) == 0:
		return decision{}, set
	case !seen[0].is:
		return itself(pod, "no StatefulSet has the UID of the pod's controller"), nil
	}
	d := lasting(pod, set, k, fmt.Sprintf("a StatefulSet of %s controls the pod", k.Group))
	d.owner.Ordinal = ordinal
	return d, nil
}

// ordinalOf returns the ordinal of a pod in the StatefulSet that controls it, and none if the pod does not tell. why says
// why then.
//
// The controller gives a pod the name SET-ORDINAL, and looks for it by that name. Since Kubernetes 1.28 it writes the
// ordinal into a label, too. On an older cluster the label can come from the pod template: all replicas have the same then,
// so it never counts alone.
func ordinalOf(pod *metav1.ObjectMeta, set string) (ordinal attachment.Ordinal, why string) {
	digits, is := strings.CutPrefix(pod.Name, set+"-")
	number, err := strconv.Atoi(digits)
	if !is || err != nil || strconv.Itoa(number) != digits || attachment.OrdinalOf(number) == 0 {
		return 0, fmt.Sprintf("a StatefulSet controls the pod, but its name is not %s-ORDINAL", set)
	}
	if label, is := pod.Labels[appsv1.PodIndexLabel]; is && label != digits {
		return 0, fmt.Sprintf("the pod's label %s is %q, and its name says %d", appsv1.PodIndexLabel, label, number)
	}
	return attachment.OrdinalOf(number), ""
}

// decideMachine finds the owner of a pod that refers to a VirtualMachineInstance.
//
// virt-controller lists all pods of the instance in status.activePods: also the target of a migration, and pods that have no
// node yet (setActivePods in pkg/virt-controller/watch/vmi). It may do so a moment after the pod has come to its node. A pod that
// is not listed has no owner: if it is a launcher, its addresses are not its own.
//
// The list is no proof of who has made the pod: virt-controller lists each pod that refers to the instance as its controller.
func decideMachine(pod *metav1.ObjectMeta, run *metav1.OwnerReference, seen []sighting) (decision, *metav1.OwnerReference, error) {
	switch {
	case len(seen) == 0:
		return decision{}, run, nil
	case !seen[0].is:
		return itself(pod, "no VirtualMachineInstance has the UID of the pod's controller"), nil, nil
	}
	if _, is := seen[0].active[pod.UID]; !is {
		return decision{}, nil, fmt.Errorf("the VirtualMachineInstance %s, which controls the pod %s/%s, does not list the pod's UID %s in status.activePods: virt-controller lists a launcher soon after it has made it", run.Name, pod.Namespace, pod.Name, pod.UID)
	}
	d, next := decideLauncher(pod, run, seen)
	d.run, d.siblings = run.UID, siblingsOf(pod.UID, seen[0].active)
	return d, next, nil
}

// mostSiblings bounds what a status can make of an answer. A machine has two pods, and some more if migrations have failed.
const mostSiblings = 32

// siblingsOf are the other pods of the instance, in order. Each start of a machine makes another instance. So two pods of one
// instance are those of a migration, whatever has become of it.
func siblingsOf(pod types.UID, active map[types.UID]string) (all []string) {
	for uid := range active {
		if uid != pod {
			all = append(all, string(uid))
		}
	}
	slices.Sort(all)
	return all[:min(len(all), mostSiblings)]
}

// decideLauncher finds the owner of a pod that the VirtualMachineInstance lists.
func decideLauncher(pod *metav1.ObjectMeta, run *metav1.OwnerReference, seen []sighting) (decision, *metav1.OwnerReference) {
	vm := seen[0].controller
	if vm == nil {
		return lasting(pod, run, instances, "a VirtualMachineInstance without a VirtualMachine controls the pod"), nil
	}
	switch k, ok := kindOf(vm); {
	case !ok || k.Resource != machines.Resource:
		return lasting(pod, run, instances, fmt.Sprintf("a VirtualMachineInstance controls the pod, and a %.*s controls that", mostShown, vm.Kind)), nil
	case len(seen) == 1:
		return decision{}, vm
	case !seen[1].is:
		return lasting(pod, run, instances, "no VirtualMachine has the UID of the controller of the pod's VirtualMachineInstance"), nil
	}
	return lasting(pod, vm, machines, "the pod's VirtualMachineInstance is of a VirtualMachine"), nil
}

// lasting is the decision for an owner that outlives its pods, and has one at a time.
func lasting(pod *metav1.ObjectMeta, r *metav1.OwnerReference, k objects.Kind, why string) decision {
	owner := attachment.Owner{Group: k.Group, Kind: k.Name, Namespace: pod.Namespace, Name: r.Name, UID: string(r.UID)}
	return decision{owner: owner, lasts: true, alone: true, why: why}
}
