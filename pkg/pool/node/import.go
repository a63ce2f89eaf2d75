package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/ipam/lease"
	"github.com/relink-cni/relink/pkg/pool"
)

// Import implements pool.Importer.
func (nc *Controller) Import(ctx context.Context, request pool.Import) (pool.Imported, error) {
	ctx, cancel := context.WithTimeout(ctx, pool.ImportLimit)
	defer cancel()
	if len(request.Addresses) > pool.MaxImported {
		return pool.Imported{}, fmt.Errorf("%w: %d addresses are too many for one request: give %d at most", pool.ErrUnknown, len(request.Addresses), pool.MaxImported)
	}
	sc, err := nc.storeController(request.Network)
	if err != nil {
		return pool.Imported{}, err
	}
	r := importRun{storeController: sc, spec: request, result: pool.Imported{Pools: map[netip.Addr]string{}, Refused: map[netip.Addr]string{}}}
	parts, err := r.groupByBlock(ctx)
	if err != nil {
		return pool.Imported{}, err
	}
	if !request.DryRun {
		nc.usedOnce.Do(func() { close(nc.poolsUsed) })
		if err := sc.store.SetPools(ctx, request.Pools); err != nil {
			return pool.Imported{}, unavailable(err)
		}
	}
	for _, p := range parts {
		if err := r.takePart(ctx, p); err != nil {
			return r.result, err
		}
	}
	return r.result, nil
}

// importRun is an import that is under way.
type importRun struct {
	*storeController
	spec   pool.Import
	result pool.Imported
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
		case found && a == l.Gateway:
			return l, index, fmt.Sprintf("it is the gateway of the pool %s: delete the pod, or correct spec.gateway", l.Name)
		case found && l.NetworkOrBroadcast(a):
			return l, index, fmt.Sprintf("it is the network's own or the broadcast address of the pool %s, whose subnet is %s: delete the pod", l.Name, l.Subnet)
		case found && l.Excluded(a):
			return l, index, fmt.Sprintf("the pool %s excludes it: remove it from spec.exclude", l.Name)
		case found:
			return l, index, ""
		}
	}
	for _, l := range layouts {
		if l.Subnet.Contains(a) {
			return l, 0, fmt.Sprintf("it is in no range of the pool %s: add it to spec.ranges", l.Name)
		}
	}
	return pool.Layout{}, 0, "it is in no subnet of these pools: name the pool that has it, too"
}

// takePart takes the addresses of one block.
func (r *importRun) takePart(ctx context.Context, p blockPart) error {
	for range maxTries {
		err := r.tryPart(ctx, p)
		if !errors.Is(err, pool.ErrConflict) && !errors.Is(err, pool.ErrNotFound) && !errors.Is(err, pool.ErrExists) {
			return err
		}
	}
	return unavailable(fmt.Errorf("AddressBlock %s changes all the time", pool.BlockName(p.pool, p.index)))
}

// tryPart makes one try, as the only one for this store.
func (r *importRun) tryPart(ctx context.Context, p blockPart) error {
	release, err := r.takeTurn(ctx)
	if err != nil {
		return err
	}
	defer release()
	s, err := r.currentState(ctx, p.pool)
	if err != nil {
		return err
	}
	p.addresses = slices.DeleteFunc(slices.Clone(p.addresses), func(a netip.Addr) bool { return r.recordGranted(s, p, a) })
	if len(p.addresses) == 0 {
		return nil
	}
	v, err := r.openForImport(ctx, p.pool)
	switch {
	case err != nil:
		return err
	case !v.allowsBlock(p.index):
		r.refuse(p, "another AddressPool has some of its block, too: make a pool of other addresses")
		return nil
	}
	b, err := r.API.Block(ctx, pool.BlockName(p.pool, p.index))
	switch {
	case errors.Is(err, pool.ErrNotFound):
		return r.takeFromNewBlock(ctx, v, p, s)
	case err != nil:
		return unavailable(err)
	}
	return r.takeFromBlock(ctx, b, p)
}

// currentState is the store's state before its part of a block changes. A dry run makes no store, and confirms nothing.
func (r *importRun) currentState(ctx context.Context, name string) (state, error) {
	if !r.spec.DryRun {
		return r.readyState(ctx, name)
	}
	s, err := r.state(ctx)
	if errors.Is(err, lease.ErrNotLeased) {
		return state{}, nil
	}
	if err != nil {
		return s, unavailable(err)
	}
	return s, nil
}

// recordGranted notes that the store has the address, if it has.
func (r *importRun) recordGranted(s state, p blockPart, a netip.Addr) bool {
	held := r.hasAddress(s, p.pool, a)
	if held {
		r.result.Pools[a] = p.pool
	}
	return held
}

func (r *importRun) refuse(p blockPart, reason string) {
	for _, a := range p.addresses {
		r.result.Refused[a] = reason
	}
}

// openForImport reads the pool, and makes sure that it is paused, and that nothing else keeps this node from taking of it. A dry run
// notes what does.
func (r *importRun) openForImport(ctx context.Context, name string) (view, error) {
	if err := r.waitSettled(ctx); err != nil {
		return view{}, err
	}
	v, err := r.readView(ctx, name)
	if err != nil {
		return v, err
	}
	reason := ""
	switch {
	case v.importClosedReason != "":
		reason = fmt.Sprintf("the pool %s gives nothing new: %s", name, v.importClosedReason)
	case !v.Spec.Paused:
		reason = fmt.Sprintf("the pool %s is not paused, so other nodes could take addresses that pods have whose nodes are not imported yet: "+
			`kubectl patch addresspool %s --type merge -p '{"spec": {"paused": true}}'`, name, name)
	}
	switch {
	case r.spec.DryRun:
		r.result.Closed = cmp.Or(r.result.Closed, reason)
		return v, nil
	case reason != "":
		return v, unavailable(errors.New(reason))
	}
	v.Pool, err = r.ensureFinalizer(ctx, v.Pool)
	return v, err
}

// waitSettled returns when this controller has seen the API for long enough.
func (nc *Controller) waitSettled(ctx context.Context) error {
	for !nc.settled() {
		if _, err := nc.API.Pools(ctx); err != nil {
			return unavailable(err)
		}
		select {
		case <-ctx.Done():
			return unavailable(ctx.Err())
		case <-time.After(min(nc.Settling, answerTimeout)):
		}
	}
	return nil
}

// takeFromNewBlock makes the block, with only these addresses as this store's.
func (r *importRun) takeFromNewBlock(ctx context.Context, v view, p blockPart, s state) error {
	if !r.spec.DryRun {
		b, ok := pool.NewBlockWith(v.layout, p.index, s.me, s.poolState(p.pool).Session, p.addresses)
		if !ok {
			return unavailable(fmt.Errorf("the pool %s has changed: run it again", p.pool))
		}
		b, _ = b.WithFenceAfter(s.me, s.poolState(p.pool).FenceAfter)
		if _, err := r.createCheckedBlock(ctx, v, b, s, func(current view) string { return current.importClosedReason }); err != nil {
			return err
		}
	}
	return r.recordResult(ctx, p)
}

// takeFromBlock takes those of the block's addresses that are nobody's.
func (r *importRun) takeFromBlock(ctx context.Context, b pool.Block, p blockPart) error {
	s, err := r.adoptBlock(ctx, b)
	if err != nil {
		return err
	}
	var offsets []int
	remaining := p
	remaining.addresses = nil
	for _, a := range p.addresses {
		if reason := refusalReason(b, s.me, a); reason != "" {
			r.result.Refused[a] = reason
			continue
		}
		remaining.addresses = append(remaining.addresses, a)
		if i := b.Offset(a); b.Spec.Addresses[i] == pool.Unassigned {
			offsets = append(offsets, i)
		}
	}
	if next, n := b.Take(s.me, offsets); n > 0 && !r.spec.DryRun {
		next, _ = s.withHolderState(next)
		failpoint.Here("before addresses are imported")
		if err := r.writeBlock(ctx, next); err != nil {
			return retriable(err)
		}
	}
	return r.recordResult(ctx, remaining)
}

// retriable makes an error match pool.ErrUnavailable, if the step is not made again.
func retriable(err error) error {
	if errors.Is(err, pool.ErrConflict) || errors.Is(err, pool.ErrNotFound) {
		return err
	}
	return unavailable(err)
}

// adoptBlock is adopt. A dry run only looks whether the block is as relink writes it.
func (r *importRun) adoptBlock(ctx context.Context, b pool.Block) (state, error) {
	if !r.spec.DryRun {
		s, _, err := r.adopt(ctx, b)
		return s, err
	}
	if err := b.Check(); err != nil {
		return state{}, unavailable(err)
	}
	return r.currentState(ctx, b.Spec.Pool)
}

// refusalReason says why the party does not get the address of the block, empty if it has it or if it is nobody's.
func refusalReason(b pool.Block, me pool.Party, a netip.Addr) string {
	i := b.Offset(a)
	if i < 0 {
		return fmt.Sprintf("AddressBlock %s does not have it: delete the block if no pod has any of it", b.Metadata.Name)
	}
	h, held := b.HolderOf(i)
	switch {
	case b.Spec.Addresses[i] == pool.Excluded:
		return fmt.Sprintf("AddressBlock %s was made when spec.exclude had it, and never gives it: delete the pod, or begin again with a new pool", b.Metadata.Name)
	case held && h.SameParty(me) && h.Fenced != "":
		return "this node was declared dead, and other nodes may take it: " + h.Fenced
	case held && h.SameParty(me), !held:
		return ""
	case h.Node == me.Node:
		return fmt.Sprintf("network %s of this node has it", h.Network)
	}
	return fmt.Sprintf("node %s has it (network %s): if pods of both nodes have it, delete one of them", h.Node, h.Network)
}

// recordResult notes which of the addresses the store has now.
func (r *importRun) recordResult(ctx context.Context, p blockPart) error {
	s, err := r.state(ctx)
	if err != nil && !r.spec.DryRun {
		return unavailable(err)
	}
	for _, a := range p.addresses {
		switch {
		case r.spec.DryRun:
			r.result.Pools[a] = p.pool
		case !r.recordGranted(s, p, a):
			r.result.Refused[a] = "this node is giving it back, or its block has no place for one more store: run it again"
		}
	}
	return nil
}
