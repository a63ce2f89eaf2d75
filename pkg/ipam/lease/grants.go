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

// Reconcile lets decide make the grant of a block anew, by what the store has of the pool. No lease changes meanwhile. Afterwards the
// reservations at the addresses that are handed over have ended, and those that are kept have no time limit. It refuses to mark an address that
// anything else has a lease of. ErrNotLeased: there is no store.
func (s *Store) Reconcile(ctx context.Context, layout pool.Layout, index int64, decide func(PoolState) (pool.Outcome, error)) (pool.Outcome, error) {
	return result(ctx, s.change, func(l *leaseTx) (o pool.Outcome, err error) {
		if err := l.freeExpired(); err != nil {
			return o, err
		}
		g, err := l.granted()
		if err != nil {
			return o, err
		}
		state := g.PoolState(layout.Name)
		previous := state.Grant(index)
		state.Layout = layout
		if o, err = decide(state); err != nil {
			return o, err
		}
		changed, err := l.putLayout(layout)
		if err != nil || o.Grant == previous && len(o.Kept) == 0 {
			return o, cmp.Or(err, unchangedUnless(changed))
		}
		if o.Grant.Granted() > previous.Granted() {
			if err := l.makeRoom(); err != nil {
				return o, err
			}
		}
		for _, a := range o.HandedOver {
			if err := l.handOver(a); err != nil {
				return o, err
			}
		}
		for _, a := range o.Kept {
			if err := l.keep(a); err != nil {
				return o, err
			}
		}
		return o, l.putReconciled(previous, o.Grant)
	})
}

func unchangedUnless(changed bool) error {
	if changed {
		return nil
	}
	return errUnchanged
}

// putReconciled stores a grant whose new marks are of addresses without a lease.
func (l *leaseTx) putReconciled(previous, g pool.Grant) error {
	for _, i := range g.Offsets(string(pool.Marked)) {
		if previous.MayGive(g.Address(i)) {
			lease, err := l.find(g.Address(i))
			if err != nil {
				return err
			}
			if !lease.isFree() {
				return fmt.Errorf("%s is %w: it is %s, and cannot be given back", lease.Address, ErrTaken, lease.describeFor(attachment.Owner{}))
			}
		}
	}
	failpoint.Here("before a grant is stored")
	put, err := l.putGrant(g.Pool, g)
	if err == nil && put && g.Empty() {
		err = l.pruneEmptyGrants(g.Pool)
	}
	failpoint.Here("grant stored")
	return err
}

// handOver ends the reservation of an address: the owner's next pod gets it on another node.
func (l *leaseTx) handOver(a netip.Addr) error {
	lease, err := l.find(a)
	if err != nil || lease.isFree() {
		return err
	}
	if lease.State != Reserved {
		return fmt.Errorf("%s is %w: it is %s, and cannot be handed over", a, ErrTaken, lease.describeFor(attachment.Owner{}))
	}
	l.addEvent(Event{Type: HandedOver, Reason: "the owner's next pod gets it on another node"}.withLease(lease, lease.Last))
	return l.remove(lease)
}

// keep makes the address wait for its owner without a time limit when its pods here end: the owner's next pod is on another node already.
func (l *leaseTx) keep(a netip.Addr) error {
	lease, err := l.find(a)
	if err != nil || lease.State != Held {
		return err
	}
	lease.Holders = slices.Clone(lease.Holders)
	for i := range lease.Holders {
		lease.Holders[i].Policy.Sticky, lease.Holders[i].Policy.Retain = true, 0
	}
	return l.put(lease)
}
