package attachment

import "fmt"

// OwnerPod is the Kind of an owner that is a pod, known by namespace and name: a
// StatefulSet's or a static one is the same owner in each of its incarnations.
const OwnerPod = "pod"

// Owner is the workload that an address belongs to. The zero Owner is nobody.
type Owner struct {
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// UID is that of the owner's object, where the owner is known by more than its
	// name. It is empty for OwnerPod: the next incarnation has another.
	UID string `json:"uid,omitempty"`
}

// Owner returns the pod as an owner, nobody for a pod without a name or a namespace: those
// of a name are not one in all namespaces.
func (p Pod) Owner() Owner {
	if p.Name == "" || p.Namespace == "" {
		return Owner{}
	}
	return Owner{Kind: OwnerPod, Namespace: p.Namespace, Name: p.Name}
}

// String returns the owner for people to read, "-" for nobody. It is never parsed.
func (o Owner) String() string {
	if o == (Owner{}) {
		return "-"
	}
	return fmt.Sprintf("%s %s/%s", o.Kind, o.Namespace, o.Name)
}
