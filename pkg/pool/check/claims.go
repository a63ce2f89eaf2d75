package check

import (
	"fmt"
	"slices"

	"github.com/relink-cni/relink/pkg/pool"
)

// findClaims returns what is wrong with single claims.
func (c Cluster) findClaims() (findings []Finding) {
	for _, claim := range c.Claims {
		object, remove := "AddressClaim "+claim.Metadata.Name, "kubectl delete addressclaim "+claim.Metadata.Name
		if _, exists := c.pool(claim.Spec.Pool); !exists {
			findings = append(findings, Finding{NoPool, object, "there is no AddressPool " + claim.Spec.Pool, remove})
			continue
		}
		if reason := c.ownerGone(claim); reason != "" {
			action := remove
			if node, found := c.node(claim.Status.Active.Node); found {
				action = "relink-agent of " + node.Name + " deletes it when it frees the address: relink gc --leases --dry-run says there when"
			}
			findings = append(findings, Finding{NoOwner, object, fmt.Sprintf("%s is the address of %s, and the owner is gone: %s", claim.Status.Address, claim.Spec.Owner, reason), action})
		}
		if reason := c.notHeld(claim); reason != "" {
			findings = append(findings, Finding{NotHeld, object, fmt.Sprintf("%s of %s is on node %s, network %s, by the claim, and %s",
				claim.Status.Address, claim.Spec.Owner, claim.Status.Active.Node, claim.Status.Active.Network, reason),
				"start the owner's pod: its node asks for the address; or let it have another one: " + remove})
		}
	}
	return findings
}

// notHeld says why the address of the claim is not where the claim says, empty if it is. One that waits for its owner is nowhere, and one that a
// machine takes along is still where it comes from. A wrong block is a finding of its own.
func (c Cluster) notHeld(claim pool.Claim) string {
	s := claim.Status
	i := slices.IndexFunc(c.Blocks, func(b pool.Block) bool { return b.Spec.Pool == claim.Spec.Pool && b.Span().Contains(s.Address) })
	if i < 0 {
		return "no AddressBlock has the address"
	}
	b := c.Blocks[i]
	if b.Check() != nil {
		return ""
	}
	switch h, held := b.HolderOf(b.Offset(s.Address)); {
	case h.SameParty(s.Active.Party), slices.Contains(h.Accepted, s.Active.PodUID), b.Status.Addresses[b.Offset(s.Address)] == pool.Claimed:
		return ""
	case !held:
		return "nobody has it in AddressBlock " + b.Metadata.Name
	default:
		return fmt.Sprintf("node %s has it in AddressBlock %s, in store %s", h.Node, b.Metadata.Name, h.Store)
	}
}
