package attachment

import "fmt"

// OwnerPod is the Kind of an owner that is a pod. Without a UID it is known by namespace and name: the next pod of
// that name is the same owner.
const OwnerPod = "pod"

// Owner is the workload that an address belongs to. Two owners are one if all fields are equal. The zero Owner is
// nobody.
type Owner struct {
	// Group is the API group of Kind, such as "apps". It is empty for the core group.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Group string `json:"group,omitempty"`
	// Kind is as in Kubernetes, such as "StatefulSet", or "pod" (OwnerPod).
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind,omitempty"`
	// Namespace is the owner's.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// Name is the owner's.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name,omitempty"`
	// UID is that of the owner's object. It is empty for a pod that is known by its name.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	UID string `json:"uid,omitempty"`
	// Ordinal tells the pods of a StatefulSet apart.
	//
	// +optional
	// +kubebuilder:validation:Type=integer
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483646
	Ordinal Ordinal `json:"ordinal,omitzero"`
}

// Owner returns the pod as an owner by its name, nobody for a pod without a name or a namespace: pods of one name in
// two namespaces are two owners.
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
	s := fmt.Sprintf("%s %s/%s", o.Kind, o.Namespace, o.Name)
	if number, ok := o.Ordinal.Number(); ok {
		s += fmt.Sprintf(", ordinal %d", number)
	}
	return s
}
