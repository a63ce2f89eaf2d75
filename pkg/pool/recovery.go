package pool

import (
	"net/netip"
	"slices"
	"strings"
)

// Recovery says that the API has lost what nodes have, as after etcd was restored from a backup. Nobody takes anything new of
// the pool until all nodes have asserted what they have, or a person ends it.
type Recovery struct {
	// Message says what was lost.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Message string `json:"message,omitempty"`
	// Nodes are those that know of a loss.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=16384
	// +kubebuilder:validation:items:MaxLength=253
	Nodes []string `json:"nodes,omitempty"`
	// Asserted are the nodes that have said what they have.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=16384
	// +kubebuilder:validation:items:MaxLength=253
	Asserted []string `json:"asserted,omitempty"`
}

// WithRecovery returns the pool with that recovery, nil to end it.
func (p Pool) WithRecovery(r *Recovery) Pool {
	p.Status.Recovery = r
	return p
}

// WithAsserted returns the recovery after the node has asserted what it has. changed is false if it had done so before.
func (r Recovery) WithAsserted(node string) (_ Recovery, changed bool) {
	if slices.Contains(r.Asserted, node) {
		return r, false
	}
	r.Asserted = append(slices.Clone(r.Asserted), node)
	return r, true
}

// Unasserted returns the nodes that have not said what they have. Dead ones cannot.
func (r Recovery) Unasserted(nodes []Node) []Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return n.OutOfService || slices.Contains(r.Asserted, n.Name) })
}

// NeedsAssert says whether the grant and the block must be brought together in a recovery: the party has something of the block, the block
// says so, or the party has seen a newer state of it.
func (g Grant) NeedsAssert(b Block, me Party) bool {
	_, holds := b.Holder(me)
	older := g.Block == b.Metadata.UID && b.Status.Epoch < g.Epoch || g.blockEnded(b.Metadata.UID)
	return !g.Empty() || holds || older
}

// Assert returns the block with exactly what the party may give as the party's. It is for an API that has lost something: b is
// older than the grant, or was made anew. The party does not have any more what it was about to give back. conflicts are
// addresses of the grant that another party has there: that one may have given them up since, or both have given them.
func (g Grant) Assert(b Block, me Party) (_ Block, conflicts []netip.Addr) {
	g, b = g.shapedFor(b), b.clone()
	b.Status.Epoch = max(b.Status.Epoch, g.Epoch) + 1
	for i := range len(g.Addresses) {
		assignable, _ := g.Assignable(i)
		h, held := b.HolderOf(i)
		holds := h.SameParty(me)
		switch {
		case holds && h.Fenced != "": // It stays so until the party leaves: pods of it can still have the address.
		case !assignable && holds:
			b.setHolder(i, Unassigned)
		case !assignable || holds:
		case held && h.Fenced == "":
			conflicts = append(conflicts, b.Address(i))
		case b.Status.Addresses[i] != Excluded:
			b.assign(i, me)
		}
	}
	b.dropEmptyHolders()
	return b, conflicts
}

// AdoptAsserted returns the grant after the API has taken what Assert returned. The grant loses the addresses that others have, except waits:
// their holders may give them up.
func (g Grant) AdoptAsserted(b Block, me Party, waits []netip.Addr) (Grant, error) {
	g = g.shapedFor(b)
	g.Block, g.Epoch = "", 0 // It may be another block of this name.
	if uid := b.Metadata.UID; g.blockEnded(uid) {
		g.Ended = strings.TrimPrefix(strings.Replace(" "+g.Ended, " "+uid+" ", " ", 1), " ")
	}
	before := g.Addresses
	g, _, err := g.Adopt(b, me)
	if err != nil {
		return g, err
	}
	chars := []byte(g.Addresses)
	for i := range chars {
		if before[i] == NotGranted || slices.Contains(waits, g.Address(i)) {
			chars[i] = before[i]
		}
	}
	g.Addresses = string(chars)
	return g, nil
}
