package keeper

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
func (k *Keeper) Import(ctx context.Context, in pool.Import) (pool.Imported, error) {
	ctx, cancel := context.WithTimeout(ctx, pool.ImportLimit)
	defer cancel()
	if len(in.Addresses) > pool.MostImported {
		return pool.Imported{}, fmt.Errorf("%w: %d addresses are too many for one request: give %d at most", pool.ErrUnknown, len(in.Addresses), pool.MostImported)
	}
	m, err := k.member(in.Network)
	if err != nil {
		return pool.Imported{}, err
	}
	r := importing{member: m, in: in, out: pool.Imported{Pools: map[netip.Addr]string{}, Refused: map[netip.Addr]string{}}}
	parts, err := r.divide(ctx)
	if err != nil {
		return pool.Imported{}, err
	}
	if !in.DryRun {
		k.use.Do(func() { close(k.used) })
		if err := m.store.WantPools(ctx, in.Pools); err != nil {
			return pool.Imported{}, unavailable(err)
		}
	}
	for _, p := range parts {
		if err := r.take(ctx, p); err != nil {
			return r.out, err
		}
	}
	return r.out, nil
}

// importing is an import that is under way.
type importing struct {
	*member
	in  pool.Import
	out pool.Imported
}

// part are the addresses that are in one block.
type part struct {
	pool      string
	index     int64
	addresses []netip.Addr
}

// divide returns the addresses by block, in order. It refuses those that no pool gives.
func (r *importing) divide(ctx context.Context) (parts []part, err error) {
	var layouts []pool.Layout
	for _, name := range r.in.Pools {
		l, err := r.pool(ctx, name)
		if err != nil {
			return nil, err
		}
		layouts = append(layouts, l)
	}
	for _, a := range r.in.Addresses {
		l, index, why := placeOf(layouts, a)
		if why != "" {
			r.out.Refused[a] = why
			continue
		}
		i := slices.IndexFunc(parts, func(p part) bool { return p.pool == l.Name && p.index == index })
		if i < 0 {
			i, parts = len(parts), append(parts, part{pool: l.Name, index: index})
		}
		parts[i].addresses = append(parts[i].addresses, a)
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Or(cmp.Compare(a.pool, b.pool), cmp.Compare(a.index, b.index)) })
	return parts, nil
}

// placeOf returns the pool and the block of the address. why says why there is none.
func placeOf(layouts []pool.Layout, a netip.Addr) (_ pool.Layout, index int64, why string) {
	for _, l := range layouts {
		index, is := l.Index(a)
		switch {
		case is && a == l.Gateway:
			return l, index, fmt.Sprintf("it is the gateway of the pool %s: delete the pod, or correct spec.gateway", l.Name)
		case is && l.OfNoHost(a):
			return l, index, fmt.Sprintf("it is the network's own or the broadcast address of the pool %s, whose subnet is %s: delete the pod", l.Name, l.Subnet)
		case is && l.Excluded(a):
			return l, index, fmt.Sprintf("the pool %s excludes it: remove it from spec.exclude", l.Name)
		case is:
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

// take takes the addresses of one block.
func (r *importing) take(ctx context.Context, p part) error {
	for range mostTries {
		err := r.try(ctx, p)
		if !errors.Is(err, pool.ErrConflict) && !errors.Is(err, pool.ErrNotThere) && !errors.Is(err, pool.ErrExists) {
			return err
		}
	}
	return unavailable(fmt.Errorf("AddressBlock %s changes all the time", pool.BlockName(p.pool, p.index)))
}

// try makes one try, as the only one for this store.
func (r *importing) try(ctx context.Context, p part) error {
	done, err := r.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	s, err := r.begun(ctx, p.pool)
	if err != nil {
		return err
	}
	p.addresses = slices.DeleteFunc(slices.Clone(p.addresses), func(a netip.Addr) bool { return r.gets(s, p, a) })
	if len(p.addresses) == 0 {
		return nil
	}
	v, err := r.openPaused(ctx, p.pool)
	switch {
	case err != nil:
		return err
	case !v.allows(p.index):
		r.refuse(p, "another AddressPool has some of its block, too: make a pool of other addresses")
		return nil
	}
	b, err := r.API.Block(ctx, pool.BlockName(p.pool, p.index))
	switch {
	case errors.Is(err, pool.ErrNotThere):
		return r.takeNew(ctx, v, p, s)
	case err != nil:
		return unavailable(err)
	}
	return r.takeOf(ctx, b, p)
}

// begun is the store's state before its part of a block changes. A dry run makes no store, and confirms nothing.
func (r *importing) begun(ctx context.Context, name string) (state, error) {
	if !r.in.DryRun {
		return r.ready(ctx, name)
	}
	s, err := r.state(ctx)
	if errors.Is(err, lease.ErrNone) {
		return state{}, nil
	}
	if err != nil {
		return s, unavailable(err)
	}
	return s, nil
}

// gets notes that the store has the address, if it has.
func (r *importing) gets(s state, p part, a netip.Addr) bool {
	has := r.has(s, p.pool, a)
	if has {
		r.out.Pools[a] = p.pool
	}
	return has
}

func (r *importing) refuse(p part, why string) {
	for _, a := range p.addresses {
		r.out.Refused[a] = why
	}
}

// openPaused reads the pool, and makes sure that it is paused, and that nothing else keeps this node from taking of it. A dry run
// notes what does.
func (r *importing) openPaused(ctx context.Context, name string) (view, error) {
	if err := r.settle(ctx); err != nil {
		return view{}, err
	}
	v, err := r.view(ctx, name)
	if err != nil {
		return v, err
	}
	why := ""
	switch {
	case v.barred != "":
		why = fmt.Sprintf("the pool %s gives nothing new: %s", name, v.barred)
	case !v.Spec.Paused:
		why = fmt.Sprintf("the pool %s is not paused, so other nodes could take addresses that pods have whose nodes are not imported yet: "+
			`kubectl patch addresspool %s --type merge -p '{"spec": {"paused": true}}'`, name, name)
	}
	switch {
	case r.in.DryRun:
		r.out.Closed = cmp.Or(r.out.Closed, why)
		return v, nil
	case why != "":
		return v, unavailable(errors.New(why))
	}
	v.Pool, err = r.hold(ctx, v.Pool)
	return v, err
}

// settle returns when this keeper has seen the API for long enough.
func (k *Keeper) settle(ctx context.Context) error {
	for !k.settled() {
		if _, err := k.API.Pools(ctx); err != nil {
			return unavailable(err)
		}
		select {
		case <-ctx.Done():
			return unavailable(ctx.Err())
		case <-time.After(min(k.Settling, patience)):
		}
	}
	return nil
}

// takeNew makes the block, with only these addresses as this store's.
func (r *importing) takeNew(ctx context.Context, v view, p part, s state) error {
	if !r.in.DryRun {
		b, ok := pool.NewBlockOf(v.layout, p.index, s.me, s.of(p.pool).Session, p.addresses)
		if !ok {
			return unavailable(fmt.Errorf("the pool %s has changed: run it again", p.pool))
		}
		b, _ = b.Obey(s.me, s.of(p.pool).FenceAfter)
		if _, err := r.makeBlock(ctx, v, b, s, func(now view) string { return now.barred }); err != nil {
			return err
		}
	}
	return r.got(ctx, p)
}

// takeOf takes those of the block's addresses that are nobody's.
func (r *importing) takeOf(ctx context.Context, b pool.Block, p part) error {
	s, err := r.met(ctx, b)
	if err != nil {
		return err
	}
	var offsets []int
	left := p
	left.addresses = nil
	for _, a := range p.addresses {
		if why := whyNot(b, s.me, a); why != "" {
			r.out.Refused[a] = why
			continue
		}
		left.addresses = append(left.addresses, a)
		if i := b.Offset(a); b.Spec.Addresses[i] == pool.Nobodys {
			offsets = append(offsets, i)
		}
	}
	if next, n := b.Take(s.me, offsets); n > 0 && !r.in.DryRun {
		next, _ = s.says(next)
		failpoint.Here("before addresses are imported")
		if err := r.write(ctx, next); err != nil {
			return retriable(err)
		}
	}
	return r.got(ctx, left)
}

// retriable makes an error match pool.ErrUnavailable, if the step is not made again.
func retriable(err error) error {
	if errors.Is(err, pool.ErrConflict) || errors.Is(err, pool.ErrNotThere) {
		return err
	}
	return unavailable(err)
}

// met is adopt. A dry run only looks whether the block is as relink writes it.
func (r *importing) met(ctx context.Context, b pool.Block) (state, error) {
	if !r.in.DryRun {
		s, _, err := r.adopt(ctx, b)
		return s, err
	}
	if err := b.Check(); err != nil {
		return state{}, unavailable(err)
	}
	return r.begun(ctx, b.Spec.Pool)
}

// whyNot says why the party does not get the address of the block, empty if it has it or if it is nobody's.
func whyNot(b pool.Block, me pool.Party, a netip.Addr) string {
	i := b.Offset(a)
	if i < 0 {
		return fmt.Sprintf("AddressBlock %s does not have it: delete the block if no pod has any of it", b.Metadata.Name)
	}
	h, held := b.HolderOf(i)
	switch {
	case b.Spec.Addresses[i] == pool.Never:
		return fmt.Sprintf("AddressBlock %s was made when spec.exclude had it, and never gives it: delete the pod, or begin again with a new pool", b.Metadata.Name)
	case held && h.Is(me) && h.Fenced != "":
		return "this node was declared dead, and other nodes may take it: " + h.Fenced
	case held && h.Is(me), !held:
		return ""
	case h.Node == me.Node:
		return fmt.Sprintf("network %s of this node has it", h.Network)
	}
	return fmt.Sprintf("node %s has it (network %s): if pods of both nodes have it, delete one of them", h.Node, h.Network)
}

// got notes which of the addresses the store has now.
func (r *importing) got(ctx context.Context, p part) error {
	s, err := r.state(ctx)
	if err != nil && !r.in.DryRun {
		return unavailable(err)
	}
	for _, a := range p.addresses {
		switch {
		case r.in.DryRun:
			r.out.Pools[a] = p.pool
		case !r.gets(s, p, a):
			r.out.Refused[a] = "this node is giving it back, or its block has no place for one more store: run it again"
		}
	}
	return nil
}
