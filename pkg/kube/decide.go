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
	"github.com/relink-cni/relink/pkg/owner"
)

// decision says who the owner of a pod's addresses is.
type decision struct {
	owner.Answer
	// instanceUID is the UID of the VirtualMachineInstance whose launcher the pod is, empty for any other pod.
	instanceUID types.UID
	// reason is the reason in words.
	reason string
}

// referent is what the API says of the object that a reference names.
type referent struct {
	// exists says that it exists with the UID of the reference. A reference counts only then.
	exists bool
	// controller is what controls the object itself. It may be nil.
	controller *metav1.OwnerReference
	// active are the pods that a VirtualMachineInstance lists, by UID.
	active map[types.UID]string
}

// reader reads the object that a reference names.
type reader func(*metav1.OwnerReference) (referent, error)

// decide finds the owner of a pod. It reads the pod's controller, and that one's controller, if the decision needs them. The error says why
// there is no decision now.
//
// Only the references that controllers write count, and never a name or a label. The label vm.kubevirt.io/name is the same
// for VMs whose long names are cut to one label, and anybody can set it. An attachment pod of KubeVirt (hp-volume) is
// controlled by a launcher: it has an address of its own. The two pods of a migration have one VM, on two nodes.
func decide(pod *metav1.ObjectMeta, read reader) (decision, error) {
	controller := metav1.GetControllerOfNoCopy(pod)
	if controller == nil {
		return podOwner(pod, "nothing controls the pod"), nil
	}
	switch k := kindOf(controller); k.Resource {
	case sets.Resource:
		return decideSet(pod, controller, k, read)
	case instances.Resource:
		return decideMachine(pod, controller, read)
	}
	return podOwner(pod, fmt.Sprintf("the pods of its %.*s can stand in for each other", maxShown, controller.Kind)), nil
}

// kindOf returns the kind of the object that is referred to. A kind that is no owner has no resource.
func kindOf(r *metav1.OwnerReference) objects.Kind {
	if version, err := schema.ParseGroupVersion(r.APIVersion); err == nil {
		for _, k := range []objects.Kind{sets, kruises, instances, machines} {
			if k.Group == version.Group && k.Name == r.Kind {
				return k
			}
		}
	}
	return objects.Kind{}
}

// podOwner is the decision for a pod that is its own owner: the next sandbox of it has the same UID.
func podOwner(pod *metav1.ObjectMeta, reason string) decision {
	workload := attachment.Owner{Kind: attachment.OwnerPod, Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID)}
	return decision{Answer: owner.Answer{Owner: workload, SinglePod: true}, reason: reason}
}

func decideSet(pod *metav1.ObjectMeta, set *metav1.OwnerReference, k objects.Kind, read reader) (decision, error) {
	ordinal, reason := ordinalOf(pod, set.Name)
	if ordinal == 0 {
		return podOwner(pod, reason), nil
	}
	switch referent, err := read(set); {
	case err != nil:
		return decision{}, err
	case !referent.exists:
		return podOwner(pod, "no StatefulSet has the UID of the pod's controller"), nil
	}
	d := lastingOwner(pod, set, k, fmt.Sprintf("a StatefulSet of %s controls the pod", k.Group))
	d.Owner.Ordinal = ordinal
	return d, nil
}

// ordinalOf returns the ordinal of a pod in the StatefulSet that controls it, and none if the pod does not tell. reason says
// why then.
//
// The controller gives a pod the name SET-ORDINAL, and looks for it by that name. Since Kubernetes 1.28 it writes the
// ordinal into a label, too. On an older cluster the label can come from the pod template: all replicas have the same then,
// so it never counts alone.
func ordinalOf(pod *metav1.ObjectMeta, set string) (ordinal attachment.Ordinal, reason string) {
	digits, found := strings.CutPrefix(pod.Name, set+"-")
	number, err := strconv.Atoi(digits)
	if !found || err != nil || strconv.Itoa(number) != digits || attachment.OrdinalOf(number) == 0 {
		return 0, fmt.Sprintf("a StatefulSet controls the pod, but its name is not %s-ORDINAL", set)
	}
	if label, found := pod.Labels[appsv1.PodIndexLabel]; found && label != digits {
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
func decideMachine(pod *metav1.ObjectMeta, run *metav1.OwnerReference, read reader) (decision, error) {
	instance, err := read(run)
	switch {
	case err != nil:
		return decision{}, err
	case !instance.exists:
		return podOwner(pod, "no VirtualMachineInstance has the UID of the pod's controller"), nil
	}
	if _, listed := instance.active[pod.UID]; !listed {
		return decision{}, fmt.Errorf("the VirtualMachineInstance %s, which controls the pod %s/%s, does not list the pod's UID %s in status.activePods: virt-controller lists a launcher soon after it has made it", run.Name, pod.Namespace, pod.Name, pod.UID)
	}
	d, err := decideLauncher(pod, run, instance.controller, read)
	d.instanceUID, d.Siblings = run.UID, siblingsOf(pod.UID, instance.active)
	return d, err
}

// maxSiblings bounds what a status can make of an answer. A machine has two pods, and some more if migrations have failed.
const maxSiblings = 32

// siblingsOf are the other pods of the instance, in order. Each start of a machine makes another instance. So two pods of one
// instance are those of a migration, whatever has become of it.
func siblingsOf(pod types.UID, active map[types.UID]string) (uids []string) {
	for uid := range active {
		if uid != pod {
			uids = append(uids, string(uid))
		}
	}
	slices.Sort(uids)
	return uids[:min(len(uids), maxSiblings)]
}

// decideLauncher finds the owner of a pod that the VirtualMachineInstance lists. vm controls that, nil for nothing.
func decideLauncher(pod *metav1.ObjectMeta, run, vm *metav1.OwnerReference, read reader) (decision, error) {
	if vm == nil {
		return lastingOwner(pod, run, instances, "a VirtualMachineInstance without a VirtualMachine controls the pod"), nil
	}
	if kindOf(vm).Resource != machines.Resource {
		return lastingOwner(pod, run, instances, fmt.Sprintf("a VirtualMachineInstance controls the pod, and a %.*s controls that", maxShown, vm.Kind)), nil
	}
	switch referent, err := read(vm); {
	case err != nil:
		return decision{}, err
	case !referent.exists:
		return lastingOwner(pod, run, instances, "no VirtualMachine has the UID of the controller of the pod's VirtualMachineInstance"), nil
	}
	return lastingOwner(pod, vm, machines, "the pod's VirtualMachineInstance is of a VirtualMachine"), nil
}

// lastingOwner is the decision for an owner that outlives its pods, and has one at a time.
func lastingOwner(pod *metav1.ObjectMeta, r *metav1.OwnerReference, k objects.Kind, reason string) decision {
	workload := attachment.Owner{Group: k.Group, Kind: k.Name, Namespace: pod.Namespace, Name: r.Name, UID: string(r.UID)}
	return decision{Answer: owner.Answer{Owner: workload, Persistent: true, SinglePod: true}, reason: reason}
}
