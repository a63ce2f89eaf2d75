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

// maxEmptyGrants is how many grants with nothing left a store keeps of a pool. They show that a block which the API
// answers is older than what this node has seen. Nodes come to other blocks over the years.
const maxEmptyGrants = 512

// PutGrants stores the pool as the agent has read it, and replaces these grants of it. It refuses all of them if one takes a
// mark back. ErrNotLeased: there is no store.
func (s *Store) PutGrants(ctx context.Context, layout pool.Layout, grants []pool.Grant) error {
	return s.grow(ctx, func(l *leaseTx) error {
		if err := l.ensureID(); err != nil {
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
			err = l.pruneEmptyGrants(layout.Name)
		}
		failpoint.Here("grants put")
		return err
	})
}

func (l *leaseTx) putLayout(layout pool.Layout) (changed bool, err error) {
	if layout.Name == "" {
		return false, errors.New("a pool without a name cannot be stored")
	}
	b := encode(&layout)
	if bytes.Equal(b, l.layouts.Get([]byte(layout.Name))) {
		return false, nil
	}
	return true, l.layouts.Put([]byte(layout.Name), b)
}

// putGrant stores the grant, if it has changed. It keeps what a newer relink has added to it.
func (l *leaseTx) putGrant(name string, g pool.Grant) (changed bool, err error) {
	if reason := wrongGrant(g); reason != "" {
		return false, fmt.Errorf("grant %s cannot be stored: %s", g.Name(), reason)
	}
	if g.Pool != name {
		return false, fmt.Errorf("grant %s is not of pool %s", g.Name(), name)
	}
	previous, rest, err := l.grant(name, g.Index)
	switch {
	case errors.Is(err, ErrNotGranted):
	case err != nil:
		return false, err
	case previous == g:
		return false, nil
	default:
		if err := checkMarks(previous, g); err != nil {
			return false, err
		}
		if err := l.clearClaims(previous, g); err != nil {
			return false, err
		}
	}
	return true, l.grants.Put(grantKey(name, g.Index), append(encodeGrant(g), rest...))
}

// checkMarks returns an error if the grant takes a mark of the earlier one back: another node may have the address by now.
// A block that was made anew with other addresses has no marks. The node had nothing else of the old block then.
func checkMarks(previous, g pool.Grant) error {
	if previous.First != g.First || len(previous.Addresses) != len(g.Addresses) {
		if len(previous.Offsets(pool.GrantedChars)) > 0 {
			return fmt.Errorf("grant %s cannot be stored: this node has addresses of %s-%s, and the block has %s-%s", g.Name(), previous.First, previous.Last(), g.First, g.Last())
		}
		return nil
	}
	for _, i := range previous.Offsets(string(pool.Marked)) {
		if gives, _ := g.Assignable(i); gives {
			return fmt.Errorf("grant %s cannot be stored: %s is being given back, and the mark of that is never taken back", g.Name(), g.Address(i))
		}
	}
	return nil
}

// clearClaims notes of each address that the node loses: when it comes back, the API has to be told again. Until then its owner can be
// on another node.
func (l *leaseTx) clearClaims(previous, g pool.Grant) error {
	for _, i := range previous.Offsets(pool.GrantedChars) {
		if gives, _ := g.Assignable(i); gives { // checkMarks has compared the addresses.
			continue
		}
		lease, err := l.get(previous.Address(i))
		if err != nil {
			return err
		}
		if lease.Claimed {
			lease.Claimed = false
			if err := l.put(lease); err != nil {
				return err
			}
		}
	}
	return nil
}

// pruneEmptyGrants removes grants with nothing left, the oldest first, until the pool has no more than maxEmptyGrants.
func (l *leaseTx) pruneEmptyGrants(name string) error {
	grants, err := l.grantsOf(name)
	if err != nil {
		return err
	}
	grants = slices.DeleteFunc(grants, func(g pool.Grant) bool { return !g.Empty() })
	slices.SortFunc(grants, func(a, b pool.Grant) int {
		return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Index, b.Index))
	})
	for _, g := range grants[:max(0, len(grants)-maxEmptyGrants)] {
		err = errors.Join(err, l.grants.Delete(grantKey(name, g.Index)))
	}
	return err
}

// MarkFree marks at most limit addresses of the grant that have no lease: the node gives them back, and never gives
// them to a pod again. It returns the grant as it is stored then. ErrNotGranted: there is no such grant; ErrNotLeased:
// there is no store.
func (s *Store) MarkFree(ctx context.Context, poolName string, index int64, limit int) (pool.Grant, error) {
	return result(ctx, s.change, func(l *leaseTx) (pool.Grant, error) {
		g, _, err := l.grant(poolName, index)
		if err != nil {
			return g, err
		}
		layout, err := l.layout(poolName)
		if err != nil {
			return g, err
		}
		free, err := l.freeOffsets(g, layout, limit)
		if err != nil {
			return g, err
		}
		if len(free) == 0 {
			return g, errUnchanged
		}
		failpoint.Here("before marking")
		return l.putMarks(g, free)
	})
}

// putMarks marks addresses of the grant, and returns it as it is stored then.
func (l *leaseTx) putMarks(g pool.Grant, offsets []int) (pool.Grant, error) {
	g = g.Mark(offsets)
	_, err := l.putGrant(g.Pool, g)
	return g, err
}

// freeOffsets returns the offsets of at most limit addresses of the grant that have no lease, the last ones first. Those that the pool
// excludes by now come after all that pods can get: another node can do nothing with them.
func (l *leaseTx) freeOffsets(g pool.Grant, layout pool.Layout, limit int) (free []int, err error) {
	ours, excluded := g.Offsets(pool.GrantedChars), func(i int) bool { return layout.Excluded(g.Address(i)) }
	slices.Reverse(ours)
	ours = slices.Concat(slices.DeleteFunc(slices.Clone(ours), excluded), slices.DeleteFunc(ours, func(i int) bool { return !excluded(i) }))
	for _, i := range ours {
		if len(free) >= limit {
			break
		}
		lease, err := l.find(g.Address(i))
		if err != nil {
			return nil, err
		}
		if lease.isFree() {
			free = append(free, i)
		}
	}
	return free, nil
}

// MarkAddress marks the address, so that another node gets it for the owner. The address must be free, or wait for exactly this owner.
// Then its lease ends. ErrTaken: somebody else has it, or a pod does; ErrHolderChanged: the node does not have it; ErrNotLeased:
// there is no store.
func (s *Store) MarkAddress(ctx context.Context, poolName string, a netip.Addr, o attachment.Owner) (pool.Grant, error) {
	return result(ctx, s.change, func(l *leaseTx) (pool.Grant, error) {
		lease, err := l.findAfterExpiry(a)
		if err != nil {
			return pool.Grant{}, err
		}
		g, offset, err := l.grantAt(poolName, a)
		switch {
		case errors.Is(err, ErrNotGranted):
			return g, fmt.Errorf("%s is %w: %w", a, ErrHolderChanged, err)
		case err != nil:
			return g, err
		case lease.isFree():
			if g.Addresses[offset] == pool.Marked {
				return g, errUnchanged
			}
		case lease.State != Reserved || lease.Owner != o || !lease.hasOwner():
			return g, fmt.Errorf("%s is %w for %s: it is %s", a, ErrTaken, o, lease.describeFor(o))
		default:
			l.addEvent(Event{Type: HandedOver, Reason: "the owner's next pod is on another node"}.withLease(lease, lease.Last))
			if err := l.remove(lease); err != nil {
				return g, err
			}
		}
		failpoint.Here("before marking address")
		return l.putMarks(g, []int{offset})
	})
}
