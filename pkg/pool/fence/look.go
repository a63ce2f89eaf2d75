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

// API is what a fence needs of a pool.API.
type API interface {
	Block(ctx context.Context, name string) (pool.Block, error)
	BlocksOf(ctx context.Context, node string) ([]pool.Block, error)
	UpdateBlock(ctx context.Context, b pool.Block) (pool.Block, error)
	Node(ctx context.Context, name string) (pool.Node, error)
}

// ErrNothing says that the command line names nothing that is in any block.
var ErrNothing = errors.New("matches nothing")

// Options say who is dead.
type Options struct {
	API API
	// Node is the name of the node. Stores are those of its stores that are gone, none for all.
	Node   string
	Stores []string
	// Why is the proof that the blocks get.
	Why string
}

// Plan is what a run would do.
type Plan struct {
	Options
	blocks []pool.Block
	report Report
}

// Look finds what the node has. errors.Is matches ErrNothing if no block and no Node object knows the node, or if it has no such
// store.
func Look(ctx context.Context, o Options) (Plan, error) {
	p := Plan{Options: o, report: Report{Node: o.Node, Parts: []Part{}}}
	blocks, err := o.API.BlocksOf(ctx, o.Node)
	if err != nil {
		return p, err
	}
	known, err := o.API.Node(ctx, o.Node)
	p.report.Boot = known.Boot
	p.report.Object, p.report.ObjectWhy = objectOf(known, err)
	for _, b := range blocks {
		if parts := partsOf(b, o.Node, known); len(parts) > 0 {
			p.blocks = append(p.blocks, b)
			p.report.Parts = append(p.report.Parts, parts...)
		}
	}
	return p, p.choose()
}

// objectOf says what the API tells of the Node object.
func objectOf(n pool.Node, err error) (is Object, why string) {
	switch {
	case errors.Is(err, pool.ErrNotThere):
		return Gone, ""
	case err != nil:
		return Unknown, err.Error()
	case n.Ready:
		return Ready, ""
	}
	return NotReady, ""
}

// partsOf returns what the stores of the node have of the block, and what they ask for.
func partsOf(b pool.Block, node string, known pool.Node) (all []Part) {
	part := func(p pool.Party) *Part {
		i := slices.IndexFunc(all, func(o Part) bool { return o.Store == p.Store })
		if i < 0 {
			i = len(all)
			all = append(all, Part{Block: b.Metadata.Name, Pool: b.Spec.Pool, Network: p.Network, Store: p.Store, State: ToFence})
		}
		return &all[i]
	}
	for _, h := range b.Spec.Holders {
		if h.Node != node {
			continue
		}
		is := part(h.Party)
		is.Addresses, is.ThisBoot = strings.Count(b.Spec.Addresses, h.ID), h.Boot != "" && h.BootID() == known.Boot
		if h.Fenced != "" {
			is.State, is.Reason = FencedBefore, h.Fenced
		}
	}
	for _, w := range b.Spec.Want {
		if w.Node == node {
			part(w.Party).Asks += max(w.Count, 1)
		}
	}
	return all
}

// choose leaves only the stores that the options name.
func (p *Plan) choose() error {
	var stores []string
	for _, part := range p.report.Parts {
		if !slices.Contains(stores, part.Store) {
			stores = append(stores, part.Store)
		}
	}
	if len(stores) == 0 && (p.report.Object == Gone || p.report.Object == Unknown) {
		return fmt.Errorf("%q %w: no AddressBlock has anything of a node of that name, and no Node object is seen", p.Node, ErrNothing)
	}
	for _, s := range p.Stores {
		if !slices.Contains(stores, s) {
			return fmt.Errorf("--store %s %w: the stores of %s are %s", s, ErrNothing, p.Node, cmp.Or(strings.Join(stores, ", "), "none"))
		}
	}
	p.report.Spared = slices.DeleteFunc(stores, func(s string) bool { return len(p.Stores) == 0 || slices.Contains(p.Stores, s) })
	p.report.Parts = slices.DeleteFunc(p.report.Parts, func(part Part) bool { return slices.Contains(p.report.Spared, part.Store) })
	return nil
}

// dead says whether the party is one of those that are fenced.
func (p Plan) dead(party pool.Party) bool {
	return party.Node == p.Node && (len(p.Stores) == 0 || slices.Contains(p.Stores, party.Store))
}

// Report says what a run would do.
func (p Plan) Report() Report { return p.report.clone() }
