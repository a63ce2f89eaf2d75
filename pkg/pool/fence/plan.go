package fence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/relink-cni/relink/pkg/pool"
)

// ErrNoMatch says that the command line names nothing that is in any block.
var ErrNoMatch = errors.New("matches nothing")

// Target say who is dead.
type Target struct {
	API pool.API
	// Node is the name of the node. Stores are those of its stores that are gone, none for all.
	Node   string
	Stores []string
	// Reason is the proof that the blocks get.
	Reason string
}

// Plan is what a run would do.
type Plan struct {
	Target
	blocks []pool.Block
	result Result
}

// NewPlan finds what the node has. errors.Is matches ErrNoMatch if no block and no Node object knows the node, or if it has no such
// store.
func NewPlan(ctx context.Context, o Target) (Plan, error) {
	p := Plan{Target: o, result: Result{Node: o.Node, Parts: []Part{}}}
	blocks, err := o.API.AllBlocks(ctx)
	if err != nil {
		return p, err
	}
	node, err := o.API.Node(ctx, o.Node)
	p.result.Boot = node.Boot
	p.result.Object, p.result.ObjectReason = objectOf(node, err)
	for _, b := range blocks {
		if parts := partsOf(b, o.Node, node); len(parts) > 0 {
			p.blocks = append(p.blocks, b)
			p.result.Parts = append(p.result.Parts, parts...)
		}
	}
	return p, p.selectStores()
}

// objectOf says what the API tells of the Node object.
func objectOf(n pool.Node, err error) (object NodeObject, reason string) {
	switch {
	case errors.Is(err, pool.ErrNotFound):
		return Gone, ""
	case err != nil:
		return Unknown, err.Error()
	case n.Ready:
		return Ready, ""
	}
	return NotReady, ""
}

// partsOf returns what the stores of the node have of the block, and what they ask for.
func partsOf(b pool.Block, node string, nodeObject pool.Node) (parts []Part) {
	part := func(p pool.Party) *Part {
		i := slices.IndexFunc(parts, func(o Part) bool { return o.Store == p.Store })
		if i < 0 {
			i = len(parts)
			parts = append(parts, Part{Block: b.Metadata.Name, Pool: b.Spec.Pool, Network: p.Network, Store: p.Store, State: ToFence})
		}
		return &parts[i]
	}
	for _, h := range b.Status.Holders {
		if h.Node != node {
			continue
		}
		entry := part(h.Party)
		entry.Addresses, entry.ThisBoot = strings.Count(b.Status.Addresses, h.ID), h.Boot != "" && h.Boot == nodeObject.Boot
		if h.Fenced != "" {
			entry.State, entry.Reason = FencedBefore, h.Fenced
		}
	}
	for _, w := range b.Status.Want {
		if w.Node == node {
			part(w.Party).Asks += max(w.Count, 1)
		}
	}
	return parts
}

// selectStores leaves only the stores that the options name.
func (p *Plan) selectStores() error {
	var stores []string
	for _, part := range p.result.Parts {
		if !slices.Contains(stores, part.Store) {
			stores = append(stores, part.Store)
		}
	}
	if len(stores) == 0 && (p.result.Object == Gone || p.result.Object == Unknown) {
		return fmt.Errorf("%q %w: no AddressBlock has anything of a node of that name, and no Node object is seen", p.Node, ErrNoMatch)
	}
	for _, s := range p.Stores {
		if !slices.Contains(stores, s) {
			return fmt.Errorf("--store %s %w: the stores of %s are %s", s, ErrNoMatch, p.Node, cmp.Or(strings.Join(stores, ", "), "none"))
		}
	}
	p.result.Spared = slices.DeleteFunc(stores, func(s string) bool { return len(p.Stores) == 0 || slices.Contains(p.Stores, s) })
	p.result.Parts = slices.DeleteFunc(p.result.Parts, func(part Part) bool { return slices.Contains(p.result.Spared, part.Store) })
	return nil
}

// isTarget says whether the party is one of those that are fenced.
func (p Plan) isTarget(party pool.Party) bool {
	return party.Node == p.Node && (len(p.Stores) == 0 || slices.Contains(p.Stores, party.Store))
}

// Preview says what a run would do.
func (p Plan) Preview() Result { return p.result }
