package lease

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/relink-cni/relink/pkg/attachment"
	"github.com/relink-cni/relink/pkg/failpoint"
	"github.com/relink-cni/relink/pkg/pool"
)

// mostEmptyGrants is how many grants with nothing left a store keeps of a pool. They show that a block which the API
// answers is older than what this node has seen. Nodes come to other blocks over the years.
const mostEmptyGrants = 512

// PutGrants stores the pool as the agent has read it, and replaces these grants of it. It refuses all of them if one takes a
// mark back. ErrNone: there is no store.
func (s *Store) PutGrants(ctx context.Context, layout pool.Layout, grants []pool.Grant) error {
	return s.changeGrants(ctx, func(l *leases) error {
		if err := errors.Join(l.makePoolBuckets(), l.identify()); err != nil {
			return err
		}
		changed, err := l.putLayout(layout)
		if err != nil {
			return err
		}
		emptied := false
		for _, g := range grants {
			put, err := l.putGrant(layout.Name, g)
			if err != nil {
				return err
			}
			changed, emptied = changed || put, emptied || put && g.Empty()
		}
		if !changed {
			return errUnchanged
		}
		if emptied {
			err = l.forgetEmpty(layout.Name)
		}
		failpoint.Here("grants put")
		return err
	})
}

// changeGrants is change for what can make the store larger.
func (s *Store) changeGrants(ctx context.Context, change func(*leases) error) error {
	if there, err := s.Exists(); err == nil && !there {
		return s.none()
	}
	err := s.grow(ctx, change)
	if errors.Is(err, errUnchanged) {
		return nil
	}
	return err
}

// makePoolBuckets makes the buckets of pools, if the store has none.
func (l *leases) makePoolBuckets() (err error) {
	if l.layouts, err = l.tx.CreateBucketIfNotExists([]byte(bucketPools)); err != nil {
		return err
	}
	l.grants, err = l.tx.CreateBucketIfNotExists([]byte(bucketGrants))
	return err
}

func (l *leases) putLayout(layout pool.Layout) (changed bool, err error) {
	if layout.Name == "" {
		return false, errors.New("a pool without a name cannot be stored")
	}
	b, err := encodeLayout(layout)
	if err != nil || bytes.Equal(b, l.layouts.Get([]byte(layout.Name))) {
		return false, err
	}
	return true, l.layouts.Put([]byte(layout.Name), b)
}

// putGrant stores the grant, if it is another one than before. What a newer relink has added to it stays.
func (l *leases) putGrant(name string, g pool.Grant) (changed bool, err error) {
	if why := wrongGrant(g); why != "" {
		return false, fmt.Errorf("grant %s cannot be stored: %s", g.Name(), why)
	}
	if g.Pool != name {
		return false, fmt.Errorf("grant %s is not of pool %s", g.Name(), name)
	}
	was, rest, err := l.grant(name, g.Index)
	switch {
	case errors.Is(err, ErrNotGranted):
	case err != nil:
		return false, err
	case was == g:
		return false, nil
	default:
		if err := takesBack(was, g); err != nil {
			return false, err
		}
		if err := l.unclaim(was, g); err != nil {
			return false, err
		}
	}
	return true, l.grants.Put(grantKey(name, g.Index), append(encodeGrant(g), rest...))
}

// takesBack returns an error if the grant takes a mark of the earlier one back: another node may have the address by now.
// Of a block that was made anew with other addresses the marks are over. Then the node had nothing else of the old one.
func takesBack(was, g pool.Grant) error {
	if was.First != g.First || len(was.Addresses) != len(g.Addresses) {
		if len(was.Offsets(pool.Ours)) > 0 {
			return fmt.Errorf("grant %s cannot be stored: this node has addresses of %s-%s, and the block has %s-%s", g.Name(), was.First, was.Last(), g.First, g.Last())
		}
		return nil
	}
	for _, i := range was.Offsets(string(pool.Marked)) {
		if gives, _ := g.May(i); gives {
			return fmt.Errorf("grant %s cannot be stored: %s is being given back, and the mark of that is never taken back", g.Name(), g.At(i))
		}
	}
	return nil
}

// unclaim notes of each address that the node loses that the API has to be told again when it comes back: its owner
// may be on another node until then.
func (l *leases) unclaim(was, g pool.Grant) error {
	for _, i := range was.Offsets(pool.Ours) {
		if gives, _ := g.May(i); gives { // takesBack has compared the addresses.
			continue
		}
		lease, leased, err := l.get(was.At(i))
		if err != nil {
			return err
		}
		if leased && lease.Claimed {
			lease.Claimed = false
			if err := l.put(lease); err != nil {
				return err
			}
		}
	}
	return nil
}

// forgetEmpty removes grants with nothing left, the oldest first, until the pool has no more than mostEmptyGrants.
func (l *leases) forgetEmpty(name string) error {
	all, err := l.grantsOf(name)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(g pool.Grant) bool { return !g.Empty() })
	slices.SortFunc(all, func(a, b pool.Grant) int {
		return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Index, b.Index))
	})
	for _, g := range all[:max(0, len(all)-mostEmptyGrants)] {
		err = errors.Join(err, l.grants.Delete(grantKey(name, g.Index)))
	}
	return err
}

// MarkFree marks up to most addresses of the grant that nobody has a lease of: the node gives them back, and never gives
// them to a pod again. It returns the grant as it is stored then. ErrNotGranted: there is no such grant; ErrNone:
// there is no store.
func (s *Store) MarkFree(ctx context.Context, poolName string, index int64, most int) (g pool.Grant, err error) {
	err = s.change(ctx, func(l *leases) (err error) {
		if g, _, err = l.grant(poolName, index); err != nil {
			return err
		}
		layout, err := l.layout(poolName)
		if err != nil {
			return err
		}
		free, err := l.freeOf(g, layout, most)
		if err != nil {
			return err
		}
		if len(free) == 0 {
			return errUnchanged
		}
		g = g.Mark(free)
		failpoint.Here("before marking")
		_, err = l.putGrant(poolName, g)
		return err
	})
	if err != nil {
		return pool.Grant{}, err
	}
	return g, nil
}

// freeOf returns the offsets of at most so many addresses of the grant that have no lease, the last ones first. Those that the pool
// excludes by now come after all that pods can get: another node can do nothing with them.
func (l *leases) freeOf(g pool.Grant, layout pool.Layout, most int) (free []int, err error) {
	ours, excluded := g.Offsets(pool.Ours), func(i int) bool { return layout.Excluded(g.At(i)) }
	slices.Reverse(ours)
	ours = slices.Concat(slices.DeleteFunc(slices.Clone(ours), excluded), slices.DeleteFunc(ours, func(i int) bool { return !excluded(i) }))
	for _, i := range ours {
		if len(free) >= most {
			break
		}
		_, err := l.current(g.At(i))
		switch {
		case errors.Is(err, ErrNone):
			free = append(free, i)
		case err != nil:
			return nil, err
		}
	}
	return free, nil
}

// MarkAddress marks the address, so that another node gets it for the owner. It is free, or it waits for exactly this owner.
// Then its lease ends. ErrTaken: somebody else has it, or a pod does; ErrHolder: the node does not have it; ErrNone:
// there is no store.
func (s *Store) MarkAddress(ctx context.Context, poolName string, a netip.Addr, o attachment.Owner) (g pool.Grant, err error) {
	o = storable(o)
	err = s.change(ctx, func(l *leases) error {
		if err := l.settle(); err != nil {
			return err
		}
		var at int
		if g, at, err = l.grantAt(poolName, a); errors.Is(err, ErrNotGranted) {
			return fmt.Errorf("%s is %w: %w", a, ErrHolder, err)
		} else if err != nil {
			return err
		}
		if g.Addresses[at] == pool.NotOurs {
			return fmt.Errorf("%s is %w: it is %w", a, ErrHolder, ErrNotGranted)
		}
		gone, err := l.letGoTo(a, o)
		if err != nil {
			return err
		}
		if g.Addresses[at] == pool.Marked && !gone {
			return errUnchanged
		}
		g = g.Mark([]int{at})
		failpoint.Here("before marking address")
		_, err = l.putGrant(poolName, g)
		return err
	})
	if err != nil {
		return pool.Grant{}, err
	}
	return g, nil
}

// letGoTo removes the lease by which the address waits for the owner. gone is false if there is none.
func (l *leases) letGoTo(a netip.Addr, o attachment.Owner) (gone bool, err error) {
	lease, err := l.current(a)
	switch {
	case errors.Is(err, ErrNone):
		return false, nil
	case err != nil:
		return false, err
	case lease.State != Reserved || lease.Owner != o || !lease.owned():
		return false, fmt.Errorf("%s is %w for %s: it is %s", a, ErrTaken, o, lease.whoseFor(o))
	}
	l.note(Event{What: HandedOver, Why: "the owner's next pod is on another node"}.of(lease, lease.Last))
	return true, l.remove(lease)
}
