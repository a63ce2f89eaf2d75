// Package v1alpha1 has the kinds of shared pools, for controller-gen. What is in them is said in pkg/pool.
//
// +groupName=ipam.relink.dev
// +kubebuilder:object:generate=false
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/relink-cni/relink/pkg/pool"
)

// AddressPool is a pool of addresses for many nodes. People write its spec.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=apool
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name=Subnet,type=string,JSONPath=`.spec.subnet`
// +kubebuilder:printcolumn:name=Blocks,type=integer,JSONPath=`.status.blocks`
// +kubebuilder:printcolumn:name=Taken,type=integer,JSONPath=`.status.taken`
// +kubebuilder:printcolumn:name=Addresses,type=string,JSONPath=`.status.addresses`
// +kubebuilder:printcolumn:name=Granted,type=integer,JSONPath=`.status.granted`
// +kubebuilder:printcolumn:name=Ready,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name=Reason,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name=Deleted,type=date,JSONPath=`.metadata.deletionTimestamp`
// +kubebuilder:printcolumn:name=Recovering,type=string,JSONPath=`.status.conditions[?(@.type=="Recovering")].status`,priority=1
// +kubebuilder:printcolumn:name=Message,type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`,priority=1
// +kubebuilder:printcolumn:name=Gateway,type=string,JSONPath=`.spec.gateway`,priority=1
// +kubebuilder:printcolumn:name="Block size",type=integer,JSONPath=`.spec.blockSize`,priority=1
// +kubebuilder:printcolumn:name=Updated,type=string,JSONPath=`.status.updated`,priority=1
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 200",message="the name of a pool has at most 200 characters: names of blocks begin with it"
type AddressPool struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec pool.Spec `json:"spec"`
	// +optional
	Status pool.Status `json:"status,omitempty"`
}

// AddressBlock is a block of addresses of a pool. It says of each address which node has it. relink writes it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=ablock
// +kubebuilder:printcolumn:name=Pool,type=string,JSONPath=`.spec.pool`
// +kubebuilder:printcolumn:name=First,type=string,JSONPath=`.spec.first`
// +kubebuilder:printcolumn:name=Last,type=string,JSONPath=`.spec.last`
// +kubebuilder:printcolumn:name=Nodes,type=string,JSONPath=`.status.nodes`
// +kubebuilder:printcolumn:name=Addresses,type=string,JSONPath=`.status.addresses`,priority=1
// +kubebuilder:printcolumn:name="Made by",type=string,JSONPath=`.spec.node`,priority=1
// +kubebuilder:printcolumn:name=Epoch,type=integer,JSONPath=`.status.epoch`,priority=1
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:selectablefield:JSONPath=`.spec.pool`
// +kubebuilder:selectablefield:JSONPath=`.spec.node`
// +kubebuilder:validation:XValidation:rule=`self.metadata.name.startsWith(self.spec.pool + '-') && self.metadata.name.matches('-(0|[1-9][0-9]{0,8})$') && int(self.metadata.name.substring(self.spec.pool.size() + 1)) == self.spec.index`,message="the name must be spec.pool, a hyphen and spec.index"
type AddressBlock struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   pool.BlockSpec   `json:"spec"`
	Status pool.BlockStatus `json:"status"`
}

// AddressClaim is the address of a pool that an owner has, so that the owner's next pod finds it on any node. relink writes it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,shortName=aclaim
// +kubebuilder:printcolumn:name=Pool,type=string,JSONPath=`.spec.pool`
// +kubebuilder:printcolumn:name=Address,type=string,JSONPath=`.status.address`
// +kubebuilder:printcolumn:name=Kind,type=string,JSONPath=`.spec.owner.kind`
// +kubebuilder:printcolumn:name=Namespace,type=string,JSONPath=`.spec.owner.namespace`
// +kubebuilder:printcolumn:name=Owner,type=string,JSONPath=`.spec.owner.name`
// +kubebuilder:printcolumn:name=Ordinal,type=integer,JSONPath=`.spec.owner.ordinal`
// +kubebuilder:printcolumn:name=Interface,type=string,JSONPath=`.spec.ifName`
// +kubebuilder:printcolumn:name=Node,type=string,JSONPath=`.status.active.node`
// +kubebuilder:printcolumn:name=Epoch,type=integer,JSONPath=`.status.epoch`,priority=1
// +kubebuilder:printcolumn:name=Retain,type=string,JSONPath=`.status.retain`,priority=1
// +kubebuilder:printcolumn:name=Age,type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:selectablefield:JSONPath=`.spec.pool`
// +kubebuilder:selectablefield:JSONPath=`.status.address`
// +kubebuilder:selectablefield:JSONPath=`.status.active.node`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.startsWith(self.spec.pool + '-') && self.metadata.name.size() == self.spec.pool.size() + 25",message="the name must be spec.pool, a hyphen and 24 hex digits"
type AddressClaim struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   pool.ClaimSpec   `json:"spec"`
	Status pool.ClaimStatus `json:"status"`
}
