package pool

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"strings"

	"github.com/relink-cni/relink/pkg/attachment"
)

// Claim is an AddressClaim: which address of a pool an owner has, so that the owner's next pod finds it on any node. Whose
// the address is says the block alone.
type Claim struct {
	Metadata Meta        `json:"metadata"`
	Spec     ClaimSpec   `json:"spec"`
	Status   ClaimStatus `json:"status"`
}

// ClaimSpec says who claims an address. It never changes.
type ClaimSpec struct {
	// Pool is the name of the AddressPool.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=200
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="pool never changes: make another claim"
	Pool string `json:"pool"`
	// IfName is the interface of the owner's pods: each interface has its own address.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=15
	// +kubebuilder:validation:Pattern=`^[^/\s]+$`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="ifName never changes: make another claim"
	IfName string `json:"ifName"`
	// Owner is the workload that the address belongs to.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="owner never changes: make another claim"
	Owner attachment.Owner `json:"owner"`
}

// ClaimStatus says which address the owner has, and where. As in a [BlockStatus], one write makes both.
//
// +kubebuilder:validation:XValidation:rule="self.active.store == oldSelf.active.store || self.epoch > oldSelf.epoch",message="epoch must grow when the address moves to another store",fieldPath=".epoch"
type ClaimStatus struct {
	// Address is the owner's address.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip.isCanonical(self)",message="must be an IP address in its short form, such as 10.3.0.5 or fd00::5"
	Address netip.Addr `json:"address"`
	// Epoch grows each time that the address moves to another party.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4000000000000000000
	// +kubebuilder:validation:XValidation:rule="self >= oldSelf",message="epoch never gets smaller"
	Epoch int64 `json:"epoch"`
	// Active is where the owner's pod runs, or has run last.
	Active Place `json:"active"`
	// Retain is how long the address waits for the owner's next pod, such as 72h; empty for as long as the owner lives.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`
	Retain string `json:"retain,omitempty"`
}

// MovedTo returns the claim after another party has got the address.
func (c Claim) MovedTo(active Place) Claim {
	c.Status.Epoch, c.Status.Active = c.Status.Epoch+1, active
	return c
}

// Place is where a pod with the address runs.
type Place struct {
	Party `json:",inline"`
	// PodUID is the UID of that pod.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	PodUID string `json:"podUID,omitempty"`
}

// ClaimName returns the name of the claim of an owner's interface on a pool. An owner's name can be longer than an object's,
// so it has a hash.
func ClaimName(pool, ifName string, o attachment.Owner) string {
	b, _ := json.Marshal([]any{pool, ifName, o}) // Text and numbers only.
	sum := sha256.Sum256(b)
	return pool + "-" + hex.EncodeToString(sum[:claimHashSize])
}

// claimHashSize is how many bytes of the hash are in the name of a claim.
const claimHashSize = 12

// IsClaimName says whether a claim of the pool can have the name. A Want can have any.
func IsClaimName(pool, name string) bool {
	hash, found := strings.CutPrefix(name, pool+"-")
	b, err := hex.DecodeString(hash)
	return found && err == nil && len(b) == claimHashSize
}
