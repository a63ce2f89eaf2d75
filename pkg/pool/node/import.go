package node

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
	"github.com/relink-cni/relink/pkg/wait"
)

// Import implements pool.Importer.
func (nc *Controller) Import(ctx context.Context, request pool.Import) (pool.Imported, error) {
	result := pool.Imported{Pools: map[netip.Addr]string{}, Refused: map[netip.Addr]string{}}
	if len(request.Addresses) > pool.MaxImported {
		return result, fmt.Errorf("%w: %d addresses are too many for one request: give %d at most", pool.ErrUnknown, len(request.Addresses), pool.MaxImported)
	}
	err := nc.serve(ctx, request.Network, pool.ImportLimit, func(ctx context.Context, sc *storeController) error {
		r := importRun{sc, request, &result}
		parts, err := r.groupByBlock(ctx)
		if err != nil {
			return err
		}
		if !request.DryRun {
			nc.noteUse()
			if err := sc.store.SetPools(ctx, request.Pools); err != nil {
				return err
			}
		}
		for _, p := range parts {
			try := func(ctx context.Context) error { return r.tryPart(ctx, p) }
			if err := retry("AddressBlock "+pool.BlockName(p.pool, p.index), func() error { return sc.withTurn(ctx, try) }); err != nil {
				return err
			}
		}
		return nil
	})
	return result, err
}

// importRun is an import that is under way.
type importRun struct {
	*storeController
	spec   pool.Import
	result *pool.Imported
}

// blockPart are the addresses that are in one block.
type blockPart struct {
	pool      string
	index     int64
	addresses []netip.Addr
}

// groupByBlock returns the addresses by block, in order. It refuses those that no pool gives.
func (r *importRun) groupByBlock(ctx context.Context) (parts []blockPart, err error) {
	var layouts []pool.Layout
	for _, name := range r.spec.Pools {
		l, err := r.readPool(ctx, name)
		if err != nil {
			return nil, err
		}
		layouts = append(layouts, l)
	}
	for _, a := range r.spec.Addresses {
		l, index, reason := locateAddress(layouts, a)
		if reason != "" {
			r.result.Refused[a] = reason
			continue
		}
		i := slices.IndexFunc(parts, func(p blockPart) bool { return p.pool == l.Name && p.index == index })
		if i < 0 {
			i, parts = len(parts), append(parts, blockPart{pool: l.Name, index: index})
		}
		parts[i].addresses = append(parts[i].addresses, a)
	}
	slices.SortFunc(parts, func(a, b blockPart) int { return cmp.Or(cmp.Compare(a.pool, b.pool), cmp.Compare(a.index, b.index)) })
	return parts, nil
}

// locateAddress returns the pool and the block of the address. reason says why there is none.
func locateAddress(layouts []pool.Layout, a netip.Addr) (_ pool.Layout, index int64, reason string) {
	for _, l := range layouts {
		index, found := l.Index(a)
		switch {
		case found && l.Excluded(a):
			return l, index, fmt.Sprintf("the pool %s gives it to no pod, by spec.exclude, spec.gateway or spec.subnet: correct that, or delete the pod", l.Name)
		case found:
			return l, index, ""
		}
	}
	return pool.Layout{}, 0, "it is in no range of these pools: add it to spec.ranges, or name the pool that has it, too"
}

// tryPart takes the addresses of one block. A dry run only says what it would do. The error matches one of package pool's if the block must be
// read again.
func (r *importRun) tryPart(ctx context.Context, p blockPart) error {
	s, err := r.currentState(ctx, p.pool)
	if err != nil {
		return err
	}
	p.addresses = slices.DeleteFunc(slices.Clone(p.addresses), func(a netip.Addr) bool { return r.recordGranted(s, p.pool, a) })
	if len(p.addresses) == 0 {
		return nil
	}
	v, err := r.openForImport(ctx, p.pool)
	if err != nil {
		return err
	}
	b, err := r.API.Block(ctx, pool.BlockName(p.pool, p.index))
	exists := err == nil
	if ignore(err, pool.ErrNotFound) != nil {
		return err
	}
	p.addresses = slices.DeleteFunc(p.addresses, func(a netip.Addr) bool {
		reason := ""
		switch {
		case !v.allowsBlock(p.index):
			reason = "another AddressPool has some of its block, too: make a pool of other addresses"
		case exists:
			reason = refusalReason(b, s.me, a)
		}
		if reason != "" {
			r.result.Refused[a] = reason
		}
		return reason != ""
	})
	switch {
	case len(p.addresses) == 0:
		return nil
	case r.spec.DryRun:
		for _, a := range p.addresses {
			r.result.Pools[a] = p.pool
		}
		return nil
	case exists:
		err = r.takeFromBlock(ctx, b, p)
	default:
		err = r.takeFromNewBlock(ctx, v, p, s)
	}
	if err != nil {
		return err
	}
	if s, err = r.state(ctx); err != nil {
		return err
	}
	for _, a := range p.addresses {
		if !r.recordGranted(s, p.pool, a) {
			r.result.Refused[a] = "this node is giving it back, or its block has no place for one more store: run it again"
		}
	}
	return nil
}

// currentState is the store's state before its part of a block changes. A dry run makes no store, and confirms nothing.
func (r *importRun) currentState(ctx context.Context, name string) (state, error) {
	if !r.spec.DryRun {
		return r.readyState(ctx, name)
	}
	s, err := r.state(ctx)
	return s, ignore(err, lease.ErrNotLeased)
}

// recordGranted says whether the store has the address, and notes that in the result.
func (r *importRun) recordGranted(s state, name string, a netip.Addr) bool {
	held := s.mayGive(name, a)
	if held {
		r.result.Pools[a] = name
	}
	return held
}

// openForImport reads the pool. It fails if the pool is not paused, or if anything else keeps this node from taking addresses of it. A dry run
// only notes the reason.
func (r *importRun) openForImport(ctx context.Context, name string) (view, error) {
	if err := r.waitSettled(ctx); err != nil {
		return view{}, err
	}
	v, err := r.readView(ctx, name)
	if err != nil {
		return v, err
	}
	if reason := v.closedReason(true); reason != "" {
		err = v.closedError(reason)
	} else if !v.Spec.Paused {
		err = fmt.Errorf("the pool %s is not paused, so other nodes could take addresses that pods have whose nodes are not imported yet: "+
			`kubectl patch addresspool %s --type merge -p '{"spec": {"paused": true}}'`, name, name)
	}
	switch {
	case err != nil && r.spec.DryRun:
		r.result.Closed = cmp.Or(r.result.Closed, err.Error())
		return v, nil
	case err != nil || r.spec.DryRun:
		return v, err
	}
	return v, r.ensureFinalizer(ctx, v.Pool)
}

// waitSettled returns when this controller has seen the API for long enough.
func (nc *Controller) waitSettled(ctx context.Context) error {
	for !nc.settled() {
		if _, err := nc.API.Pools(ctx); err != nil {
			return err
		}
		if !wait.Sleep(ctx, min(nc.Settling, answerTimeout)) {
			return ctx.Err()
		}
	}
	return nil
}

// takeFromNewBlock makes the block, with only these addresses as this store's.
func (r *importRun) takeFromNewBlock(ctx context.Context, v view, p blockPart, s state) error {
	b, ok := pool.NewBlockWith(v.layout, p.index, s.me, s.Boot, p.addresses)
	if !ok {
		return fmt.Errorf("the pool %s has changed: run it again", p.pool)
	}
	_, err := r.createCheckedBlock(ctx, v, b, s, true)
	return err
}

// takeFromBlock takes those of the block's addresses that are nobody's.
func (r *importRun) takeFromBlock(ctx context.Context, b pool.Block, p blockPart) error {
	b, err := r.reconcile(ctx, b, 0)
	if err != nil {
		return err
	}
	s, err := r.state(ctx)
	if err != nil {
		return err
	}
	var offsets []int
	for _, a := range p.addresses {
		if i := b.Offset(a); b.Status.Addresses[i] == pool.Unassigned || b.Status.Addresses[i] == pool.Claimed {
			offsets = append(offsets, i)
		}
	}
	next, n := b.Take(s.me, offsets)
	if n == 0 {
		return nil
	}
	failpoint.Here("before addresses are imported")
	return r.write(ctx, next)
}

// refusalReason says why the party does not get the address of the block, empty if it has it or if it is nobody's.
func refusalReason(b pool.Block, me pool.Party, a netip.Addr) string {
	if err := b.Check(); err != nil {
		return err.Error()
	}
	i := b.Offset(a)
	if i < 0 {
		return fmt.Sprintf("AddressBlock %s does not have it: delete the block if no pod has any of it", b.Metadata.Name)
	}
	h, held := b.HolderOf(i)
	switch {
	case b.Status.Addresses[i] == pool.Excluded:
		return fmt.Sprintf("AddressBlock %s was made when spec.exclude had it: wait until the controller has noted that the pool gives it, and run it again", b.Metadata.Name)
	case held && !h.SameParty(me):
		return fmt.Sprintf("network %s of node %s has it: if pods of both have it, delete one of them", h.Network, h.Node)
	case held && h.Fenced != "":
		return "this node was declared dead, and other nodes may take it: " + h.Fenced
	}
	return ""
}
