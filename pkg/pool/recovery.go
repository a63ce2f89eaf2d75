package pool

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
)

// RecoveryKey is the annotation of a pool that has its Recovery.
const RecoveryKey = Group + "/recovery"

// Recovery says that the API has lost what nodes have, as after etcd was restored from a backup. Nobody takes anything new of
// the pool until all nodes have asserted what they have, or a person ends it.
type Recovery struct {
	Since string `json:"since"`
	Why   string `json:"why"`
	// Asserted are the nodes that have said what they have.
	Asserted []string `json:"asserted,omitempty"`
}

// Recovery returns the pool's recovery, nil if there is none. One that cannot be read is one.
func (p Pool) Recovery() *Recovery {
	text, is := p.Metadata.Annotations[RecoveryKey]
	if !is {
		return nil
	}
	var r Recovery
	if json.Unmarshal([]byte(text), &r) != nil {
		r.Why = "the annotation " + RecoveryKey + " cannot be read; remove it when all nodes have what they need"
	}
	return &r
}

// WithRecovery returns the pool with that recovery, nil to end it.
func (p Pool) WithRecovery(r *Recovery) Pool {
	annotations := map[string]string{}
	for key, value := range p.Metadata.Annotations {
		annotations[key] = value
	}
	delete(annotations, RecoveryKey)
	if r != nil {
		text, _ := json.Marshal(r) // Texts only.
		annotations[RecoveryKey] = string(text)
	}
	p.Metadata.Annotations = annotations
	return p
}

// Asserts returns the recovery after the node has asserted what it has. changed is false if it had done so before.
func (r Recovery) Asserts(node string) (_ Recovery, changed bool) {
	if slices.Contains(r.Asserted, node) {
		return r, false
	}
	r.Asserted = append(slices.Clone(r.Asserted), node)
	return r, true
}

// Asserts says whether the grant and the block must be brought together in a recovery: the party has something of the block, the block
// says so, or the party has seen a newer state of it.
func (g Grant) Asserts(b Block, me Party) bool {
	_, holds := b.Holder(me)
	older := g.Block == b.Metadata.UID && b.Spec.Epoch < g.Epoch || g.hasEnded(b.Metadata.UID)
	return !g.Empty() || holds || older
}

// Assert returns the block with exactly what the party may give as the party's. It is for an API that has lost something: b is
// older than the grant, or was made anew. What the party was about to give back, it has not any more. others are
// addresses of the grant that another party has there: that one may have given them up since, or both have given them.
func (g Grant) Assert(b Block, me Party) (_ Block, others []netip.Addr) {
	g, b = g.shaped(b), b.clone()
	b.Spec.Epoch = max(b.Spec.Epoch, g.Epoch) + 1
	for i := range len(g.Addresses) {
		gives, _ := g.May(i)
		h, held := b.HolderOf(i)
		has := held && h.Is(me)
		switch {
		case has && h.Fenced != "": // It stays so until the party leaves: pods of it can still have the address.
		case !gives && has:
			b.set(i, Nobodys)
		case !gives || has:
		case held && h.Fenced == "":
			others = append(others, b.At(i))
		case b.Spec.Addresses[i] != Never:
			if a := b.At(i); b.give(i, me) && held && !slices.Contains(b.Spec.Unproven, a) {
				b.Spec.Unproven = append(b.Spec.Unproven, a)
			}
		}
	}
	b.tidy()
	return b, others
}

// Asserted returns the grant after the API has taken what Assert returned. The grant loses what others have, but for waits: who has
// these may give them up.
func (g Grant) Asserted(b Block, me Party, waits []netip.Addr) (Grant, error) {
	g = g.shaped(b)
	g.Block, g.Epoch = "", 0 // It may be another block of this name.
	if uid := b.Metadata.UID; g.hasEnded(uid) {
		g.Ended = strings.TrimPrefix(strings.Replace(" "+g.Ended, " "+uid+" ", " ", 1), " ")
	}
	before := g.Addresses
	g, _, err := g.Adopt(b, me)
	if err != nil {
		return g, err
	}
	is := []byte(g.Addresses)
	for i := range is {
		if before[i] == NotOurs || slices.Contains(waits, g.At(i)) {
			is[i] = before[i]
		}
	}
	g.Addresses = string(is)
	return g, nil
}
