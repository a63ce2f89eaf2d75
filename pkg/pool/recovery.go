package pool

import (
	"encoding/json"
	"net/netip"
	"slices"
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

// Assert returns the block with exactly what the grant has as the party's. It is for an API that has lost something: b is older
// than the grant, or was made anew. others are addresses of the grant that another party has there: two parties may have
// given them.
func (g Grant) Assert(b Block, me Party) (_ Block, others []netip.Addr) {
	b = b.clone()
	b.Spec.Epoch = max(b.Spec.Epoch, g.Epoch) + 1
	for i := range len(g.Addresses) {
		h, held := b.HolderOf(i)
		has := held && h.Is(me)
		switch {
		case g.Addresses[i] == NotOurs && has:
			b.set(i, Nobodys)
		case g.Addresses[i] == NotOurs || has:
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

// Asserted returns the grant after the API has taken what Assert returned. The grant loses what others have.
func (g Grant) Asserted(b Block, me Party) (Grant, error) {
	g.Block = "" // It may be another block of this name.
	g.Epoch = 0
	kept := g.Addresses
	g, _, err := g.Adopt(b, me)
	if err != nil {
		return g, err
	}
	is := []byte(g.Addresses)
	for i := range is {
		if kept[i] == NotOurs {
			is[i] = NotOurs
		}
	}
	g.Addresses = string(is)
	return g, nil
}
