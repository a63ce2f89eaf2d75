package pool

// The API group and version of the objects.
const (
	Group   = "ipam.relink.dev"
	Version = "v1alpha1"
)

// Meta is what the API knows of each object. It has the fields of metav1.ObjectMeta that count here.
type Meta struct {
	Name string `json:"name"`
	// UID and ResourceVersion are empty before the object is made. A change names both.
	UID               string `json:"uid,omitempty"`
	ResourceVersion   string `json:"resourceVersion,omitempty"`
	CreationTimestamp string `json:"creationTimestamp,omitempty"`
	// Generation grows with each change of the spec, and when somebody deletes the object.
	Generation        int64             `json:"generation,omitempty"`
	DeletionTimestamp string            `json:"deletionTimestamp,omitempty"`
	Finalizers        []string          `json:"finalizers,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
}

// Party is who has addresses of a pool: the store of one network on one node. A node with a new disk is another party.
type Party struct {
	// Node is the name of the node.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Node string `json:"node"`
	// NodeUID is the UID of the node's object.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	NodeUID string `json:"nodeUID,omitempty"`
	// Network is the name of the network on that node.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][A-Za-z0-9_.-]*$`
	Network string `json:"network"`
	// Store is the random identity of the store. With the node's name it identifies the party: a copy of a node's disk has the
	// same store, and is no party of what the node has.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._-]+$`
	Store string `json:"store"`
}

// PartyKey identifies a party.
type PartyKey struct{ Node, Store string }

// Key returns what identifies the party.
func (p Party) Key() PartyKey { return PartyKey{p.Node, p.Store} }

// SameParty says whether both are the same party.
func (p Party) SameParty(o Party) bool { return p.Store != "" && p.Key() == o.Key() }
