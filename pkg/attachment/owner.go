package attachment

import "fmt"

// OwnerPod is the Kind of an owner that is a pod. It is known by namespace and name: the next pod of that name,
// of a StatefulSet for example, is the same owner.
const OwnerPod = "pod"

// Owner is the workload that an address belongs to. The zero Owner is nobody.
type Owner struct {
	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	// UID is that of the owner's object, if the owner is known by more than its name. It is empty for
	// OwnerPod: the next pod of the name has another UID.
	UID string `json:"uid,omitempty"`
}

// Owner returns the pod as an owner, nobody for a pod without a name or a namespace: pods of one name in two
// namespaces are two owners.
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
