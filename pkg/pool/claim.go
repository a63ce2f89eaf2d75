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
	Metadata Meta      `json:"metadata"`
	Spec     ClaimSpec `json:"spec"`
}

// ClaimSpec is what is claimed, and by whom.
type ClaimSpec struct {
	Pool string `json:"pool"`
	// IfName is the interface of the owner's pods: each interface has its own address.
	IfName  string           `json:"ifName"`
	Owner   attachment.Owner `json:"owner"`
	Address netip.Addr       `json:"address"`
	// Epoch grows each time that the address moves to another party.
	Epoch  int64 `json:"epoch"`
	Active Place `json:"active"`
	// Target is where a virtual machine is about to go. Both have the address until the source ends.
	Target *Place `json:"target,omitempty"`
	// Accepted is the UID of the target's pod, if the node with the address keeps it for this pod until it comes.
	Accepted string `json:"accepted,omitempty"`
	// Retain is how long the address waits for the owner's next pod, such as 72h; empty for as long as the owner lives.
	Retain string `json:"retain,omitempty"`
}

// Place is where a pod with the address runs.
type Place struct {
	Party
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
